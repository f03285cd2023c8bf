"""The log of runs: as JSON lines, and with one warning instead of many repeated lines of a library."""

import logging
from typing import Self

from gristmill.tasks.engine.log_fields import JsonLines, bound, current

log = logging.getLogger(__name__)

LINE = "%(asctime)s %(levelname)-7s %(message)s"
TIME = "%H:%M:%S"


class OfRun(JsonLines):
    """Adds the field `run` to lines that Prefect logs before the first stage, from the id in its records."""

    def format(self, record: logging.LogRecord) -> str:
        run = getattr(record, "flow_run_id", None)
        if run is None or "run" in current():
            return super().format(record)
        with bound(run=str(run)):
            return super().format(record)


def install(log_format: str) -> None:
    """`json`: write the lines of the console, and warnings, as JSON lines to the standard error. Any other value leaves
    the log unchanged. Call this after the import of Prefect, which sets up the console."""
    if log_format != "json":
        return
    logging.captureWarnings(True)
    lines = logging.StreamHandler()
    lines.setFormatter(OfRun())
    logging.getLogger().handlers[:] = [lines]


class HeldLines(logging.Handler):
    """Keeps the lines of Gristmill's loggers, from level INFO, within a block, in the format of flows. The caller
    decides whether to print `lines`."""

    def __init__(self, log_format: str) -> None:
        super().__init__(logging.INFO)
        self.setFormatter(JsonLines() if log_format == "json" else logging.Formatter(LINE, TIME))
        self.lines: list[str] = []
        self._logger = logging.getLogger("gristmill")

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        self.lines.append(self.format(record))

    def __enter__(self) -> Self:
        self._before = self._logger.level, self._logger.propagate
        self._logger.addHandler(self)
        self._logger.setLevel(logging.INFO)
        self._logger.propagate = False
        return self

    def __exit__(self, *error: object) -> None:
        self._logger.removeHandler(self)
        level, self._logger.propagate = self._before
        self._logger.setLevel(level)


class _Once(logging.Filter):
    """A filter that drops the lines of a logger with a certain beginning, and logs a sentence instead of the first."""

    def __init__(self, begins: str, sentence: str) -> None:
        super().__init__(sentence)
        self.begins, self.sentence, self.said = begins, sentence, False

    def filter(self, record: logging.LogRecord) -> bool:
        if not str(record.msg).startswith(self.begins):
            return record.levelno > logging.DEBUG
        if not self.said:
            log.warning("%s", self.sentence)
        self.said = True
        return False


def say_once(logger: str, begins: str, sentence: str) -> None:
    """Log a warning once in this process instead of all lines of a library's logger with a certain beginning."""
    quieted = logging.getLogger(logger)
    if not any(isinstance(each, _Once) and each.sentence == sentence for each in quieted.filters):
        quieted.addFilter(_Once(begins, sentence))
