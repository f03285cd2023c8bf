"""What is looked up in the shards of an index: phrases, the words that follow each other, drawn texts.

A job looks up a portion of the shards. No file is read but where a search looks.
"""

import mmap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from gristmill.storage import files, layout, parquet
from gristmill.storage.damage import RecordedFile, damaged, missing
from gristmill.storage.token_shards import SPLIT, bin_path
from gristmill.storage.training_manifest import token_dtype
from gristmill.tasks.engine import options
from gristmill.tasks.engine.jobs import Code, check_code
from gristmill.tasks.engine.options import JobOptions
from gristmill.tasks.kernels import suffixes
from gristmill.tasks.search.index import DROPPED, PHASE, Pieces, documents_path, order_path, pieces


@dataclass(frozen=True)
class Places:
    """Where a phrase begins in a shard, in the order of the text. `token`: the number of the token with its first byte,
    counted from the shard's first, int64; `offset`: which byte of that token, int64. Shapes (occurrences,)."""

    token: np.ndarray
    offset: np.ndarray

    def __len__(self) -> int:
        return len(self.token)


@dataclass(frozen=True)
class ShardIndex:
    """The tokens of a shard and the order of their suffixes, both mapped into memory; `blocks`: the numbers of the
    tokens with which blocks end."""

    tokens: np.ndarray
    order: np.ndarray
    blocks: Sequence[int]
    pieces: Pieces

    def places(self, phrase: bytes) -> Places:
        """All occurrences of a phrase, also those that overlap. Holds twelve bytes for each, and four for each
        occurrence of its part after the first token."""
        matches = list(self._find(phrase, len(self.tokens)))
        token = np.concatenate([np.empty(0, np.int64), *(tokens for tokens, _ in matches)])
        offset = np.concatenate([np.empty(0, np.int64), *(offsets for _, offsets in matches)])
        order = np.lexsort((offset, token))
        return Places(token[order], offset[order])

    def has(self, phrase: bytes) -> bool:
        """Whether a phrase occurs."""
        return any(len(tokens) for tokens, _ in self._find(phrase, 1))

    def _find(self, phrase: bytes, limit: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(token, offset) of occurrences, by where in the phrase the first token begins: at its start; after the end
        of a token that has more than that; nowhere, if one token has it all. At most `limit` of each."""
        bounds, data, tokens = self.pieces.bounds, self.pieces.data, self.tokens
        phrase_bytes = np.frombuffer(phrase, np.uint8)
        inside = list(self.pieces.within(phrase))
        backwards = self.pieces.backwards
        ends = suffixes.ended(backwards.bounds, backwards.data, phrase_bytes).tolist()
        for block in zip([0, *self.blocks], self.blocks, strict=False):
            for low, high in self._beginning(phrase_bytes, *block):
                whole = self.order[low : min(high, low + limit)].astype(np.int64)
                yield whole, np.zeros(len(whole), np.int64)
            for size in ends:
                for low, high in self._beginning(phrase_bytes[size:], *block):
                    rest = suffixes.preceded(self.order[low:high], tokens, bounds, data, phrase_bytes[:size], limit)
                    token_ids = rest.astype(np.int64) - 1
                    yield token_ids, bounds[tokens[token_ids] + 1] - bounds[tokens[token_ids]] - size
            for token, offset in inside:
                rank = int(self.pieces.ranks[token])
                low, high = suffixes.narrowed(self.order, tokens, self.pieces.ranks, *block, 0, rank, rank + 1)
                same = self.order[low : min(high, low + limit)].astype(np.int64)
                yield same, np.full(len(same), offset)

    def _beginning(self, phrase: np.ndarray, low: int, high: int) -> list[list[int]]:
        """[low, high] of ranges of `order` whose suffixes begin with the phrase."""
        forwards = self.pieces.forwards
        ranges = suffixes.begun(
            self.order, self.tokens, self.pieces.ranks, low, high, forwards.bounds, forwards.data, phrase
        )
        return ranges.tolist()


@dataclass(frozen=True)
class SearchedShard:
    """A shard of an index, of what is trained on or of what was dropped. `documents`: the path of its documents."""

    number: int
    kept: bool
    index: ShardIndex
    documents: str

    @cached_property
    def rows(self) -> pa.Table:
        """A row a document: `id`, `offset` and `length` in tokens, of what was dropped `step` and `rule`."""
        return parquet.read_table(self.documents)

    def documents_of(self, tokens: np.ndarray) -> np.ndarray:
        """The numbers of the documents that have some tokens: int64, of the shape of `tokens`."""
        return np.searchsorted(self.rows["offset"].to_numpy(), tokens, side="right") - 1


@dataclass(frozen=True)
class IndexedShards:
    """Where an index is, and what it is of: the folders of both stages, and the tokenizer's file."""

    index: str
    tokens: str
    tokenizer: RecordedFile

    @property
    def pieces(self) -> Pieces:
        return pieces(self.tokenizer)

    def shard(self, number: int, kept: bool) -> SearchedShard:
        """A shard's index, mapped into memory."""
        split = SPLIT if kept else DROPPED
        tokens = self.tokens if kept else self.index
        blocks = layout.done_part(self.index, PHASE, number).record[split]["blocks"]
        count = blocks[-1] if blocks else 0
        dtype = token_dtype(len(self.pieces.each))
        index = ShardIndex(
            _mapped(bin_path(tokens, split, number), dtype, count),
            _mapped(order_path(self.index, split, number), "<u4", count),
            blocks,
            self.pieces,
        )
        return SearchedShard(number, kept, index, documents_path(tokens, split, number))


def _mapped(path: str, dtype: str, count: int) -> np.ndarray:
    """A file of numbers, mapped into memory; of a store a copy in the user's cache folder. Its digest is not
    compared, which would read it: `gristmill home verify` does. What a damaged one says is looked for within the
    shard's own files. Raises DamagedFileError for another size."""
    if not count:
        return np.empty(0, dtype)
    try:
        local = files.local_copy(path)
        size = files.info(local)["size"]
    except FileNotFoundError:
        raise missing(path) from None
    if size != count * np.dtype(dtype).itemsize:
        raise damaged(path, f"has {size} bytes, and {count * np.dtype(dtype).itemsize} where it was written")
    with open(local, "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    # a search reads single pages: without this the system reads the 128 kB around each
    data.madvise(mmap.MADV_RANDOM)
    return np.frombuffer(data, dtype)


@dataclass(frozen=True)
class Portion:
    """Shards from number `begin` to before `end`, of what is trained on or of what was dropped."""

    kept: bool
    begin: int
    end: int


@dataclass(frozen=True)
class LookUp:
    """A search, as it is sent to workers: `work` is given the shards of a portion. `code`: the code of the process that
    asks, None where it works itself; a worker with another raises RuntimeError."""

    work: Callable[[Iterator[SearchedShard]], Any]
    shards: IndexedShards
    code: Code | None
    options: JobOptions = field(default_factory=options.current)

    def __call__(self, portion: Portion) -> Any:
        options.configure(self.options)
        if self.code is not None:
            check_code(self.code)
        try:
            return self.work(self.shards.shard(number, portion.kept) for number in range(portion.begin, portion.end))
        except IndexError:
            path = order_path(self.shards.index, SPLIT if portion.kept else DROPPED, portion.begin)
            shards = f"one of {portion.end - portion.begin} files from this on"
            raise damaged(path, f"({shards}) has numbers of tokens that there are not") from None


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

    def add(self, later: "Tally", limit: int) -> None:
        """Add the results of later shards, with `limit` documents at most."""
        self.times += later.times
        self.documents += later.documents
        self.rules.update(later.rules)
        self.first += later.first[: limit - len(self.first)]


def tallies(shards: Iterable[SearchedShard], phrases: Sequence[bytes], limit: int) -> list[Tally]:
    """What is found of each phrase, with up to `limit` documents. Holds twelve bytes for each place of a phrase in a
    shard."""
    results = [Tally() for _ in phrases]
    for shard in shards:
        for tally, phrase in zip(results, phrases, strict=True):
            tally.add(_tally(shard, phrase, limit - len(tally.first)), limit)
    return results


def _tally(shard: SearchedShard, phrase: bytes, limit: int) -> Tally:
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
            shard.rows.take(documents[:limit]).to_pylist(), times.tolist(), places.token[first].tolist(), strict=False
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
    """The number of places in each shard at which a text of `size` tokens begins within a document."""
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
