"""Fields of log lines: which run, recipe, stage, phase and shard a line is of. They hold for a block of code."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

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
