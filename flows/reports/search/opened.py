"""The index of a finished recipe, and searches in all of its shards."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from os import cpu_count
from queue import SimpleQueue
from typing import Any, TypeVar

from gristmill.flows.curation import Outputs
from gristmill.flows.machine.context import job_options, workers
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.reports.lineage import ORIGIN, rows_of
from gristmill.flows.reports.recorded import open_run
from gristmill.flows.stages.indexes import SearchedTexts
from gristmill.flows.stages.tokens import tokenizer_of
from gristmill.storage import layout
from gristmill.storage.token_shards import SPLIT
from gristmill.tasks.engine import options
from gristmill.tasks.engine.code_version import code_version
from gristmill.tasks.engine.executors import Executor, Threads
from gristmill.tasks.engine.jobs import Code
from gristmill.tasks.engine.make import NotFinishedError, StageResult
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.search import look_ups
from gristmill.tasks.search.index import DROPPED, Pieces
from gristmill.tasks.search.look_ups import IndexedShards, LookUp, Portion, SearchedShard

# Look-ups, of a phrase in a shard, that are made in threads of this process: five seconds of a core where files are in
# memory (.28 ms each, in shards of 12 million tokens). More are jobs of the machine's executor, which takes seconds to
# start.
FEW = 20_000
THREADS = min(32, (cpu_count() or 1) + 4)  # some more than cores, since a search waits for disks
_PORTION = 64  # shards of a job: an index of a snapshot has 180,000 files

R = TypeVar("R")


@dataclass(frozen=True)
class PhraseIndex:
    """The index of a recipe, and the stages that it was made from. `few`: how many look-ups are made here."""

    recipe: Recipe
    settings: MachineSettings
    texts: SearchedTexts
    stage: StageResult
    few: int = FEW

    @property
    def documents(self) -> int:
        return sum(self.stage.result[split]["documents"] for split in (SPLIT, DROPPED))

    @cached_property
    def places(self) -> IndexedShards:
        return IndexedShards(self.stage.folder, self.texts.tokens.folder, tokenizer_of(self.texts.tokenizer))

    @property
    def pieces(self) -> Pieces:
        return self.places.pieces

    @property
    def shards(self) -> Sequence[int]:
        return range(len(self.texts.documents.sources))

    def workers(self, phrases: int) -> AbstractContextManager[Executor]:
        """Where so many phrases are looked up in each shard: threads of this process, or the machine's executor."""
        return executor(self.settings, 2 * phrases * len(self.shards) <= self.few)

    def each(
        self, workers: Executor, work: Callable[[Iterator[SearchedShard]], R], dropped: bool = True
    ) -> Iterator[tuple[bool, R]]:
        """What `work` gives for portions of shards in their order, of what is trained on first: whether it is of that,
        and the result. `work` is a function of a module, or a `partial` of one."""
        splits, ranges = (True, False) if dropped else (True,), portions_of(self.shards)
        portions = [Portion(kept, one.start, one.stop) for kept in splits for one in ranges]
        search = LookUp(work, self.places, code_sent(workers, look_ups.__name__))
        for portion, result in zip(portions, in_order(workers.map(search, portions)), strict=True):
            yield portion.kept, result

    def records(self, number: int, documents: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Where documents of a shard come from, by id."""
        part = layout.part(self.texts.documents.extracted.folder, number)
        return {row["id"]: row for row in rows_of(part, documents, ORIGIN)}


def in_order(results: Iterable[tuple[int, R]]) -> Iterator[R]:
    """The results of jobs in the order of the jobs' numbers, which count from 0. Holds those that came too early."""
    early: dict[int, R] = {}
    following = 0
    for number, result in results:
        early[number] = result
        while following in early:
            yield early.pop(following)
            following += 1


def executor(settings: MachineSettings, here: bool) -> AbstractContextManager[Executor]:
    """Threads of this process, or the machine's executor."""
    return nullcontext(Threads(THREADS, SimpleQueue())) if here else workers(settings)


def portions_of(shards: Sequence[int]) -> list[range]:
    """The shards of each job."""
    size = max(1, min(_PORTION, -(-len(shards) // THREADS)))
    return [range(begin, min(begin + size, len(shards))) for begin in range(0, len(shards), size)]


def code_sent(workers: Executor, module: str) -> Code | None:
    """What a job of a module says of its code: None to threads of this process."""
    return None if isinstance(workers, Threads) else Code((module,), code_version((module,)))


def opened(recipe: Recipe, settings: MachineSettings | None = None) -> PhraseIndex | None:
    """The index of a recipe; None where it is not made yet, or is of another state of recipe, files and code. Makes
    nothing."""
    settings = settings or MachineSettings()
    outputs, stage = index_stage(recipe, settings, lambda outputs: outputs.search_index_spec)
    return None if stage is None else PhraseIndex(outputs.recipe, settings, outputs.searched, stage)


def index_stage(
    recipe: Recipe, settings: MachineSettings, spec: Callable[[Outputs], StageSpec]
) -> tuple[Outputs, StageResult | None]:
    """The recorded run of a recipe, and the stage of one of its indexes; None if it is not finished."""
    options.configure(job_options(settings))
    outputs = Outputs(*open_run(settings, recipe))
    try:
        return outputs, outputs.context.find(spec(outputs))
    except NotFinishedError:
        return outputs, None
