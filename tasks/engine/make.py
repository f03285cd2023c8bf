"""Find or make a stage. There is no other place where a stage is looked up by its key or made."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gristmill.storage import checked_json, files, layout, leftovers, space
from gristmill.storage.damage import RecordedFile
from gristmill.tasks.engine.executors import Executor
from gristmill.tasks.engine.job_costs import PhaseCost
from gristmill.tasks.engine.jobs import Code
from gristmill.tasks.engine.lease import lease
from gristmill.tasks.engine.phases import PhaseRunner
from gristmill.tasks.engine.spec import StageSpec

COST = "cost.json"


@dataclass(frozen=True)
class StageResult:
    """A finished stage: its folder and its manifest."""

    name: str
    key: str
    folder: str
    manifest: dict[str, Any] = field(repr=False)
    reused: bool

    def part(self, shard: int) -> str:
        return layout.part(self.folder, shard)

    @property
    def result(self) -> dict[str, Any]:
        """What the stage's body returned."""
        return self.manifest["result"]

    @property
    def step_counts(self) -> list[dict[str, Any]]:
        """What each step did, summed over the shards (`gristmill.storage.ledger.count`); empty for a stage that drops
        nothing."""
        return self.manifest["counts"]["steps"]

    @property
    def costs(self) -> dict[str, PhaseCost] | None:
        """What the jobs of each phase took where they were done; None for a stage of a version that did not measure
        it."""
        try:
            found = checked_json.read(files.join(self.folder, COST))
        except FileNotFoundError:
            return None
        return {phase: PhaseCost(**cost) for phase, cost in found["phases"].items()} if "phases" in found else None

    @property
    def cpu_seconds(self) -> float | None:
        """What the stage's jobs took in all; None as for `costs`."""
        costs = self.costs
        return None if costs is None else round(sum(cost.cpu_seconds for cost in costs.values()), 3)

    def file(self, name: str) -> RecordedFile:
        """A file that the stage's jobs wrote, with its digest. Reads the list of parts; raises LookupError."""
        return layout.recorded_file(self.folder, self.manifest, name)

    def records(self, phase: str) -> list[dict[str, Any]]:
        """The records of a phase's jobs, in order. Reads the list of parts."""
        return [part.record for part in layout.parts(self.folder, self.manifest) if part.phase == phase]


class NotFinishedError(LookupError):
    """A stage that is looked for in the home is not there, or not finished."""


def find(home: str, spec: StageSpec) -> StageResult | None:
    """The stage, if it is finished in the home. Reads its manifest alone, which is small whatever the stage's size."""
    folder = spec.folder(home)
    manifest = layout.manifest(folder)
    return None if manifest is None else StageResult(spec.name, spec.key, folder, manifest, reused=True)


def find_or_make(
    home: str,
    spec: StageSpec,
    executor: Executor,
    progress: Callable[[], Any],
    check: Callable[[], None] = lambda: None,
) -> StageResult:
    """The stage: as it was found, or made now. `progress` opens a block that gives a Progress, if it is made. `check`
    is called while it is waited for and made, and raises what is to end that.

    A stage that was begun and killed goes on where it was: its finished jobs are not done again. One that another
    process makes is waited for. Raises what a job raises, DiskFullError where there is no space, LedgerError where
    documents are not accounted for, and LeaseLostError where another process has taken over.
    """
    if (found := find(home, spec)) is not None:
        return found
    with space.said_of(spec.folder(home)):
        return _make(home, spec, executor, progress, check)


def _make(
    home: str, spec: StageSpec, executor: Executor, progress: Callable[[], Any], check: Callable[[], None]
) -> StageResult:
    folder = spec.folder(home)
    code = Code(spec.roots, spec.code, tuple(spec.identity["libraries"].items()))
    with progress() as shown, lease(folder, shown.message, check) as held:

        def allowed() -> None:
            check()
            held.check()

        if (found := find(home, spec)) is not None:  # made while this process waited
            return found
        shown.start()
        leftovers.remove_temporary(folder)
        phases = PhaseRunner(folder, code, executor, shown, allowed)
        result = spec.body(phases, spec.record, spec.placed())
        shown.drain()
        held.confirm()
        if not spec.at:  # beside the manifest, which is the same whenever and wherever the stage is made
            costs = {phase: cost.as_json() for phase, cost in phases.costs.items()}
            checked_json.write(files.join(folder, COST), {"phases": costs})
        whole = {**spec.identity, "key": spec.key, "result": result}
        manifest = layout.write_manifest(folder, whole, phases.parts)
    return StageResult(spec.name, spec.key, folder, manifest, reused=False)
