"""What is handed over, and files of it: samples in order, shards, held-out tokens."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from gristmill.samples.shards import Tokens
from gristmill.samples.source import SampleSource
from gristmill.storage.training_manifest import SourceShards, TrainingManifest

AT_ONCE = 256  # samples in memory
CHUNK = 1 << 22  # tokens of a shard in memory
FILE_BYTES = 1 << 28  # of a file of samples, at most, where a format has several


class OutFile(NamedTuple):
    """`size`: in bytes, where it is known before it is written; `write` gets the file."""

    name: str
    size: int | None
    write: Callable[[IO[bytes]], None]


@dataclass(frozen=True)
class TokenExport:
    """`key`: of the stage `mixture`; `recipe`: as YAML, for the card."""

    name: str
    key: str
    recipe: str
    source: SampleSource
    data: TrainingManifest

    @property
    def ordered(self) -> bool:
        """Whether it takes the order of the samples to read what the recipe says: phases, and packed rows."""
        return bool(self.data.phases) or self.data.row_length is not None

    @property
    def row(self) -> int:
        """Tokens of a sample: its inputs, and the last label."""
        return self.source.seq_len + 1

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.data.dtype)

    def rows(self, begin: int = 0, end: int | None = None) -> Iterator[np.ndarray]:
        """The samples [begin, end) in their order, int64 (samples, seq_len + 1) at a time; ~id where one is no
        target."""
        order = self.source.order
        end = len(self.source) if end is None else end
        for first in range(begin, end, AT_ONCE):
            places = order.windows_of(range(first, min(first + AT_ONCE, end)))
            yield np.stack([order.read[source](window) for source, _, window in places])

    def ids(self, begin: int = 0, end: int | None = None) -> Iterator[np.ndarray]:
        """As `rows`, the ids alone, in the type of the shards."""
        for rows in self.rows(begin, end):
            yield np.where(rows < 0, ~rows, rows).astype(self.dtype)

    def cut(self, sample_bytes: int) -> Iterator[tuple[int, int, int]]:
        """(number, begin, end) of files of samples of so many bytes each."""
        each = max(1, FILE_BYTES // sample_bytes)
        for number, begin in enumerate(range(0, len(self.source), each)):
            yield number, begin, min(begin + each, len(self.source))

    def tokens(self, part: SourceShards) -> Tokens:
        return Tokens(part.shards, self.data.vocab_size, self.data.dtype)

    def shares(self) -> dict[str, float]:
        """Of the tokens that training reads, by source; those that it reads none of are left out."""
        return {source.name: source.share for source in self.data.sources if source.share}


def shard_chunks(tokens: Tokens, shard: int) -> Iterator[np.ndarray]:
    """The tokens of a shard."""
    whole = tokens.maps[shard]
    for start in range(0, len(whole), CHUNK):
        yield whole[start : start + CHUNK]


def heldout_file(export: TokenExport, name: str) -> OutFile:
    """The tokens of all held-out sets, one after the other."""
    sets = export.data.heldout

    def write(f: IO[bytes]) -> None:
        for part in sets:
            tokens = export.tokens(part)
            for shard in range(len(part.shards)):
                for chunk in shard_chunks(tokens, shard):
                    f.write(chunk.tobytes())

    count = sum(shard.tokens for part in sets for shard in part.shards)
    return OutFile(name, count * export.dtype.itemsize, write)


def content(name: str, data: bytes) -> OutFile:
    """A small file."""

    def write(f: IO[bytes]) -> None:
        f.write(data)

    return OutFile(name, len(data), write)


def json_file(name: str, value: Any) -> OutFile:
    return content(name, json.dumps(value, indent=2).encode() + b"\n")


def tokenizer_file(export: TokenExport) -> OutFile:
    path: Path = export.data.tokenizer.path
    return content(path.name, path.read_bytes())
