"""Exported tokens as the trainers' own readers give them, in those trainers' environment: tests/samples/test_peers.py.

    PYTHON peer_reads.py mosaic|litgpt|megatron|megatron-blend|olmo-core FOLDER ROW

Writes FOLDER.npy: the samples in the order of the reader, or of megatron the tokens of all documents; of megatron-blend
the number of the dataset that each sample is of, and FOLDER-samples.npy the samples.
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


def megatron_blend(folder: Path, row: int):
    """The training set as pretrain_gpt.py builds it of the file of arguments, in Megatron's own order."""
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig

    given = dict(line.split(" ", 1) for line in (folder / "megatron.args").read_text().splitlines())
    words, samples = given["--train-data-path"].split(), int(given["--train-samples"])
    blend = [str(folder / prefix) for prefix in words[1::2]], [float(weight) for weight in words[::2]]
    # the index of samples asks for the vocabulary's size, the samples for the end of text, and nothing for texts
    named = types.SimpleNamespace(vocab_size=500, eod=2, pad=None, unique_identifiers={"class": "ids"})
    config = GPTDatasetConfig(
        random_seed=int(given["--seed"]),
        sequence_length=int(given["--seq-length"]),
        blend_per_split=[blend, None, None],
        tokenizer=named,
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        create_attention_mask=False,
    )
    made, _, _ = BlendedMegatronDatasetBuilder(GPTDataset, [samples, 0, 0], lambda: True, config).build()
    np.save(f"{folder}-samples.npy", np.stack([made[at]["tokens"].numpy() for at in range(0, samples, 10)]))
    return made.dataset_index[:samples]


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
    readers["megatron-blend"] = megatron_blend
    np.save(folder.with_suffix(".npy"), readers[kind](folder, row))
