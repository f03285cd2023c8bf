"""Tokens of the shards and of the packed rows that a training manifest names. Needs numpy alone."""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xxhash

from gristmill.storage.damage import check_name, damaged, missing

if TYPE_CHECKING:
    from gristmill.storage.training_manifest import RowsEntry, ShardEntry


class Shard(NamedTuple):
    path: Path
    tokens: int
    digest: str
    offset: int = 0


class Rows(NamedTuple):
    path: Path
    rows: int
    pieces: int
    digest: str


class Source(NamedTuple):
    name: str
    share: float
    tokens: int
    epochs: float
    shards: tuple[Shard, ...]
    rows: tuple[Rows, ...] = ()


class Phase(NamedTuple):
    first: int
    shares: tuple[float, ...]


class Manifest(NamedTuple):
    """`checksum`: of the file, which names shards with their digests; `token_budget`: target tokens of the training
    that it was made for."""

    checksum: str
    vocab_size: int
    dtype: str
    end_of_text: int
    sources: tuple[Source, ...]
    phases: tuple[Phase, ...]
    row_length: int | None

    @property
    def token_budget(self) -> int:
        return round(sum(source.epochs * source.tokens for source in self.sources))


def load_manifest(path: Path) -> Manifest:
    """Read `mixture.json`; its relative paths become absolute. Raises MissingFileError and DamagedFileError."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise missing(str(path)) from None
    head, _, rest = data.partition(b",")
    checksum = xxhash.xxh3_128_hexdigest(rest)
    if head != b'{\n  "checksum": "%s"' % checksum.encode():
        raise damaged(str(path), "is not what was written")
    value = json.loads(data)
    check_name(str(path), value.get("file", "a file of another version"))
    base = path.resolve().parent

    def with_full_path(entry: dict[str, Any]) -> dict[str, Any]:
        return entry | {"path": Path(os.path.normpath(base / entry["path"]))}

    sources = tuple(
        Source(
            source["name"],
            source["share"],
            source["tokens"],
            source["epochs"],
            tuple(Shard(**with_full_path(shard)) for shard in source["shards"]),
            tuple(Rows(**with_full_path(rows)) for rows in source.get("rows", ())),
        )
        for source in value["sources"]
    )
    phases = tuple(Phase(phase["first"], tuple(phase["shares"])) for phase in value.get("phases", ()))
    return Manifest(
        checksum,
        value["vocab_size"],
        value.get("dtype", "<u2"),
        value["end_of_text"],
        sources,
        phases,
        value.get("row_length"),
    )


class Span(NamedTuple):
    """The tokens [at, at + length) of a sample are those from `offset` on of the shard with this number in its
    source."""

    at: int
    shard: int
    offset: int
    length: int


class Tokens:
    """The shards of one source as one long sequence of token ids. Holds memory maps, not tokens."""

    def __init__(self, shards: Sequence[ShardEntry] | Sequence[Shard], vocab_size: int, dtype: str = "<u2") -> None:
        token = np.dtype(dtype)
        self.vocab_size = vocab_size
        self.shards = shards
        self.maps = []
        for shard in shards:
            if not shard.path.exists():
                raise missing(str(shard.path))
            size, expected_size = shard.path.stat().st_size, shard.offset + shard.tokens * token.itemsize
            if size != expected_size:
                raise damaged(str(shard.path), f"has {size} bytes instead of {expected_size}")
            self.maps.append(np.memmap(shard.path, dtype=token, mode="r", offset=shard.offset))
        self.starts = np.cumsum([0] + [shard.tokens for shard in shards]).tolist()

    def __len__(self) -> int:
        return self.starts[-1]

    def spans(self, start: int, stop: int, position: int = 0) -> Iterator[Span]:
        """Where the tokens [start, stop) are, as those of a sample from its token `position` on; a range may span
        shards."""
        if not 0 <= start < stop <= len(self):
            raise IndexError(f"tokens {start}:{stop} of {len(self)}")
        shard = bisect_right(self.starts, start) - 1
        while start < stop:
            length = min(stop, self.starts[shard + 1]) - start
            yield Span(position, shard, start - self.starts[shard], length)
            position, start, shard = position + length, start + length, shard + 1

    def read(self, start: int, stop: int) -> np.ndarray:
        """Token ids [start, stop) as int64. Raises ValueError on an id off the vocabulary."""
        ids = np.empty(stop - start, np.int64)
        for position, shard, offset, length in self.spans(start, stop):
            piece = self.maps[shard][offset : offset + length]
            ids[position : position + length] = piece
            if (largest := piece.max()) >= self.vocab_size:
                raise ValueError(
                    f"{self.shards[shard].path}: token id {largest}, but the vocabulary has "
                    f"{self.vocab_size}; the shard was made with another tokenizer"
                )
        return ids


def map_rows(path: Path, rows: int, pieces: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`first` (rows + 1), `start` and `length` (pieces), mapped into memory, of a file that
    `gristmill.storage.training_manifest` describes. Raises ValueError for another size."""
    expected = 8 * (rows + 1) + 12 * pieces
    if (size := path.stat().st_size) != expected:
        raise ValueError(
            f"{path}: {size} bytes, but {rows} rows of {pieces} pieces take {expected}; remove the stage directory and "
            "run that stage again"
        )
    first = np.memmap(path, "<i8", "r", 0, (rows + 1,))
    start = np.memmap(path, "<i8", "r", 8 * (rows + 1), (pieces,))
    return first, start, np.memmap(path, "<i4", "r", 8 * (rows + 1 + pieces), (pieces,))


class Windows:
    """Windows of seq_len + 1 tokens at a stride of seq_len."""

    def __init__(self, tokens: Tokens, seq_len: int) -> None:
        self.tokens, self.seq_len = tokens, seq_len

    def __len__(self) -> int:
        return (len(self.tokens) - 1) // self.seq_len

    def __call__(self, window: int) -> np.ndarray:
        return self.tokens.read(window * self.seq_len, (window + 1) * self.seq_len + 1)

    def spans(self, window: int) -> list[Span]:
        """Where the tokens of a window are."""
        return list(self.tokens.spans(window * self.seq_len, (window + 1) * self.seq_len + 1))

    def near(self, start: int, stop: int) -> Iterable[int]:
        """All windows with one of the tokens [start, stop) of the source."""
        return range(max(0, start - 1) // self.seq_len, min(len(self), (stop - 1) // self.seq_len + 1))


class PackedRows:
    """The packed rows of one source. Holds memory maps.

    A row is an end-of-text token, and behind it documents that each end with one, up to seq_len + 1 tokens; what is
    left is filled with end-of-text tokens that are no targets. A document that is longer than seq_len has rows of its
    own, and its end stands in a row with others. The piece that begins a row is read behind the token before it, so all
    of its tokens are targets. Another end of a long document in the same row is read behind an end-of-text token, from
    which its first token does not follow: that one is no target.
    """

    def __init__(
        self, tokens: Tokens, entries: Sequence[RowsEntry] | Sequence[Rows], seq_len: int, end_of_text: int
    ) -> None:
        self.tokens, self.seq_len, self.end_of_text = tokens, seq_len, end_of_text
        self.maps = [map_rows(entry.path, entry.rows, entry.pieces) for entry in entries]
        self.firsts = np.cumsum([0] + [entry.rows for entry in entries])

    def __len__(self) -> int:
        return int(self.firsts[-1])

    def pieces(self, row: int) -> Iterator[tuple[int, int, int, int]]:
        """(position, start, stop, before) of each piece of a row: where it stands in the row, its tokens, and the id of
        the token before them."""
        file = int(np.searchsorted(self.firsts, row, side="right")) - 1
        first, starts, lengths = self.maps[file]
        begin, end = (int(piece) for piece in first[row - self.firsts[file] :][:2])
        position = 1
        for start, length in zip(starts[begin:end].tolist(), lengths[begin:end].tolist(), strict=True):
            before = int(self.tokens.read(start - 1, start)[0]) if start else self.end_of_text
            yield position, start, start + length, before
            position += length

    def __call__(self, row: int) -> np.ndarray:
        """Token ids, int64 (seq_len + 1,); ~id where one is no target."""
        ids = np.full(self.seq_len + 1, ~self.end_of_text, np.int64)
        ids[0] = self.end_of_text
        for position, start, stop, before in self.pieces(row):
            ids[position : position + stop - start] = self.tokens.read(start, stop)
            if before != self.end_of_text:
                if position == 1:
                    ids[0] = before
                else:
                    ids[position] = ~ids[position]
        return ids

    def spans(self, row: int) -> list[Span]:
        """Where the tokens of a row are; those that are filled in are nowhere."""
        row_spans: list[Span] = []
        for position, start, stop, before in self.pieces(row):
            has_token_before = position == 1 and before != self.end_of_text
            row_spans += self.tokens.spans(start - has_token_before, stop, position - has_token_before)
        return row_spans

    def near(self, start: int, stop: int) -> Iterable[int]:
        """All rows with one of the tokens [start, stop) of the source, and rows with those beside them."""
        for base, (first, starts, lengths) in zip(self.firsts.tolist(), self.maps, strict=False):
            pieces = np.flatnonzero((starts <= stop) & (starts + lengths > start))
            yield from dict.fromkeys((base + np.searchsorted(first, pieces, side="right") - 1).tolist())
