"""LitGPT: chunks of litdata with `index.json`, the samples in their order.

Source: litdata/streaming/writer.py and item_loader.py (TokensLoader) of https://github.com/Lightning-AI/litData
(0.2.76); litgpt/data/lit_data.py of https://github.com/Lightning-AI/litgpt (0.5). A chunk is the number of items,
where each begins and the last ends (uint32), and the items; here it has one item, its tokens. The loader reads blocks
of seq_len + 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from gristmill.samples.formats.export import FILE_BYTES, OutFile, TokenExport, content, json_file, tokenizer_file

HEAD = 12  # bytes
TYPES = {"<u2": (20, "<u2"), "<u4": (16, "<i4")}  # its numbers of torch.uint16 and torch.int32, and their bytes


def files_of(export: TokenExport) -> Iterator[OutFile]:
    code, dtype = TYPES[export.dtype.str]
    width = np.dtype(dtype).itemsize
    chunks: list[dict[str, Any]] = []
    for number, begin, end in export.cut(export.row * width):
        name, tokens = f"chunk-0-{number}.bin", (end - begin) * export.row

        def write(f: IO[bytes], begin: int = begin, end: int = end, size: int = HEAD + tokens * width) -> None:
            f.write(np.array([1, HEAD, size], "<u4").tobytes())
            for ids in export.ids(begin, end):
                f.write(ids.astype(dtype).tobytes())

        yield OutFile(f"train/{name}", HEAD + tokens * width, write)
        chunks.append({"chunk_bytes": HEAD + tokens * width, "chunk_size": 1, "dim": tokens, "filename": name})
    yield json_file("train/index.json", {"chunks": chunks, "config": _config(code)})
    tokens = sum(shard.tokens for part in export.data.heldout for shard in part.shards)

    def heldout(f: IO[bytes]) -> None:
        f.write(np.array([1, HEAD, HEAD + tokens * width], "<u4").tobytes())
        for part in export.data.heldout:
            read = export.tokens(part)
            for shard in read.maps:
                f.write(shard.astype(dtype).tobytes())

    yield OutFile("val/chunk-0-0.bin", HEAD + tokens * width, heldout)
    chunk = {"chunk_bytes": HEAD + tokens * width, "chunk_size": 1, "dim": tokens, "filename": "chunk-0-0.bin"}
    yield json_file("val/index.json", {"chunks": [chunk], "config": _config(code)})
    yield content("pretrain.yaml", _settings(export).encode())
    yield tokenizer_file(export)


def _config(code: int) -> dict[str, Any]:
    return {
        "chunk_bytes": FILE_BYTES,
        "chunk_size": None,
        "compression": None,
        "data_format": [f"no_header_tensor:{code}"],
        "data_spec": '[1, {"type": null, "context": null, "children_spec": []}]',
        "encryption": None,
        "item_loader": "TokensLoader",
    }


def _settings(export: TokenExport) -> str:
    source = export.source
    lines = [
        f"# {export.name}, for `litgpt pretrain --config`: the settings that LitGPT supports",
        "data:",
        "  class_path: litgpt.data.LitData",
        f"  init_args: {{data_path: ., split_names: [train, val], seed: {source.seed}}}",
        "train:",
        f"  global_batch_size: {source.batch}",
        f"  max_seq_length: {source.seq_len}",
        f"  max_tokens: {source.seq_len * len(source)}",
        "tokenizer_dir: .",
    ]
    return "\n".join([*lines, ""])


def start(export: TokenExport) -> list[str]:
    lossy = export.data.row_length is not None
    return [
        "From this folder, with your own model:",
        "",
        "    litgpt pretrain MODEL --config pretrain.yaml",
        "",
        "LitGPT shuffles its samples. In their order, with phases, repetitions and packing:",
        "",
        "    from litdata.streaming import StreamingDataset, TokensLoader",
        f'    data = StreamingDataset("train", item_loader=TokensLoader(block_size={export.row}), shuffle=False)',
        *(
            ["", "Padding of packed rows is trained on as end-of-text tokens, because the format has no mask."]
            if lossy
            else []
        ),
    ]
