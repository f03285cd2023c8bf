"""One shard of one phase of a stage, as a job that can be done again at any time."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from gristmill.storage import files, layout, ledger
from gristmill.tasks.engine import log_fields, options
from gristmill.tasks.engine.code_version import code_version, releases
from gristmill.tasks.engine.job_costs import JobCost, measured
from gristmill.tasks.engine.options import JobOptions
from gristmill.tasks.engine.own_code import OwnCodeError


@dataclass(frozen=True)
class Code:
    """The code that the stage's key was made from: its modules with their version, and releases of libraries."""

    modules: tuple[str, ...]
    version: str
    libraries: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Phase:
    """What all jobs of a phase share; it is sent to a worker once. `work(folder, number, **common, **arguments)` writes
    files under the stage's folder and returns a record of counts.

    `common`: arguments of all jobs; `temporary`: the files are removed before the stage ends; `log_fields`: of the
    lines that jobs write, beside those of their place.
    """

    work: Callable[..., dict[str, Any]]
    code: Code
    folder: str
    name: str
    common: Mapping[str, Any] = field(default_factory=dict)
    temporary: bool = False
    options: JobOptions = field(default_factory=options.current)
    log_fields: dict[str, Any] = field(default_factory=log_fields.current)

    def fields(self) -> dict[str, Any]:
        return self.log_fields | {"stage": self.folder.rstrip("/").rpartition("/")[2], "phase": self.name}


@dataclass(frozen=True)
class Job:
    """One job of a phase, a kilobyte or so: its number, and the arguments that are its own."""

    number: int
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class JobResult:
    """`record`: what the work returned; `files`: what it wrote, by name within the stage's folder; `found`: whether the
    job had been done before; `cost`: what it took when it was done."""

    record: dict[str, Any]
    files: dict[str, dict[str, Any]]
    found: bool
    cost: JobCost = JobCost()


def run_job(phase: Phase, job: Job) -> JobResult:
    """Do a job unless it is done. It is marked done after all its files are in place, and balance.

    Raises RuntimeError on a worker whose code is not that of the stage's key; LedgerError where documents of its shard
    are not accounted for.
    """
    options.begin_making(phase.options)
    with log_fields.bound(**phase.fields() | {"shard": job.number}):
        return _find_result(phase, job.number) or _run(phase, job)


def done_jobs(phase: Phase, numbers: Sequence[int]) -> list[JobResult | None]:
    """The results of jobs that are marked done, None for one that is not. Reads sixteen marks at a time."""
    options.configure(phase.options)
    with ThreadPoolExecutor(16) as pool:
        return list(pool.map(partial(_find_result, phase), numbers))


def _find_result(phase: Phase, number: int) -> JobResult | None:
    if (done := layout.done_record(phase.folder, phase.name, number)) is None:
        return None
    return JobResult(done["record"], done["files"], found=True, cost=JobCost(**done.get("cost", {})))


# (folder, phase) of the jobs that this process has done
_begun: set[tuple[str, str]] = set()


def _run(phase: Phase, job: Job) -> JobResult:
    check_code(phase.code)
    first = (phase.folder, phase.name) not in _begun
    _begun.add((phase.folder, phase.name))
    try:
        with measured() as measuring, files.recording(phase.folder) as outputs:
            record = phase.work(phase.folder, job.number, **phase.common, **job.arguments)
        if layout.counts_documents(record) and not phase.temporary:
            ledger.check_shard(phase.folder, job.number, record)
    except OwnCodeError:  # which names what its reader can change
        raise
    except Exception as error:
        error.add_note(f"job {job.number} of phase {phase.name} of {phase.folder}")
        raise
    cost = replace(measuring.cost, first=first, writes=len(outputs) + 1)
    done = {"record": record, "files": outputs, "cost": asdict(cost)}
    layout.mark_done(phase.folder, phase.name, job.number, done)
    return JobResult(record, outputs, found=False, cost=cost)


def check_code(code: Code) -> None:
    """Raises RuntimeError where this process has other code, or other releases."""
    here = code_version(code.modules)
    if here != code.version:
        raise RuntimeError(
            f"{', '.join(code.modules)} has version {here} on this worker and {code.version} on the machine "
            "of the flow: install the same code on both"
        )
    expected = dict(code.libraries)
    if (installed := releases(tuple(expected))) != expected:
        raise RuntimeError(
            f"this worker has {installed}, but the flow has {expected}: install the same releases on both"
        )
