"""Fields of log lines: run, recipe, stage, phase and shard. They apply to a block of code."""

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
    """The current fields of log lines: strings and numbers, by name."""
    return _bound.get({})


@contextmanager
def bound(**fields: Any) -> Iterator[None]:
    """Add fields to all lines that are logged within the block."""
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


# The progress of a running job takes the same way to the flow as its log lines.


# Not below the loggers of the log, because these messages are not log lines.
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
    """Reports the progress of a job, at most once a second. Other calls only read the clock."""

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
    """The progress in the fields of a message; None for a log line."""
    return JobProgress(*fields[FIELD]) if FIELD in fields else None
