"""The command line, `gristmill COMMAND`.

A command imports what it needs when it runs: the flows alone, with Prefect, take seconds. Reports give data, which the
modules `render_*` write for a person.
"""

import sys

from flows.cli.app import app

# a module adds its commands to the application, in this order
from flows.cli import starting, running, exporting, looking, judging  # noqa: F401, I001  # isort: skip

__all__ = ["app", "main"]


def main() -> None:
    """The entry point: an error is one line, and the log above has the rest."""
    from rich.console import Console
    from rich.markup import escape

    try:
        app()
    except (OSError, ValueError, LookupError, RuntimeError) as error:
        notes = "".join(f"\n  ({note})" for note in getattr(error, "__notes__", ()))
        Console(stderr=True).print(
            f"[bold red]gristmill:[/] {escape(f'{error}{notes}')}", highlight=False, soft_wrap=True
        )
        sys.exit(1)
