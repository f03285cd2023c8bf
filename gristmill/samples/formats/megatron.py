"""Megatron-LM: indexed datasets (`.bin`, `.idx`) and a file of arguments with the blend.

Source: megatron/core/datasets/indexed_dataset.py and gpt_dataset.py of https://github.com/NVIDIA/Megatron-LM (core
0.16). `gristmill.storage.token_shards` describes the index. The dataset of each source is one pair of files,
so a blend is as long as the mixture. Megatron shuffles documents and samples by itself and reads a source again as
often as it takes, so it follows shares and epochs. What it does not follow is given as the samples of each phase, a
dataset of its own, a document each: the seq_len labels of a sample, so that Megatron's own windows are these.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import IO

import numpy as np

from gristmill.samples.formats.export import CHUNK, OutFile, TokenExport, content, shard_chunks, tokenizer_file
from gristmill.samples.shards import Tokens

MAGIC, VERSION = b"MMIDIDX\0\0", 1
TYPES = {"<u4": 4, "<u2": 8}  # codes of the types of ids; 4 is int32
HEAD = "<9sQBQQ"
ARGUMENTS = "megatron.args"


def files_of(export: TokenExport) -> Iterator[OutFile]:
    if export.ordered:
        yield from _phases(export)
    else:
        for number, source in enumerate(export.data.sources):
            if source.share:
                yield from _dataset(export, f"source-{number:03d}", export.tokens(source))
    for number, part in enumerate(export.data.heldout):
        yield from _dataset(export, f"heldout-{number:03d}", export.tokens(part))
    for phase, (_, end) in enumerate(phase_samples(export)):
        lines = [
            f"--train-data-path {' '.join(blend(export, phase))}",
            f"--valid-data-path {' '.join(f'heldout-{number:03d}' for number in range(len(export.data.heldout)))}",
            f"--seq-length {export.source.seq_len}",
            f"--global-batch-size {export.source.batch}",
            f"--train-samples {end}",
            f"--seed {export.source.seed + 1}",  # Megatron asks for one above 0
            *_tokenizer(export),
        ]
        name = ARGUMENTS if phase == 0 else f"megatron-{phase}.args"
        yield content(name, "\n".join([*lines, ""]).encode())
    yield tokenizer_file(export)


def start(export: TokenExport) -> list[str]:
    lines = [
        "From this folder, with a checkout of Megatron-LM and your own arguments for model, optimizer and layout:",
        "",
        f"    torchrun ... pretrain_gpt.py $(cat {ARGUMENTS}) ...",
        "",
    ]
    if not export.ordered:
        return [
            *lines,
            "A source is one dataset, and the blend has its share of the tokens: "
            + _table(export)
            + ". Megatron uses its own order of documents and samples, and repeats a source as "
            "its share requires. `heldout-...` are the held-out sets: "
            + ", ".join(f"{part.kind}/{part.name}" for part in export.data.heldout)
            + ".",
        ]
    return [
        *lines,
        "Megatron supports neither phases nor packed rows, so `phase-...` are the samples of each phase in "
        f"the order they are read, each as a document of {export.source.seq_len:,} tokens. Megatron shuffles "
        "them within a phase.",
        *_later_phases(export),
        *(["", "Padding of packed rows is trained on as end-of-text tokens."] if export.data.row_length else []),
    ]


def _later_phases(export: TokenExport) -> list[str]:
    later = range(1, len(phase_samples(export)))
    if not later:
        return []
    names = ", then with ".join(f"`megatron-{phase}.args`" for phase in later)
    return [
        "",
        f"Restart Megatron from its checkpoint with {names}. `--train-samples` includes all earlier phases, "
        "and Megatron starts at that number in its own order of the phase, which repeats it: the phase has "
        "the right shares, but some of its samples are read twice and some never.",
    ]


def phase_samples(export: TokenExport) -> list[tuple[int, int]]:
    """The samples [begin, end) of each phase of the run; one where there are none."""
    firsts = [min(first, len(export.source)) for first in export.source.order.schedule.firsts]
    bounds = zip(firsts, [*firsts[1:], len(export.source)], strict=True)
    return [(begin, end) for begin, end in bounds if begin < end]


def blend(export: TokenExport, phase: int) -> list[str]:
    """Weights and datasets, as --data-path takes them."""
    if export.ordered:
        return ["1", f"phase-{phase:03d}"]
    sources = enumerate(export.data.sources)
    return [word for number, one in sources if one.share for word in (repr(one.share), f"source-{number:03d}")]


def _table(export: TokenExport) -> str:
    names = (f"`source-{i:03d}` is {one.name}" for i, one in enumerate(export.data.sources) if one.share)
    return ", ".join(names)


def _tokenizer(export: TokenExport) -> list[str]:
    name = export.data.tokenizer.path.name
    if name.endswith(".json"):
        return ["--tokenizer-type HuggingFaceTokenizer", "--tokenizer-model ."]
    return ["--tokenizer-type GPTSentencePieceTokenizer", f"--tokenizer-model {name}"]


def _phases(export: TokenExport) -> Iterator[OutFile]:
    width, length = export.dtype.itemsize, export.source.seq_len
    for phase, (begin, end) in enumerate(phase_samples(export)):

        def write(f: IO[bytes], begin: int = begin, end: int = end) -> None:
            for ids in export.ids(begin, end):
                f.write(np.ascontiguousarray(ids[:, 1:]).tobytes())

        def lengths(count: int = end - begin) -> Iterator[np.ndarray]:
            for first in range(0, count, CHUNK):
                yield np.full(min(CHUNK, count - first), length, np.int64)

        yield OutFile(f"phase-{phase:03d}.bin", (end - begin) * length * width, write)
        yield index_file(f"phase-{phase:03d}.idx", end - begin, export.dtype, lengths)


def _dataset(export: TokenExport, name: str, tokens: Tokens) -> Iterator[OutFile]:
    shards = range(len(tokens.shards))

    def write(f: IO[bytes]) -> None:
        for shard in shards:
            for chunk in shard_chunks(tokens, shard):
                f.write(chunk.tobytes())

    def lengths() -> Iterator[np.ndarray]:
        for shard in shards:
            yield document_lengths(tokens, shard, export.data.end_of_text)

    yield OutFile(f"{name}.bin", len(tokens) * export.dtype.itemsize, write)
    yield index_file(f"{name}.idx", sum(map(len, lengths())), export.dtype, lengths)


def document_lengths(tokens: Tokens, shard: int, end_of_text: int) -> np.ndarray:
    """Of the documents of a shard, in tokens, each with the one that ends it; the last may have none. Holds 8 bytes for
    each."""
    ends: list[np.ndarray] = []
    position = 0
    for chunk in shard_chunks(tokens, shard):
        ends.append(np.flatnonzero(chunk == end_of_text) + position + 1)
        position += len(chunk)
    document_ends = np.concatenate(ends) if ends else np.empty(0, np.int64)
    if not len(document_ends) or document_ends[-1] != position:
        document_ends = np.append(document_ends, position)
    return np.diff(document_ends, prepend=0)


def index_file(name: str, count: int, dtype: np.dtype, lengths: Callable[[], Iterator[np.ndarray]]) -> OutFile:
    """The index of so many documents; `lengths` gives those in tokens, as often as it is asked. Each section is written
    in a pass of its own, so the lengths are never held together."""

    def write(f: IO[bytes]) -> None:
        f.write(struct.pack(HEAD, MAGIC, VERSION, TYPES[dtype.str], count, count + 1))
        for some in lengths():
            f.write(some.astype("<i4").tobytes())
        begin = 0
        for some in lengths():
            ends = np.cumsum(some) + begin
            f.write(((ends - some) * dtype.itemsize).astype("<i8").tobytes())
            begin = int(ends[-1]) if len(ends) else begin
        for first in range(0, count + 1, CHUNK):
            f.write(np.arange(first, min(first + CHUNK, count + 1), dtype="<i8").tobytes())

    return OutFile(name, struct.calcsize(HEAD) + 12 * count + 8 * (count + 1), write)
