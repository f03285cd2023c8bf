"""The shards of an index: no file is read but where a search looks."""

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from gristmill.storage import files, layout, parquet
from gristmill.storage.damage import RecordedFile, damaged, missing
from gristmill.storage.token_shards import SPLIT, bin_path
from gristmill.storage.training_manifest import token_dtype
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
        occurrence of its part behind the first token."""
        matches = list(self._find(phrase, len(self.tokens)))
        token = np.concatenate([np.empty(0, np.int64), *(tokens for tokens, _ in matches)])
        offset = np.concatenate([np.empty(0, np.int64), *(offsets for _, offsets in matches)])
        order = np.lexsort((offset, token))
        return Places(token[order], offset[order])

    def has(self, phrase: bytes) -> bool:
        """Whether a phrase occurs."""
        return any(len(tokens) for tokens, _ in self._find(phrase, 1))

    def _find(self, phrase: bytes, most: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(token, offset) of occurrences, by where in the phrase the first token begins: at its start; behind the end
        of a token that holds more than that; nowhere, where one token has it all. At most `most` of each."""
        bounds, data, tokens = self.pieces.bounds, self.pieces.data, self.tokens
        phrase_bytes = np.frombuffer(phrase, np.uint8)
        inside = list(self.pieces.within(phrase))
        backwards = self.pieces.backwards
        ends = suffixes.ended(backwards.bounds, backwards.data, phrase_bytes).tolist()
        for block in zip([0, *self.blocks], self.blocks, strict=False):
            for low, high in self._beginning(phrase_bytes, *block):
                whole = self.order[low : min(high, low + most)].astype(np.int64)
                yield whole, np.zeros(len(whole), np.int64)
            for size in ends:
                for low, high in self._beginning(phrase_bytes[size:], *block):
                    rest = suffixes.preceded(self.order[low:high], tokens, bounds, data, phrase_bytes[:size], most)
                    token_ids = rest.astype(np.int64) - 1
                    yield token_ids, bounds[tokens[token_ids] + 1] - bounds[tokens[token_ids]] - size
            for token, offset in inside:
                rank = int(self.pieces.ranks[token])
                low, high = suffixes.narrowed(self.order, tokens, self.pieces.ranks, *block, 0, rank, rank + 1)
                same = self.order[low : min(high, low + most)].astype(np.int64)
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
    """A file of so many numbers, mapped into memory; of a store a copy in the user's cache folder. Its digest is not
    compared, which would read it: `gristmill verify` does. Raises DamagedFileError for another size."""
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
