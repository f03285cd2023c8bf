"""MosaicML streaming: shards of MDS and `index.json`, the samples in their order.

Source: streaming/base/format/mds/writer.py and encodings.py of https://github.com/mosaicml/streaming (0.13). A shard
is the number of samples and where each begins and the last ends, uint32; the columns as JSON; the samples. Columns
are arrays of a fixed size: `tokens`, seq_len + 1 ids, and with packed rows `targets`, 1 where a token is one. A
StreamingDataset that does not shuffle reads them in order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from gristmill.samples.formats.export import OutFile, TokenExport, content, heldout_file, json_file, tokenizer_file

SHARD_BYTES = 1 << 26  # as MDSWriter's size_limit


def files_of(export: TokenExport) -> Iterator[OutFile]:
    config = _config(export)
    head = json.dumps(config, sort_keys=True).encode()
    sample = sum(config["column_sizes"])
    shards: list[dict[str, Any]] = []
    each = max(1, SHARD_BYTES // (sample + 4))
    total = len(export.source)
    for number, begin in enumerate(range(0, total, each)):
        end = min(begin + each, total)
        name, count = f"shard.{number:05d}.mds", end - begin
        first = 4 + 4 * (count + 1) + len(head)
        size = first + count * sample

        def write(f: IO[bytes], begin: int = begin, end: int = end, first: int = first) -> None:
            count = end - begin
            f.write(np.uint32(count).astype("<u4").tobytes())
            f.write((first + sample * np.arange(count + 1, dtype=np.int64)).astype("<u4").tobytes())
            f.write(head)
            for rows in export.rows(begin, end):
                ids = np.where(rows < 0, ~rows, rows).astype(export.dtype)
                for row, one in zip(rows, ids, strict=True):
                    target_mask = (row >= 0).astype(np.uint8).tobytes() if "targets" in config["column_names"] else b""
                    f.write(target_mask + one.tobytes())  # columns by name

        yield OutFile(f"train/{name}", size, write)
        raw = {"basename": name, "bytes": size, "hashes": {}}
        shards.append({**config, "raw_data": raw, "samples": count, "zip_data": None})
    yield json_file("train/index.json", {"version": 2, "shards": shards})
    yield heldout_file(export, "heldout.bin")
    yield content("train_loader.yaml", _loader(export).encode())
    yield tokenizer_file(export)


def _config(export: TokenExport) -> dict[str, Any]:
    columns = {"tokens": (f"ndarray:{export.dtype.name}:{export.row}", export.row * export.dtype.itemsize)}
    if export.data.row_length is not None:
        columns["targets"] = (f"ndarray:uint8:{export.row}", export.row)
    names = sorted(columns)
    return {
        "version": 2,
        "format": "mds",
        "compression": None,
        "hashes": [],
        "size_limit": SHARD_BYTES,
        "column_names": names,
        "column_encodings": [columns[name][0] for name in names],
        "column_sizes": [columns[name][1] for name in names],
    }


def _loader(export: TokenExport) -> str:
    return "\n".join(
        [
            f"# {export.name}, for llm-foundry",
            "train_loader:",
            "  name: text",
            "  dataset:",
            "    local: train",
            "    shuffle: false  # the order of the samples is the recipe's",
            f"    max_seq_len: {export.row}",
            "  drop_last: true",
            f"global_train_batch_size: {export.source.batch}",
            f"max_duration: {export.source.steps}ba",
            "",
        ]
    )


def start(export: TokenExport) -> list[str]:
    return [
        "    from streaming import StreamingDataset",
        f'    data = StreamingDataset(local="train", shuffle=False, batch_size=ROWS)  # {export.source.batch} in all',
        f'    data[0]["tokens"]    # {export.row:,} ids: the inputs are all but the last, the labels all but the first',
        "",
        "`train_loader.yaml` has the same for llm-foundry. The samples are in the order of the run and "
        "include phases, repetitions and packing. "
        + ("`targets` is 0 for tokens that are not trained on. " if export.data.row_length is not None else "")
        + "`heldout.bin` has the held-out tokens, raw.",
    ]
