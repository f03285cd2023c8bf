"""One shard of one phase of a stage, as a job that can be done again at any time, and the CPU time that it takes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psutil

from gristmill.storage import files, layout
from gristmill.tasks.engine import log_fields, options
from gristmill.tasks.engine.code_version import code_version, releases
from gristmill.tasks.engine.options import JobOptions


def cpu_seconds() -> float:
    """Of this process and of all that it started, those that have ended included, since each began.

    A difference of two is that of a job where a process does one job at a time, as Dask's workers do; jobs in threads
    of one process each count what the others take meanwhile.
    """
    here = psutil.Process()
    total = 0.0
    for process in (here, *here.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.Error:  # it ended just now, and its parent counts it
            continue
        total += times.user + times.system
        total += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return total


@dataclass(frozen=True)
class Code:
    """The code that the stage's key was made from: its modules with their version, and releases of libraries."""

    modules: tuple[str, ...]
    version: str
    libraries: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Job:
    """`work(folder, number, **arguments)` writes files under the stage's folder and returns a record of counts.

    `log_fields`: of the lines that it writes, beside those of its place.
    """

    work: Callable[..., dict[str, Any]]
    code: Code
    folder: str
    phase: str
    number: int
    arguments: dict[str, Any] = field(default_factory=dict)
    options: JobOptions = field(default_factory=options.current)
    log_fields: dict[str, Any] = field(default_factory=log_fields.current)


@dataclass(frozen=True)
class JobResult:
    """`record`: what the work returned; `files`: what it wrote, by name within the stage's folder; `found`: whether the
    job had been done before; `cpu_seconds`: what it took when it was done."""

    record: dict[str, Any]
    files: dict[str, dict[str, Any]]
    found: bool
    cpu_seconds: float = 0.0


def run_job(job: Job) -> JobResult:
    """Do a job unless it is done. It is marked done after all its files are in place.

    Raises RuntimeError on a worker whose code is not that of the stage's key.
    """
    options.configure(job.options)
    stage = job.folder.rstrip("/").rpartition("/")[2]
    with log_fields.bound(**job.log_fields | {"stage": stage, "phase": job.phase, "shard": job.number}):
        return _run(job)


def _run(job: Job) -> JobResult:
    if (done := layout.done_record(job.folder, job.phase, job.number)) is not None:
        return JobResult(done["record"], done["files"], found=True, cpu_seconds=done.get("cpu_seconds", 0.0))
    _check_code(job)
    began = cpu_seconds()
    try:
        with files.recording(job.folder) as written:
            record = job.work(job.folder, job.number, **job.arguments)
    except Exception as error:
        error.add_note(f"job {job.number} of phase {job.phase} of {job.folder}")
        raise
    # a guard's worker that is replaced meanwhile ends with what its parent never counts
    took = max(0.0, round(cpu_seconds() - began, 3))
    done = {"record": record, "files": written, "cpu_seconds": took}
    layout.mark_done(job.folder, job.phase, job.number, done)
    return JobResult(record, written, found=False, cpu_seconds=took)


def _check_code(job: Job) -> None:
    here = code_version(job.code.modules)
    if here != job.code.version:
        raise RuntimeError(
            f"{', '.join(job.code.modules)} has version {here} on this worker and {job.code.version} where the flow "
            "runs: install the same code on both"
        )
    given = dict(job.code.libraries)
    if (installed := releases(tuple(given))) != given:
        raise RuntimeError(f"this worker has {installed}, the flow has {given}: install the same releases on both")
