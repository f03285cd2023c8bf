"""Finds or makes stages. Stages are looked up by key, and made, only here."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gristmill.storage import checked_json, files, layout, leftovers
from gristmill.storage.damage import DamagedFileError, RecordedFile
from gristmill.tasks.engine import code_version, remakes
from gristmill.tasks.engine.executors import Executor
from gristmill.tasks.engine.job_costs import PhaseCost
from gristmill.tasks.engine.jobs import Code
from gristmill.tasks.engine.lease import Lease, lease
from gristmill.tasks.engine.phases import PhaseRunner, Progress
from gristmill.tasks.engine.spec import StageSpec

# What makes an unfinished stage: its code and the releases of its libraries.
MAKER = "maker.json"
COST = "cost.json"  # what its jobs took


@dataclass(frozen=True)
class StageResult:
    """A finished stage: its folder and its manifest. `code`: the digest of the code that would make it now, "" if
    unknown. `spec`: its declaration, if it may have to be made again."""

    name: str
    key: str
    folder: str
    manifest: dict[str, Any] = field(repr=False)
    reused: bool
    code: str = field(default="", repr=False)
    spec: StageSpec | None = field(default=None, repr=False, compare=False)

    @property
    def label(self) -> str:
        """`<name>-<key>`, the name of its folder."""
        return f"{self.name}-{self.key}"

    @property
    def contents(self) -> str:
        """The logical digest of its contents: see `gristmill.storage.contents`."""
        return layout.contents(self.manifest)

    @property
    def is_collected(self) -> bool:
        """Whether `gristmill home gc` has removed its files, so that only its manifest is left."""
        return bool(self.manifest.get(layout.COLLECTED))

    @property
    def made_by(self) -> str:
        """The release of Gristmill that made it, if it is not the running one; else ""."""
        release = str(self.manifest["release"])
        return "" if release == code_version.release() else release

    @property
    def of_other_code(self) -> bool:
        """Whether the code that made it differs from what would make it now."""
        return bool(self.code) and self.manifest.get("code") != self.code

    def part(self, shard: int) -> str:
        return layout.part(self.folder, shard)

    @property
    def result(self) -> dict[str, Any]:
        """The result of the stage's body."""
        return self.manifest["result"]

    @property
    def step_counts(self) -> list[dict[str, Any]]:
        """The counts of each step, summed over the shards (`gristmill.storage.ledger.count`); empty for a stage that
        drops nothing."""
        return self.manifest["counts"]["steps"]

    @property
    def costs(self) -> dict[str, PhaseCost] | None:
        """The costs of the jobs of each phase; None for a stage whose files were removed."""
        try:
            record = checked_json.read(files.join(self.folder, COST))
        except FileNotFoundError:
            return None
        return {phase: PhaseCost.from_json(cost) for phase, cost in record["phases"].items()}

    @property
    def cpu_seconds(self) -> float | None:
        """CPU seconds of all jobs; None as for `costs`."""
        costs = self.costs
        return None if costs is None else round(sum(cost.cpu_seconds for cost in costs.values()), 3)

    def file(self, name: str) -> RecordedFile:
        """A file of the stage, with its digest. Reads the list of parts. Raises LookupError."""
        return layout.recorded_file(self.folder, self.manifest, name)

    def records(self, phase: str) -> list[dict[str, Any]]:
        """The records of a phase's jobs, in order. Reads the list of parts."""
        return [part.record for part in layout.parts(self.folder, self.manifest) if part.phase == phase]


class NotFinishedError(LookupError):
    """A stage is missing from the home, or not finished."""


def find(home: str, spec: StageSpec) -> StageResult | None:
    """Return the stage if it is finished in the home. Reads only its manifest, whose size does not grow."""
    folder = spec.folder(home)
    manifest = layout.manifest(folder)
    if manifest is None:
        return None
    return StageResult(spec.name, _key_of(spec, folder), folder, manifest, reused=True, code=spec.code, spec=spec)


def find_or_make(
    home: str,
    spec: StageSpec,
    executor: Executor,
    progress: Callable[[], Any],
    check: Callable[[], None] = lambda: None,
) -> StageResult:
    """Find the stage, or make it. `progress` opens a block with a Progress if the stage is made. `check` is called
    while this function waits or makes the stage, and may raise to end it.

    A stage that was begun and killed resumes: its finished jobs are not repeated. If other code, or other releases of
    its libraries, began it, it starts in a new folder. Stages that it reads and whose files were removed are made again
    first. If another process makes the stage, this function waits. Raises the error of a job, DiskFullError,
    LedgerError if documents are not accounted for, and LeaseLostError if another process has taken over.
    """
    if (result := find(home, spec)) is not None:
        return result
    with files.said_of(spec.folder(home)), progress() as stage_progress:
        while True:
            folder = spec.folder(home)
            with lease(folder, stage_progress.message, check) as owned_lease:
                remakes.forget(home)
                if spec.folder(home) != folder:  # another process has begun it again
                    continue
                if (result := find(home, spec)) is not None:  # made while this process waited
                    return result
                if _may_go_on(spec, folder, stage_progress):
                    _restore_inputs(home, spec, executor, stage_progress, check)
                    return _make(spec, folder, executor, stage_progress, check, owned_lease)
                if spec.at:
                    _empty(spec.at)
                else:
                    remakes.begin_again(home, spec.name, spec.key)


def restore(
    home: str,
    stage: StageResult,
    executor: Executor,
    progress: Callable[[], Any],
    check: Callable[[], None] = lambda: None,
) -> StageResult:
    """Return the stage with its files, which are made again if they were removed. Raises RuntimeError if its new
    contents differ from the recorded ones, and otherwise as `find_or_make`."""
    if not stage.is_collected:
        return stage
    with files.said_of(stage.folder), progress() as stage_progress:
        return _restored(home, stage, executor, stage_progress, check)


def _restored(
    home: str, stage: StageResult, executor: Executor, progress: Progress, check: Callable[[], None]
) -> StageResult:
    spec = stage.spec
    assert spec is not None, "it was found by what it was asked for by"
    with lease(stage.folder, progress.message, check) as owned_lease:
        there = find(home, spec)
        if there is not None and not there.is_collected:  # restored while this process waited
            return there
        progress.message(f"{spec.name}: its files were removed, so it is made again")
        if not _may_go_on(spec, stage.folder, progress):  # left by a removal that was killed, or by other code
            layout.collect(stage.folder)
            mark_begun(stage.folder, {"code": spec.code, "libraries": spec.identity["libraries"]})
        _restore_inputs(home, spec, executor, progress, check)
        result = _make(spec, stage.folder, executor, progress, check, owned_lease)
    if result.contents != stage.contents:
        raise RuntimeError(
            f"{stage.label} was made again, with values different from those before its files were removed: "
            f"run with --remake {spec.name}, so that later stages are also made again"
        )
    return result


def _restore_inputs(
    home: str, spec: StageSpec, executor: Executor, progress: Progress, check: Callable[[], None]
) -> None:
    for stage_input in spec.inputs.values():
        if isinstance(stage_input, StageResult) and stage_input.is_collected:
            _restored(home, stage_input, executor, progress, check)


def start_over(home: str, spec: StageSpec) -> None:
    """Give a finished stage a new folder, so that it is made again. Its old folder stays. An unfinished stage keeps its
    folder."""
    remakes.forget(home)
    folder = spec.folder(home)
    if layout.manifest(folder) is None:
        return
    with lease(folder, lambda line: None):
        remakes.forget(home)
        if spec.folder(home) == folder:
            remakes.begin_again(home, spec.name, spec.key)


def _may_go_on(spec: StageSpec, folder: str, progress: Progress) -> bool:
    """Whether this process may make the stage in this folder: it is not begun, or the same code and releases began it.
    The caller holds the lease."""
    ours = _maker(spec.code, spec.identity["libraries"])
    try:
        begun: dict[str, Any] | None = checked_json.read(files.join(folder, MAKER))
    except FileNotFoundError:
        begun = {} if layout.done_numbers(folder) else None
    except DamagedFileError:
        progress.message(
            f"{folder}/{MAKER} is damaged, so the code that began {spec.name} is unknown: its parts start over"
        )
        return False
    if begun is not None and all(begun.get(name) == ours[name] for name in ("code", "libraries")):
        return True
    if begun is None:
        checked_json.write(files.join(folder, MAKER), ours)
        return True
    theirs = begun.get("release") or "of an unknown release"
    what = "other releases of libraries" if begun.get("code") == ours["code"] else f"other code (gristmill {theirs})"
    if spec.resumes:
        checked_json.write(files.join(folder, MAKER), ours)
        progress.message(f"{spec.name} was begun with {what}: it resumes from its checkpoint")
        return True
    progress.message(f"{spec.name} was begun with {what}: its parts start over")
    return False


def mark_begun(folder: str, manifest: Mapping[str, Any]) -> None:
    """Record, for a stage whose manifest is removed, that the files of its jobs exist, and which code wrote them."""
    theirs = {name: manifest.get(name) for name in ("release", "code", "libraries")}
    checked_json.write(files.join(folder, MAKER), _maker(**theirs))


def _maker(code: Any, libraries: Any, release: Any = None) -> dict[str, Any]:
    """The code and releases that make a stage. Python, Arrow and NumPy do not affect contents, but a stage does not mix
    parts of two of their releases."""
    versions = {"python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    versions |= {name: code_version.releases((name,))[name] for name in ("numpy", "pyarrow")}
    return {"release": release or code_version.release(), "code": code, "libraries": {**versions, **(libraries or {})}}


def _empty(folder: str) -> None:
    """Remove the files of jobs from a user's folder, so that the jobs run again. The caller holds the lease."""
    for name in files.names(folder):
        if name != "lease":
            files.remove(files.join(folder, name))


def _make(
    spec: StageSpec, folder: str, executor: Executor, progress: Progress, check: Callable[[], None], owned_lease: Lease
) -> StageResult:
    code = Code(spec.roots, spec.code, tuple(spec.identity["libraries"].items()))

    def allowed() -> None:
        check()
        owned_lease.check()

    progress.start()
    leftovers.remove_temporary(folder)
    phases = PhaseRunner(folder, code, executor, progress, allowed, owned_lease.note)
    result = spec.body(phases, spec.record, spec.placed())
    progress.drain()
    owned_lease.confirm()
    key = _key_of(spec, folder)
    if not spec.at:  # beside the manifest, which is the same whenever and wherever the stage is made
        costs = {phase: cost.as_json() for phase, cost in phases.costs.items()}
        checked_json.write(files.join(folder, COST), {"phases": costs})
    maker = {"release": code_version.release(), "code": spec.code}
    whole = {**spec.identity, **maker, "key": key, "read": spec.read, "result": result}
    manifest = layout.write_manifest(folder, whole, phases.parts)
    return StageResult(spec.name, key, folder, manifest, reused=False, code=spec.code)


def _key_of(spec: StageSpec, folder: str) -> str:
    """The key in the name of a stage's folder."""
    return spec.key if spec.at else folder.rpartition("-")[2]
