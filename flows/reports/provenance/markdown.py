"""Pieces of the papers in Markdown: figures with their queries, and gaps. Separate: two papers use them."""

import html
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gristmill.flows.reports.provenance.figures import Answer
from gristmill.storage.printable import one_line
from gristmill.tasks.documents.export import markdown_table

# What no home can know. It is named and never guessed.
GAP = "**To be filled in by the provider**"


def gap(what: str) -> str:
    """A line about something that the home does not know."""
    return f"{GAP}: {what}."


def command(query: str) -> str:
    """The command that computes a figure again. RECIPE is the recipe of the papers."""
    return f'gristmill sql RECIPE "{query}"'


def numbers(answers: Mapping[str, Answer], names: Iterable[str]) -> list[str]:
    """A table of numbers, each with its query; of those that there are."""
    found = [answers[name] for name in names if name in answers]
    rows = [
        (answer.figure.about, cell(answer.value), str(answer.figure.unit), f"`{command(answer.figure.query)}`")
        for answer in found
    ]
    return [*markdown_table(("", "value", "unit", "query"), rows), ""]


def table(answer: Answer) -> Iterator[str]:
    """A figure that is a table, and its query under it; a sentence for one without rows."""
    assert not isinstance(answer.figure.unit, str), "it is a table"
    yield from (answer.figure.about, "")
    if answer.rows:
        units = answer.figure.unit
        heads = [f"{name}, {units[name]}" if units.get(name, name) != name else name for name in answer.columns]
        yield from markdown_table(heads, [[cell(value) for value in row] for row in answer.rows])
    else:
        yield "There are none."
    yield from ("", "<details><summary>Query</summary>", "", "```sh", command(answer.figure.query), "```", "")
    yield from ("</details>", "")


def cell(value: Any) -> str:
    """A value in a table. Texts come from crawls, so they are escaped."""
    if value is None:
        return "unknown"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return html.escape(one_line(f"{value}"), quote=False)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
