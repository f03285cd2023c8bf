"""What is looked up in shards, a job for a portion of them: phrases, the words that follow each other, drawn texts."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gristmill.tasks.engine import options
from gristmill.tasks.engine.jobs import Code, check_code
from gristmill.tasks.engine.options import JobOptions
from gristmill.tasks.search.shards import IndexedShards, SearchedShard


@dataclass(frozen=True)
class Portion:
    """Shards from number `begin` to before `end`, of what is trained on or of what was dropped."""

    kept: bool
    begin: int
    end: int


@dataclass(frozen=True)
class LookUp:
    """A search, as it is sent to workers: `work` is given the shards of a portion. `code`: that of the process that
    asks, None where it works itself; a worker with another raises RuntimeError."""

    work: Callable[[Iterator[SearchedShard]], Any]
    shards: IndexedShards
    code: Code | None
    options: JobOptions = field(default_factory=options.current)

    def __call__(self, portion: Portion) -> Any:
        options.configure(self.options)
        if self.code is not None:
            check_code(self.code)
        return self.work(self.shards.shard(number, portion.kept) for number in range(portion.begin, portion.end))


@dataclass(frozen=True)
class Hit:
    """A document with a phrase: its shard, its row there, how often it has the phrase, and the number of the token with
    the first byte of the first place."""

    shard: int
    kept: bool
    row: dict[str, Any]
    times: int
    token: int


@dataclass
class Tally:
    """`times`: how often a phrase is there; `documents`: in how many; `rules`: how many of them each `step.rule`
    dropped; `first`: some of them, the first of the corpus."""

    times: int = 0
    documents: int = 0
    rules: Counter[str] = field(default_factory=Counter)
    first: list[Hit] = field(default_factory=list)

    def add(self, later: "Tally", most: int) -> None:
        """Add what was found in shards behind those of this one, with `most` documents at most."""
        self.times += later.times
        self.documents += later.documents
        self.rules.update(later.rules)
        self.first += later.first[: most - len(self.first)]


def tallies(shards: Iterable[SearchedShard], phrases: Sequence[bytes], most: int) -> list[Tally]:
    """What is found of each phrase, with up to `most` documents. Holds twelve bytes for each place of a phrase in a
    shard."""
    results = [Tally() for _ in phrases]
    for shard in shards:
        for tally, phrase in zip(results, phrases, strict=True):
            tally.add(_tally(shard, phrase, most - len(tally.first)), most)
    return results


def _tally(shard: SearchedShard, phrase: bytes, most: int) -> Tally:
    places = shard.index.places(phrase)
    if not len(places):
        return Tally()
    documents, first, times = np.unique(shard.documents_of(places.token), return_index=True, return_counts=True)
    rules: Counter[str] = Counter()
    if not shard.kept:
        rows = shard.rows.select(["step", "rule"]).take(documents).to_pylist()
        rules.update(f"{row['step']}.{row['rule']}".strip(".") or "no ledger" for row in rows)
    hits = [
        Hit(shard.number, shard.kept, row, count, token)
        for row, count, token in zip(
            shard.rows.take(documents[:most]).to_pylist(), times.tolist(), places.token[first].tolist(), strict=False
        )
    ]
    return Tally(len(places), len(documents), rules, hits)


def reached(shards: Iterable[SearchedShard], data: bytes, begins: Sequence[int], ends: Sequence[int]) -> np.ndarray:
    """The longest of what `longest_matches` gives for each shard."""
    longest = np.zeros(len(begins), np.int64)
    for shard in shards:
        longest = np.maximum(longest, longest_matches(shard.index.has, data, begins, ends))
    return longest


def longest_matches(
    has: Callable[[bytes], bool], data: bytes, begins: Sequence[int], ends: Sequence[int]
) -> np.ndarray:
    """For each word the number of the first that no match has which begins with it, int64 (words,): the word's own
    where it is in no document. `has`: whether a shard has some bytes; `begins`, `ends`: of words in `data`."""
    match_ends, end = np.empty(len(begins), np.int64), 0
    for first, begin in enumerate(begins):
        end = max(end, first)
        while end < len(begins) and has(data[begin : ends[end]]):
            end += 1
        match_ends[first] = end
    return match_ends


def rooms(shards: Iterable[SearchedShard], size: int) -> list[int]:
    """Of each shard in how many places a text of `size` tokens begins within a document."""
    return [int(np.maximum(_lengths(shard) - size, 0).sum()) for shard in shards]


def texts(shards: Iterable[SearchedShard], wanted: Mapping[int, tuple[int, int]], size: int) -> list[np.ndarray]:
    """Drawn texts of each shard, token ids (texts, size): int64. `wanted`: by the number of a shard that any are drawn
    from how many, and by which seed."""
    arrays = []
    for shard in shards:
        count, seed = wanted.get(shard.number, (0, 0))
        if not count:
            continue
        own = np.random.default_rng(seed)
        firsts = drawn(shard.rows["offset"].to_numpy(), _lengths(shard), own, count, size)
        arrays.append(shard.index.tokens[firsts[:, None] + np.arange(size)].astype(np.int64))
    return arrays


def drawn(begins: np.ndarray, lengths: np.ndarray, draw: np.random.Generator, count: int, size: int) -> np.ndarray:
    """The first tokens of `count` texts of `size` tokens, each within a document, evenly from all places: int64.
    `begins`, `lengths`: of the documents, in tokens."""
    room = np.maximum(lengths - size, 0)  # the last token ends the document
    ends = np.cumsum(room)
    positions = np.sort(draw.integers(ends[-1], size=count))
    document = np.searchsorted(ends, positions, side="right")
    return begins[document] + positions - (ends[document] - room[document])


def copies(shards: Iterable[SearchedShard], phrases: Sequence[bytes]) -> np.ndarray:
    """How often each phrase is there: int64 (phrases,)."""
    counts = np.zeros(len(phrases), np.int64)
    for shard in shards:
        counts += [len(shard.index.places(phrase)) for phrase in phrases]
    return counts


def _lengths(shard: SearchedShard) -> np.ndarray:
    return shard.rows["length"].to_numpy().astype(np.int64)
