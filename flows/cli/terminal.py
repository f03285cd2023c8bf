"""Console output: texts that cannot control the terminal, or JSON. Separate: all commands use it."""

import sys
from collections.abc import Iterable
from typing import Any

import typer
from pydantic_core import to_json
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from gristmill.storage.printable import printable


class SafeConsole(Console):
    """rich's console; control characters of what is printed are written out, as `\\x1b`."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or (text := printable(segment.text)) == segment.text:
                yield segment
            else:
                yield Segment(text, segment.style)


def console(stderr: bool = False) -> Console:
    """The standard output, or errors: as wide as the terminal, 120 columns where there is none."""
    stream = sys.stderr if stderr else sys.stdout
    return SafeConsole(stderr=stderr, emoji=False, width=None if stream.isatty() else 120)


def print_texts(texts: Iterable[RenderableType]) -> None:
    """Print texts as they are: without markup, colors of numbers, or new line ends."""
    out = console()
    for text in texts:
        out.print(text, markup=False, highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """Print a value that reports return, as JSON."""
    typer.echo(to_json(value, indent=2).decode())
