"""The log of runs in this process as lines of JSON, which a collector of logs takes apart by fields."""

import logging

from tasks.engine.log_fields import JsonLines, bound, current


class OfRun(JsonLines):
    """What Prefect writes ahead of the first stage has the run too, whose id is with its records."""

    def format(self, record: logging.LogRecord) -> str:
        run = getattr(record, "flow_run_id", None)
        if run is None or "run" in current():
            return super().format(record)
        with bound(run=str(run)):
            return super().format(record)


def install(log_format: str) -> None:
    """`json`: write what would be shown on the console, and warnings, as lines of JSON to the standard error. Anything
    else leaves the log as it is. Prefect has been imported before: that sets the console up."""
    if log_format != "json":
        return
    logging.captureWarnings(True)
    lines = logging.StreamHandler()
    lines.setFormatter(OfRun())
    logging.getLogger().handlers[:] = [lines]
