"""What a stage is, before it is made and after, and what all stages of one run share.

Nothing here starts anything: how a stage is made, or only looked up, is the context's `build`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flows.machine import MachineSettings
from storage import layout
from storage.layout import Stage
from tasks.engine.code_version import code_version
from tasks.engine.executors import Executor
from tasks.engine.jobs import Job, do

if TYPE_CHECKING:
    from flows.prefect_runner import ProgressReporter


@dataclass(frozen=True)
class StageResult:
    """A finished stage: where it lies and what its manifest says."""

    stage: Stage
    folder: str
    manifest: dict = field(repr=False)
    reused: bool

    @property
    def name(self) -> str:
        return self.stage.name

    @property
    def key(self) -> str:
        return self.stage.key

    def part(self, shard: int) -> str:
        return layout.part(self.folder, shard)


class PhaseRunner:
    """What a stage's body works with: its folder, and `map` for the shards of one of its phases."""

    def __init__(self, folder: str, code: Mapping[str, str], executor: Executor, progress: "ProgressReporter"):
        self.folder = folder
        self._code = code
        self._executor = executor
        self._progress = progress

    def map(self, phase: str, work: Callable[..., dict], arguments: dict[int, dict[str, Any]]) -> dict[int, dict]:
        """Run `work(folder, shard, **arguments[shard])` for every shard not yet done; records by shard, in order."""
        code = self._code[work.__module__]
        jobs = [Job(work, code, self.folder, phase, shard, given) for shard, given in arguments.items()]
        records: dict[int, dict] = {}
        self._progress.phase(phase, len(jobs))
        for index, (record, found) in self._executor.map(do, jobs):
            records[jobs[index].shard] = record
            self._progress.advance(found)
        self._progress.drain()
        return dict(sorted(records.items()))

    def once(self, phase: str, work: Callable[..., dict], arguments: dict[str, Any]) -> dict:
        """A phase that is one job."""
        return self.map(phase, work, {0: arguments})[0]

    def say(self, line: str) -> None:
        """A line of a child process, for the run's log."""
        self._progress.say(line)


@dataclass(frozen=True)
class StageSpec:
    """A stage to be made: `body` fills the folder through the phases and returns what the manifest records."""

    stage: Stage
    body: Callable[[PhaseRunner], dict]


@dataclass
class RunContext:
    """`build` turns a stage to be made into a finished one; `made` holds what a flow has already returned in this
    run, so that a later flow need not ask again."""

    settings: MachineSettings
    build: Callable[[StageSpec], StageResult]
    made: dict[tuple[str, str], Any] = field(default_factory=dict)


def stage(
    name: str, works: tuple[Callable[..., Any] | str, ...], settings: dict[str, Any], inputs: dict[str, str]
) -> Stage:
    """A stage whose code is that of all its work functions, or modules: a phase that maps another is refused."""
    modules = [work if isinstance(work, str) else work.__module__ for work in works]
    return Stage(name, {module: code_version(module) for module in modules}, settings, inputs)


def step_counts(built: StageResult) -> list[dict]:
    """What each step of a stage did, summed over its shards; empty for a stage that drops nothing."""
    return summed(shard.get("steps", []) for shard in built.manifest.get("shards", []))


def summed(shards: Iterable[list[dict]]) -> list[dict]:
    """The counts of steps (`storage.ledger.count`) over shards, in the order of the steps."""
    totals: dict[str, dict] = {}
    for steps in shards:
        for step in steps:
            tallies = {name: {} for name in ("drops", "edits") if name in step}
            total = totals.setdefault(step["step"], {**step, **tallies, **dict.fromkeys(_SUMMED, 0)})
            for name in _SUMMED:
                total[name] = None if step[name] is None else total[name] + step[name]
            for tally in tallies:
                for rule, count in step[tally].items():
                    total[tally][rule] = total[tally].get(rule, 0) + count
    return list(totals.values())


def told(step: dict) -> tuple[str, str]:
    """A step's name and why most documents went; if it cut into texts, also by which rules most spans went."""
    if "edits" in step:
        return f"{step['step']}, cuts", top_reasons(step["edits"] | step["drops"])
    return step["step"], top_reasons(step["drops"])


_SUMMED = ("rows_in", "rows_out", "characters_in", "characters_out")


def top_reasons(drops: dict[str, int], most: int = 3) -> str:
    ranked = sorted(drops.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{rule} {count:,}" for rule, count in ranked[:most])
