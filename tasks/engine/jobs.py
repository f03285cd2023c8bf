"""Jobs: one shard of one phase of a stage, which can be repeated at any time."""

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
    """The code of a stage: the digest of its modules, and the releases of libraries."""

    modules: tuple[str, ...]
    version: str
    libraries: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Phase:
    """The common part of all jobs of a phase, which is sent to a worker once. `work(folder, number, **common,
    **arguments)` writes files under the stage's folder and returns a record of counts.

    `common`: arguments of all jobs. `temporary`: the files are removed before the stage ends. `log_fields`: for the log
    lines of jobs, in addition to phase and shard.
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
    """One job of a phase, about a kilobyte: its number and its own arguments."""

    number: int
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class JobResult:
    """`record`: the return value of the work. `files`: written files, by name within the stage's folder. `found`:
    whether the job was done before. `cost`: when it was done."""

    record: dict[str, Any]
    files: dict[str, dict[str, Any]]
    found: bool
    cost: JobCost = JobCost()


def run_job(phase: Phase, job: Job) -> JobResult:
    """Do a job unless it is done. It is marked as done when all of its files are in place and its ledger balances.

    Raises RuntimeError on a worker whose code differs from the flow's, LedgerError if documents of its shard are not
    accounted for.
    """
    options.begin_making(phase.options)
    with log_fields.bound(**phase.fields() | {"shard": job.number}):
        return _find_result(phase, job.number) or _run(phase, job)


def done_jobs(phase: Phase, numbers: Sequence[int]) -> list[JobResult | None]:
    """The results of jobs that are marked as done, None for others. Reads sixteen marks at a time."""
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
    """Raise RuntimeError if this process has other code or other releases."""
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
