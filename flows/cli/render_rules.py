"""The rules of steps as lists: a list is read at any width, where a table with names as long as theirs is not."""

import json
import textwrap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flows.reports.rules import Book, CutRow, Row, Threshold

ORDER = (
    "The rules of a step are asked in the order of their numbers. The first that a document fails is the reason of its "
    "drop, in the ledger and in the funnel. Shown are the recipe's keys with their defaults; null does not bind."
)
_FIXED = {"low": "at least", "high": "at most", "allowed": "must be", "excluded": "must not be"}


def rules(books: Iterable["Book"], width: int) -> Iterator[str]:
    """Of each step what it cuts, by which rules it drops documents, and what else it measures; paragraphs of lines of
    at most `width` characters."""
    yield _wrapped(ORDER, width)
    for book in books:
        yield f"\n{book.step}"
        yield from (_wrapped(line, width) for line in _lines(book))


def _lines(book: "Book") -> Iterator[str]:
    sources = {row.source for row in book.rows}
    with_source = len(sources) > 1
    if not with_source:
        yield f"  {''.join(sources)}"
    if book.cuts:
        yield "  cuts out of texts:"
    for number, cut in enumerate(book.cuts, 1):
        yield from _cut(number, cut)
    if book.cuts:
        yield "  drops documents:"
    for number, row in enumerate(book.rows, 1):
        yield from _row(number, row, with_source)


def _cut(number: int, cut: "CutRow") -> Iterator[str]:
    yield _head(f"{number:2} {cut.rule}", [f"{name} {_value(value)}" for name, value in cut.settings.items()])
    yield f"     {cut.description}"


def _row(number: int, row: "Row", with_source: bool) -> Iterator[str]:
    source = f"; {row.source}" if with_source else ""
    if row.rule:
        yield _head(f"{number:2} {row.rule}", [*map(_threshold, row.thresholds)])
        yield f"     {row.description}"
        yield f"     {row.signal} ({row.unit}){source}"
    else:
        yield f"   - {row.signal} ({row.unit}), measured only{source}"
        yield f"     {row.description}"


def _head(name: str, settings: list[str]) -> str:
    return f"  {name}: {', '.join(settings)}" if settings else f"  {name}"


def _threshold(found: "Threshold") -> str:
    """An end of a rule as a recipe sets it, or what the step asks for whatever the recipe says."""
    return f"{found.setting or _FIXED[found.end]} {_value(found.value)}"


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) if any(value) else "empty"
    return json.dumps(value)


def _wrapped(line: str, width: int) -> str:
    text = line.lstrip(" ")
    indent, further = (" " * (len(line) - len(text)), " " * 5) if line != text else ("", "")
    return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=further, break_on_hyphens=False)
