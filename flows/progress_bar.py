"""A progress bar for a person at a terminal."""

import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn


def progress_bar(*more: ProgressColumn) -> Progress:
    """A progress bar on the error stream of a terminal; nothing where there is none. `more`: columns at its end."""
    columns = (TextColumn("  {task.description:32}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, *more, console=Console(file=sys.stderr), transient=True, disable=not sys.stderr.isatty())
