"""One shard of one phase of a stage, as a job that can be done again at any time."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from storage import stages


@dataclass(frozen=True)
class Job:
    """`work(folder, shard, **arguments)` writes the shard's files under the stage's folder and returns its record."""

    work: Callable[..., dict]
    folder: str
    phase: str
    shard: int
    arguments: dict[str, Any] = field(default_factory=dict)


def do(job: Job) -> tuple[dict, bool]:
    """The job's record, and whether it was found finished. The record is marked done after all files are in place."""
    record = stages.done_record(job.folder, job.phase, job.shard)
    if record is not None:
        return record, True
    try:
        record = job.work(job.folder, job.shard, **job.arguments)
    except Exception as error:
        error.add_note(f"shard {job.shard} of phase {job.phase} of {job.folder}")
        raise
    stages.mark_done(job.folder, job.phase, job.shard, record)
    return record, False
