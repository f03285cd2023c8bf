"""The plan of a mixture: shares of the sources, phases, and the training manifest; and packed rows of whole documents.

Rows are packed by best fit (Ding et al. 2024, arXiv 2404.10830).
"""

import logging
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import orjson

from gristmill.storage import checked_json, files, parquet
from gristmill.storage.damage import RecordedFile
from gristmill.storage.training_manifest import token_dtype, write_rows
from gristmill.tasks.tokens.mixture import Mixture
from gristmill.tasks.tokens.strategies import Stretch, stretches, total

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
    """Consecutive documents, packed into rows of at most `seq_len` tokens; `lengths`: their tokens,
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
    # rows are numbered by their first token, so that a row's tokens are as close together as possible
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
    """How many documents are in more than one window, if windows of `seq_len` follow each other. `begin`: the tokens of
    their source before them. The first token of a source is not a target of any window."""
    ends = begin + np.cumsum(lengths.astype(np.int64))
    starts = np.maximum(ends - lengths, 1)
    return int(np.count_nonzero((starts - 1) // seq_len < (ends - 2) // seq_len))


def document_lengths(home: str, shards: Sequence[tuple[str, int]]) -> np.ndarray:
    """Tokens of the documents of shards (path, tokens), int64; `home`: the folder that paths with `..` are seen from.

    Raises ValueError for an index of another shard.
    """
    lengths = [np.empty(0, np.int64)]
    for path, tokens in shards:
        index = files.join(home, path.removeprefix("../")).removesuffix(".bin") + ".parquet"
        lengths.append(parquet.read_table(index, ["length"])["length"].to_numpy().astype(np.int64))
        if lengths[-1].sum() != tokens:
            raise ValueError(f"{index} has documents of {lengths[-1].sum()} tokens, its shard has {tokens}")
    return np.concatenate(lengths)


def windows(shards: Sequence[tuple[str, int]]) -> Iterator[tuple[int, list[tuple[str, int]]]]:
    """Runs of shards (path, tokens) that are packed together, each with the tokens of the source before it."""
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
    """Write the packed rows of shards (path, tokens), `begin` being the tokens of their source before them.

    The record has `entry`, which the training manifest lists, and the numbers of documents and of those that are cut.
    Holds 50 bytes for each document of the shards.
    """
    lengths = document_lengths(folder.rsplit("/", 1)[0], shards)
    packing = packed(lengths, seq_len)
    name = f"rows-{shard:05d}.bin"
    digest = write_rows(files.join(folder, name), packing.first, packing.start + begin, packing.length)
    entry = {"path": name, "rows": packing.rows, "pieces": len(packing.start), "digest": digest}
    return {"entry": entry, "documents": len(lengths), "cut": packing.cut}


log = logging.getLogger(__name__)

# Up to this many epochs repeated tokens are worth nearly as much as new ones (Muennighoff et al. 2023)
MAX_EPOCHS = 4


def shares(weights: dict[str, float], tokens: dict[str, int], budget: int, max_epochs: float) -> dict[str, float]:
    """Fraction of `budget` tokens that each source gives; sums to one.

    Raises ValueError when all sources, repeated `max_epochs` times, do not fill the budget.
    """
    having = {name: tokens[name] for name in weights}
    [stretch] = stretches(Mixture(weights=weights, max_epochs=max_epochs), having, budget)
    return stretch.shares


def plan_mixture(folder: str, shard: int, listed: str, **arguments: Any) -> dict:
    """`write_mixture` of the shards that the file `listed` has: `tokens`, `heldout`, `rows`, as that is given them."""
    return write_mixture(folder, shard, **files.read_json(listed), **arguments)


def write_mixture(
    folder: str, shard: int, tokens: dict[str, list[dict]], heldout: dict[str, list[dict]], tokenizer: RecordedFile,
    token_bytes: RecordedFile, end_of_text: int, budget: int, settings: Mixture,
    rows: dict[str, list[dict]] | None = None, row_length: int | None = None, digests: dict[str, str] | None = None,
) -> dict:  # fmt: skip
    """Write `mixture.json`: what training reads, all paths relative to its folder.

    `tokens` and `heldout` give the shards (`path`, `tokens`, `digest`) by source, `budget` the tokens of the whole run;
    `rows` the packed rows (`path`, `rows`, `pieces`, `digest`) of `row_length` tokens, where documents are packed;
    `digests` has the digest of the documents of each set of `heldout`, where they are fixed: then it is called
    `KIND/NAME`.
    """
    if empty := sorted(name for name, parts in tokens.items() if not parts):
        raise ValueError(f"the mixture names {', '.join(empty)}, but these have no documents left to train on")
    totals = {name: sum(s["tokens"] for s in parts) for name, parts in tokens.items()}
    plan = stretches(settings, totals, budget)
    mean_share = mean_shares(plan, budget)
    for name, share in mean_share.items():
        if share * budget > MAX_EPOCHS * totals[name]:
            log.warning(
                "%s is read %.1f times: repeated more than %d times, tokens are worth less and less (arXiv 2305.16264)",
                name,
                share * budget / totals[name],
                MAX_EPOCHS,
            )
    counts = orjson.loads(token_bytes.read())
    mixture = {
        "vocab_size": len(counts),
        "dtype": token_dtype(len(counts)),
        "tokenizer": {"path": tokenizer.path, "digest": tokenizer.digest},
        "end_of_text": end_of_text,
        "token_bytes": counts,
        "sources": [
            {
                "name": name,
                "share": share,
                "tokens": totals[name],
                "epochs": share * budget / totals[name],
                "shards": tokens[name],
            }
            | ({"rows": rows[name]} if rows else {})
            for name, share in mean_share.items()
        ],
        "heldout": [
            _set(name, parts, (digests or {}).get(name, "")) for name, parts in sorted(heldout.items()) if parts
        ],
    }
    if rows:
        mixture["row_length"] = row_length
    if settings.phases:
        mixture["phases"] = _phases(plan, list(mean_share))
    if not mixture["heldout"]:
        raise ValueError(
            f"no document was held out: raise mixture.heldout_fraction ({settings.heldout_fraction}) "
            f"or mixture.heldout_documents ({settings.heldout_documents})"
        )
    checked_json.write(files.join(folder, "mixture.json"), mixture)
    return {"sources": {s["name"]: {k: s[k] for k in ("share", "tokens", "epochs")} for s in mixture["sources"]}}


def _set(name: str, shards: list[dict], digest: str) -> dict:
    if not digest:
        return {"name": name, "shards": shards}
    kind, _, own = name.partition("/")
    return {"name": own, "kind": kind, "digest": digest, "shards": shards}


def mean_shares(plan: Sequence[Stretch], budget: int) -> dict[str, float]:
    """The shares of the whole training, by group; they sum to one."""
    if len(plan) == 1:
        return plan[0].shares
    names = sorted({name for stretch in plan for name in stretch.shares})
    return {name: total(s.shares.get(name, 0.0) * s.tokens for s in plan) / budget for name in names}


def _phases(plan: Sequence[Stretch], names: Sequence[str]) -> list[dict]:
    """`first`: tokens of training before the stretch; `shares`: in the order of the sources."""
    phases, first = [], 0.0
    for stretch in plan:
        phases.append({"first": round(first), "shares": [stretch.shares.get(name, 0.0) for name in names]})
        first += stretch.tokens
    return phases
