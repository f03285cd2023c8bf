"""Console output of all commands: texts that cannot control the terminal, tables, or JSON."""

import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import Any, Literal, TypeVar

import typer
from pydantic_core import to_json, to_jsonable_python
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table as Drawn
from rich.text import Text

from gristmill.flows.reports.tables import Column, Table
from gristmill.storage.printable import one_line, printable, printable_json, redact_user

T = TypeVar("T")


class SafeConsole(Console):
    """rich's console, which prints control characters as escapes such as `\\x1b`."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or (text := printable(segment.text)) == segment.text:
                yield segment
            else:
                yield Segment(text, segment.style)


def console(stderr: bool = False) -> Console:
    """Return a console on standard output or standard error. Its width is that of the terminal, else 120 columns."""
    stream = sys.stderr if stderr else sys.stdout
    return SafeConsole(stderr=stderr, emoji=False, width=None if stream.isatty() else 120)


def print_texts(parts: Iterable[RenderableType | Table], out: Console | None = None) -> None:
    """Print tables, and texts as they are: without markup, colors of numbers, or new line ends."""
    out = out or console()
    for part in parts:
        if isinstance(part, Table):
            print_table(part, out)
        else:
            out.print(part, markup=False, highlight=False, soft_wrap=True)


def print_result(value: Any, parts: Iterable[RenderableType | Table], as_json: bool) -> None:
    """Print a result as JSON, or its parts for a person. All commands print their results with it."""
    if as_json:
        typer.echo(json_text(value))
    else:
        print_texts(parts)


def print_each(values: Iterable[T], part: Callable[[T], RenderableType | Table], as_json: bool) -> list[T]:
    """Print results as they arrive, each as its part for a person, or all as JSON at the end. Returns the results."""
    results = []
    for value in values:
        results.append(value)
        if not as_json:
            print_texts([part(value)])
    print_result(results, (), as_json)
    return results


_UNLIMITED = 100_000  # columns: a narrower console would limit the measured width


def print_table(table: Table, out: Console) -> None:
    """Print a table, whose last column may take several lines; where the console is too narrow for that, each row as a
    block with a line for each column."""
    print_cells(*table.texts(), table.title, out)


def print_cells(columns: Sequence[Column], texts: Sequence[Sequence[str]], heading: str, out: Console) -> None:
    """Print a table of texts, as `print_table` does."""
    rows = [[one_line(text) for text in row] for row in texts]
    title = Text(heading, style="table.title") if heading else None
    drawn = Drawn(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    names = [one.name for one in columns]
    for one, cells in zip(columns, zip_longest(names, *rows, fillvalue=""), strict=True):
        justify: Literal["left", "right"] = "right" if one.is_number else "left"
        whole = None if one is columns[-1] else max(map(cell_len, cells))
        drawn.add_column(Text(one.name), justify=justify, no_wrap=whole is not None, min_width=whole)
    for row in rows:
        drawn.add_row(*map(Text, row))
    if out.measure(drawn, options=out.options.update(width=_UNLIMITED)).minimum <= out.width:
        out.print(drawn)
        return
    if title:
        out.print(title)
    for first, *others in rows:
        out.print(first, style="bold", markup=False, highlight=False)
        for one, text in zip(columns[1:], others, strict=False):
            if text:
                out.print(f"  {one.name}: {text}", markup=False, highlight=False)


def json_text(value: Any) -> str:
    """A value that reports return, as JSON. It has no infinite numbers: they are null. URLs have no user and no
    password."""
    plain = _without_users(to_jsonable_python(value))
    return printable_json(to_json(plain, indent=2, inf_nan_mode="null").decode())


def _without_users(value: Any) -> Any:
    """A value of JSON's types with user and password removed from URLs, which are strings without white space."""
    if isinstance(value, dict):
        return {key: _without_users(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_users(each) for each in value]
    return redact_user(value) if isinstance(value, str) and "://" in value and len(value.split()) == 1 else value
