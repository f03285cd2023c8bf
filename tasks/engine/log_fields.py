"""Fields of log lines: which run, recipe, stage, phase and shard a line is of. They hold for a block of code."""

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, NamedTuple

_bound: ContextVar[dict[str, Any]] = ContextVar("log_fields")


def current() -> dict[str, Any]:
    """The fields of lines that are written here and now: strings and numbers by name."""
    return _bound.get({})


@contextmanager
def bound(**fields: Any) -> Iterator[None]:
    """Lines that are written within the block have these fields too."""
    token = _bound.set(current() | fields)
    try:
        yield
    finally:
        _bound.reset(token)


def message(record: logging.LogRecord) -> tuple[int, str, dict[str, Any]]:
    """Level, line and fields of a record, for a process that has the run's log."""
    return record.levelno, f"{record.name}: {record.getMessage()}", current()


class JsonLines(logging.Formatter):
    """Each record as a line of JSON: `time` (UTC, ISO 8601), `level`, `logger`, the fields, `message`, and `error`, the
    traceback, if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            **current(),
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


# What a running job reports of how far it is, on the way that its log lines take to the flow.


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
            with bound(**{FIELD: [documents, read]}):
                log.debug("progress")


def reported(fields: dict) -> JobProgress | None:
    """What the fields of a message report of a job's progress; None for a line of the log."""
    return JobProgress(*fields[FIELD]) if FIELD in fields else None
