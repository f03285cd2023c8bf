"""The page of all rules of document steps."""

import json
from collections.abc import Iterator
from typing import Any

from gristmill.flows.reports.rules import Book, Row, books
from tests.reference_pages.markdown import code, fence, page, table

FIXED = {"low": "at least", "high": "at most", "allowed": "must be", "excluded": "must not be"}


def rules_page() -> str:
    """Each document step: its edits, its rules with their keys and default thresholds, and its other signals."""
    parts = [
        "# Rules",
        "This page lists every rule of every document step, with its default threshold and what it measures.",
        "Print the rules of a step, also of a custom step, in a terminal:",
        fence("gristmill recipe rules gopher_quality", "sh"),
        "The rules of a step apply in the order of the table. The first rule that a document fails is recorded in the "
        "ledger as the reason; `gristmill explain show dropped --rule STEP.RULE` prints such documents. A threshold of "
        "null is off. A signal is a column that expressions and SQL can use.",
    ]
    for book in books(""):
        parts += _section(book)
    return page(*parts)


def _section(book: Book) -> Iterator[str]:
    yield f"## {book.step}"
    sources = {row.source for row in book.rows if row.source}
    if len(sources) == 1:
        yield f"Source: {sources.pop()}"
    if book.cuts:
        yield "Edits of texts:"
        rows = [(code(cut.rule), _keys(cut.settings), cut.description) for cut in book.cuts]
        yield table(("rule", "keys and defaults", "meaning"), rows)
    rules = [row for row in book.rows if row.rule]
    if rules:
        yield "Rules that drop documents:" if book.cuts else ""
        yield table(("rule", "keys and defaults", "signal", "meaning"), [_rule(row, book) for row in rules])
    signals = [row for row in book.rows if not row.rule]
    if signals:
        yield "Signals without a rule:" if rules or book.cuts else ""
        rows = [(code(row.signal), row.unit, row.description + _source(row, book)) for row in signals]
        yield table(("signal", "unit", "meaning"), rows)
    if not (book.cuts or book.rows):
        yield "The step decides by the expression of the recipe and has no rules of its own."


def _rule(row: Row, book: Book) -> tuple[str, str, str, str]:
    keys = [
        f"`{each.setting}: {_value(each.value)}`" if each.setting else f"{FIXED[each.end]} {_fixed(each.value)}"
        for each in row.thresholds
    ]
    keys += [f"`{name}: {_value(value)}` (by language)" for name, value in row.groups]
    signal = f"`{row.signal}` ({row.unit})" if row.unit else code(row.signal)
    return code(row.rule or ""), ", ".join(keys), signal, row.description + _source(row, book)


def _source(row: Row, book: Book) -> str:
    """The source of a rule, in a step whose rules have several."""
    several = len({each.source for each in book.rows if each.source}) > 1
    return f" ({row.source})" if several and row.source else ""


def _keys(settings: dict[str, Any]) -> str:
    return ", ".join(f"`{name}: {_value(each)}`" for name, each in settings.items())


def _fixed(value: Any) -> str:
    """The end of a rule that no key sets."""
    return "empty" if isinstance(value, tuple) and not any(value) else f"`{_value(value)}`"


def _value(value: Any) -> str:
    """A default as a recipe has it; of a long list the first entries."""
    if isinstance(value, (tuple, list)):
        more = len(value) - 5
        return f"[{', '.join(map(str, value[:5]))}{f', and {more} more' if more > 0 else ''}]"
    return json.dumps(value, default=str, ensure_ascii=False)
