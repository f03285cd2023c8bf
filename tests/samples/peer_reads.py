"""Exported tokens as the trainers' own readers give them, in those trainers' environment: tests/samples/test_peers.py.

    PYTHON peer_reads.py mosaic|litgpt|megatron|olmo-core FOLDER ROW

Writes FOLDER.npy: the samples in the order of the reader, or of megatron the tokens of all documents.
"""

import json
import os
import sys
import types
from pathlib import Path

import numpy as np


def mosaic(folder: Path, row: int):
    for images in ("streaming.vision", "streaming.multimodal"):  # need a torchvision of the very build of torch
        sys.modules[images] = types.ModuleType(images)
    from streaming import StreamingDataset

    data = StreamingDataset(local=str(folder / "train"), shuffle=False, batch_size=1)
    return np.stack([data[index]["tokens"] for index in range(len(data))])


def litgpt(folder: Path, row: int):
    from litdata.streaming import StreamingDataset, TokensLoader

    data = StreamingDataset(str(folder / "train"), item_loader=TokensLoader(block_size=row), shuffle=False)
    return np.stack([np.asarray(block) for block in data])


def megatron(folder: Path, row: int):
    from megatron.core.datasets.indexed_dataset import IndexedDataset

    words = next(line for line in (folder / "megatron.args").read_text().splitlines() if "--train-data-path" in line)
    read = [IndexedDataset(str(folder / prefix)) for prefix in words.split()[2::2]]
    print(json.dumps([[len(data), len(data.document_indices) - 1] for data in read]))
    return np.concatenate([data[at] for data in read for at in range(len(data))])


def olmo_core(folder: Path, row: int):
    from olmo_core.config import Config

    os.chdir(folder)
    source = Config.from_dict(json.load(open("instances.json"))).build("work")
    loader = Config.from_dict(json.load(open("loader.json"))).build(source)
    loader.reshuffle(1)
    return np.concatenate([np.asarray(batch["input_ids"]) for batch in loader])


if __name__ == "__main__":
    kind, folder, row = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    readers = {"mosaic": mosaic, "litgpt": litgpt, "megatron": megatron, "olmo-core": olmo_core}
    np.save(folder.with_suffix(".npy"), readers[kind](folder, row))
