"""The shards of an index: no file is read but where a search looks."""

import mmap
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from gristmill.storage import files, layout, parquet
from gristmill.storage.damage import RecordedFile, damaged, missing
from gristmill.storage.tokens.token_shards import SPLIT, bin_path
from gristmill.storage.tokens.training_manifest import token_dtype
from gristmill.tasks.search.index import DROPPED, PHASE, documents_path, order_path, pieces
from gristmill.tasks.search.occurrences import ShardIndex
from gristmill.tasks.search.pieces import Pieces


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
