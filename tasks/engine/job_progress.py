"""What a running job reports of how far it is, on the way that its log lines take to the flow."""

import logging
import time
from typing import NamedTuple

from gristmill.tasks.engine import log_fields

# Apart from the loggers of the log, and not below them: these messages are no lines of it.
LOGGER = "gristmill-job-progress"
FIELD = "job_progress"
SECONDS = 1.0  # between two messages of a job

log = logging.getLogger(LOGGER)
log.propagate = False


class JobProgress(NamedTuple):
    """`documents` that a job has read so far, and `read`, bytes of its files as they are stored."""

    documents: int
    read: int


class ProgressReport:
    """Reports one job's progress, at most once a second however often it is called; a call costs a look at the
    clock."""

    def __init__(self) -> None:
        self._next = 0.0

    def send(self, documents: int, read: int) -> None:
        """`documents`, `read`: as `JobProgress` has them."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + SECONDS
            with log_fields.bound(**{FIELD: [documents, read]}):
                log.debug("progress")


def reported(fields: dict) -> JobProgress | None:
    """What the fields of a message report of a job's progress; None for a line of the log."""
    return JobProgress(*fields[FIELD]) if FIELD in fields else None
