"""One shard of one phase of a stage, as a job that can be done again at any time."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from storage import layout
from storage.remote import retry
from tasks.engine.code_version import code_version

_version = cache(code_version)


@dataclass(frozen=True)
class Job:
    """`work(folder, shard, **arguments)` writes the shard's files under the stage's folder and returns its record.

    `code` is the version of the work's code that the stage's key was made from. `transfer`: how remote bytes are
    fetched, on the worker as in the process that made the job.
    """

    work: Callable[..., dict]
    code: str
    folder: str
    phase: str
    shard: int
    arguments: dict[str, Any] = field(default_factory=dict)
    remote_io: retry.RemoteIOConfig = field(default_factory=retry.configured)


def do(job: Job) -> tuple[dict, bool]:
    """The job's record, and whether it was found finished. The record is marked done after all files are in place.

    Raises RuntimeError on a worker whose code is not that of the stage's key.
    """
    retry.configure(job.remote_io)
    record = layout.done_record(job.folder, job.phase, job.shard)
    if record is not None:
        return record, True
    here = _version(job.work.__module__)
    if here != job.code:
        raise RuntimeError(
            f"{job.work.__module__} has version {here} on this worker and {job.code} where the flow runs: "
            "install the same gristmill, and the same libraries, on both"
        )
    try:
        record = job.work(job.folder, job.shard, **job.arguments)
    except Exception as error:
        error.add_note(f"shard {job.shard} of phase {job.phase} of {job.folder}")
        raise
    layout.mark_done(job.folder, job.phase, job.shard, record)
    return record, False
