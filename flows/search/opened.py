"""The index of a finished recipe, opened shard by shard: no file is read but where a search looks."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from gristmill.flows.curation import curate
from gristmill.flows.machine.context import job_options, lookup
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.reports.lineage import rows_of
from gristmill.flows.stages.evaluation.heldout import Data
from gristmill.flows.stages.mixture import training_data
from gristmill.flows.stages.search_index import search_index
from gristmill.flows.stages.tokenizer import tokenizer_of
from gristmill.storage import files, layout, parquet
from gristmill.storage.damage import damaged, missing
from gristmill.storage.tokens.token_shards import bin_path
from gristmill.storage.tokens.training_manifest import token_dtype
from gristmill.tasks.engine import options
from gristmill.tasks.engine.make import NotFinishedError, StageResult
from gristmill.tasks.search.index_work import DROPPED, PHASE, documents_path, order_path, pieces
from gristmill.tasks.search.occurrences import ShardIndex
from gristmill.tasks.search.pieces import Pieces
from gristmill.tasks.tokens.recorded import SPLIT

_PORTION = 128  # shards whose results wait for those before them: an index of a snapshot has 180,000 files
_PLACE = ["id", "source", "url", "file", "offset", "length", "record_id"]

R = TypeVar("R")


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
class OpenedIndex:
    """The index of a recipe, and the stages that it was made from."""

    recipe: Recipe
    settings: MachineSettings
    data: Data
    stage: StageResult

    @property
    def documents(self) -> int:
        return sum(self.stage.result[split]["documents"] for split in (SPLIT, DROPPED))

    @cached_property
    def pieces(self) -> Pieces:
        return pieces(tokenizer_of(self.data.tokenizer))

    @property
    def shards(self) -> Sequence[int]:
        return range(len(self.data.split.train.sources))

    def each(self, work: Callable[[SearchedShard], R], dropped: bool = True) -> Iterator[R]:
        """What `work` gives for each shard, those of what is trained on first, several at the same time."""
        wanted = [(i, kept) for kept in ((True, False) if dropped else (True,)) for i in self.shards]
        # Python's own number of threads: some more than cores, since a search waits for disks
        with ThreadPoolExecutor() as pool:
            waiting = iter(wanted)
            while portion := list(islice(waiting, _PORTION)):
                yield from pool.map(lambda each: work(self.shard(*each)), portion)

    def shard(self, number: int, kept: bool) -> SearchedShard:
        """A shard's index, mapped into memory."""
        split = SPLIT if kept else DROPPED
        tokens = self.data.tokens.folder if kept else self.stage.folder
        blocks = layout.done_part(self.stage.folder, PHASE, number).record[split]["blocks"]
        count = blocks[-1] if blocks else 0
        dtype = token_dtype(len(self.pieces.each))
        index = ShardIndex(
            _mapped(bin_path(tokens, split, number), dtype, count),
            _mapped(order_path(self.stage.folder, split, number), "<u4", count),
            blocks,
            self.pieces,
        )
        return SearchedShard(number, kept, index, documents_path(tokens, split, number))

    def records(self, number: int, documents: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Where documents of a shard come from, by id."""
        part = layout.part(self.data.split.train.extracted.folder, number)
        return {row["id"]: row for row in rows_of(part, documents, _PLACE)}


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
    return np.asarray(np.memmap(local, dtype, "r"))


def opened(recipe: Recipe, settings: MachineSettings | None = None) -> OpenedIndex | None:
    """The index of a recipe; None where it is not made yet, or is of another state of recipe, files and code. Makes
    nothing."""
    settings = settings or MachineSettings()
    options.configure(job_options(settings))
    context = lookup(settings, recipe.name)
    try:
        *_, passed = curate(context, recipe)
        data = training_data(context, recipe, passed.left)
    except NotFinishedError:
        return None
    stage = context.find(search_index(context, recipe, data))
    return None if stage is None else OpenedIndex(recipe, settings, data, stage)
