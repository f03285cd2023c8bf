"""Best-fit packing: rows of whole documents for training (Ding et al. 2024, arXiv 2404.10830)."""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gristmill.storage import files, parquet
from gristmill.storage.training_manifest import write_rows

MAX_TOKENS = 1 << 27  # of shards that are packed together: some hundred thousand documents


@dataclass(frozen=True)
class Packed:
    """Pieces of documents in rows. `first`: the first piece of each row, and the number of pieces (rows + 1,); `start`,
    `length`: of each piece in tokens (pieces,); `cut`: documents of more than one piece."""

    first: np.ndarray
    start: np.ndarray
    length: np.ndarray
    cut: int

    @property
    def rows(self) -> int:
        return len(self.first) - 1


def packed(lengths: np.ndarray, seq_len: int) -> Packed:
    """Documents that lie one after the other, packed into rows of at most `seq_len` tokens; `lengths`: their tokens,
    each at least 1.

    A document that is longer is cut into pieces of `seq_len` tokens, and a rest. Pieces are taken in descending order
    of their length, each to the row that has the least room for it. Rows and their pieces are in the order of the
    tokens, but that the end of a cut document comes first in a row.
    """
    begins = np.concatenate([[0], np.cumsum(lengths.astype(np.int64))])
    pieces = -(-lengths // seq_len)
    document = np.repeat(np.arange(len(lengths)), pieces)
    number = np.arange(len(document)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    start = begins[:-1][document] + number * seq_len
    length = np.minimum(begins[1:][document] - start, seq_len)
    row = best_fit(length, seq_len)
    # rows are numbered by their first token, so that a row's tokens lie as near to each other as they can
    lowest = np.full(row.max(initial=-1) + 1, begins[-1])
    np.minimum.at(lowest, row, start)
    row = np.argsort(np.argsort(lowest, kind="stable"))[row]
    order = np.lexsort((start, number == 0, row))
    first = np.concatenate([[0], np.cumsum(np.bincount(row))])
    return Packed(first, start[order], length[order], int(np.count_nonzero(pieces > 1)))


def best_fit(sizes: np.ndarray, capacity: int) -> np.ndarray:
    """The bin of each item by best-fit decreasing, int64 (items,); `sizes` are from 1 to `capacity`.

    Items of one size are placed at once: the bin with the least room takes as many of them as fit before another one
    has less room, so this is what one item after the other would give.
    """
    bins = np.empty(len(sizes), np.int64)
    order = np.argsort(-sizes, kind="stable")
    open_bins: dict[int, np.ndarray] = {}  # by their room
    rooms: list[int] = []  # of them, ascending
    n_bins = 0

    def leave(room: int, some: np.ndarray) -> None:
        if room and len(some):
            if room not in open_bins:
                insort(rooms, room)
            open_bins[room] = np.concatenate([open_bins.get(room, some[:0]), some])

    edges = np.flatnonzero(np.diff(sizes[order], prepend=0, append=0))
    for begin, end in pairwise(edges.tolist()):
        size = int(sizes[order[begin]])
        while begin < end:
            if (index := bisect_left(rooms, size)) < len(rooms):
                room = rooms.pop(index)
                some_bins = open_bins.pop(room)
            else:
                room = capacity
                some_bins = n_bins + np.arange(-(-(end - begin) // (room // size)))
                n_bins += len(some_bins)
            fit = room // size
            count = min(end - begin, fit * len(some_bins))
            used = -(-count // fit)
            bins[order[begin : begin + count]] = np.repeat(some_bins[:used], fit)[:count]
            leave(room, some_bins[used:])
            leave(room - fit * size, some_bins[: used - 1])
            leave(room - (count - fit * (used - 1)) * size, some_bins[used - 1 : used])
            begin += count
    return bins


def concatenated_cuts(lengths: np.ndarray, begin: int, seq_len: int) -> int:
    """How many documents stand in more than one window, if windows of `seq_len` follow each other. `begin`: the tokens
    of their source ahead of them. The first token of a source is no target of any window."""
    ends = begin + np.cumsum(lengths.astype(np.int64))
    starts = np.maximum(ends - lengths, 1)
    return int(np.count_nonzero((starts - 1) // seq_len < (ends - 2) // seq_len))


def document_lengths(home: str, shards: Sequence[tuple[str, int]]) -> np.ndarray:
    """Tokens of the documents of shards (path, tokens), int64; `home`: the folder that paths with `..` are seen from.

    Raises ValueError for an index that is not that of its shard.
    """
    lengths = [np.empty(0, np.int64)]
    for path, tokens in shards:
        index = files.join(home, path.removeprefix("../")).removesuffix(".bin") + ".parquet"
        lengths.append(parquet.read_table(index, ["length"])["length"].to_numpy().astype(np.int64))
        if lengths[-1].sum() != tokens:
            raise ValueError(f"{index} has documents of {lengths[-1].sum()} tokens, its shard has {tokens}")
    return np.concatenate(lengths)


def windows(shards: Sequence[tuple[str, int]]) -> Iterator[tuple[int, list[tuple[str, int]]]]:
    """Runs of shards (path, tokens) that are packed together, each with the tokens of the source ahead of it."""
    begin = 0
    run: list[tuple[str, int]] = []
    for path, tokens in shards:
        if run and sum(count for _, count in run) + tokens > MAX_TOKENS:
            yield begin, run
            begin, run = begin + sum(count for _, count in run), []
        run.append((path, tokens))
    if run:
        yield begin, run


def pack_shards(folder: str, shard: int, shards: Sequence[tuple[str, int]], begin: int, seq_len: int) -> dict:
    """Write the packed rows of shards (path, tokens), `begin` being the tokens of their source ahead of them.

    The record has `entry`, which the training manifest lists, and the numbers of documents and of those that are cut.
    Holds 50 bytes for each document of the shards.
    """
    lengths = document_lengths(folder.rsplit("/", 1)[0], shards)
    packing = packed(lengths, seq_len)
    name = f"rows-{shard:05d}.bin"
    digest = write_rows(files.join(folder, name), packing.first, packing.start + begin, packing.length)
    entry = {"path": name, "rows": packing.rows, "pieces": len(packing.start), "digest": digest}
    return {"entry": entry, "documents": len(lengths), "cut": packing.cut}
