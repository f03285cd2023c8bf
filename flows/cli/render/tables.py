"""Tables for the terminal: funnels, stages, rules, capacity, evaluations."""

import json
import textwrap
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.text import Text
from rich.tree import Tree

from gristmill.flows.reports.funnel import TOP
from gristmill.flows.reports.status import StageNode, StageStatus
from gristmill.flows.reports.tables import Table, listed

if TYPE_CHECKING:
    from gristmill.flows.reports.rules import Book, CutRow, Row, Threshold
    from gristmill.storage.home import Verified


NARROW = 140  # columns: below this reasons stand in lines of their own, for a rule's name is what --rule takes


def status_table(rows: Iterable[StageStatus], width: int) -> Table:
    """A row for each stage of the home, in so many columns of a terminal, at least 80."""
    columns = ("finished", "stage", "recipe", "#documents")
    shown = [_status_cells(row) for row in rows]
    if width >= NARROW:
        return Table((*columns, "most dropped by"), shown)
    narrow = [[cells, *(("", f"  {one}") for one in drops.split(", ") if one)] for *cells, drops in shown]
    return Table(columns, [line for lines in narrow for line in lines])


def _status_cells(row: StageStatus) -> tuple[str, ...]:
    finished = _time(row.modified) if row.state == "finished" else row.state
    counts = _documents(row) if row.state != "unfinished" else f"{row.jobs_done:,} jobs done"
    return finished, row.stage, ", ".join(row.recipes), counts, listed(row.drops, TOP)


def _time(seconds: float | None) -> str:
    return "" if seconds is None else datetime.fromtimestamp(seconds).strftime("%d %b %H:%M")


def _documents(row: StageStatus) -> str:
    counts = [f"{n:,}" for n in (row.documents_in, row.documents_out) if n is not None]
    return " → ".join(counts)


def status_lines(rows: Iterable[StageStatus]) -> list[str]:
    """A line for each stage, with tabs between the columns of `status_table`: for a pipe, nothing is cut off."""
    return ["\t".join(_status_cells(row)) for row in rows]


def stage_tree(recipe: str, nodes: Iterable[StageNode]) -> Tree:
    """A recipe's stages, each with the first 8 characters of its key, its documents and tokens."""
    tree = Tree(Text(recipe, style="bold"))
    for node in nodes:
        _grow(tree, node)
    return tree


def _grow(tree: Tree, node: StageNode) -> None:
    row = node.stage
    name, _, key = row.stage.rpartition("-")
    counts = [_documents(row), f"{row.tokens:,} tokens" if row.tokens is not None else ""]
    if row.state != "finished":
        counts = [f"{row.state}, {row.jobs_done:,} jobs done" if row.state == "unfinished" else row.state]
    branch = tree.add(Text("  ".join([name, key[:8], *filter(None, counts)])))
    for other in node.aside:
        _grow(branch, other)


def verified_line(result: "Verified") -> str:
    """What was read of a stage, and what is wrong with it."""
    name = result.folder.rpartition("/")[2]
    if not result.damages:
        return f"{name}: {result.files:,} files, {result.bytes:,} bytes, as they were written"
    wrong = [f"  {damage.path} {damage.trouble}" for damage in result.damages]
    return "\n".join([f"{name}: damaged; remove the stage's folder and run the recipe again", *wrong])


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
        of_groups = [f"{name} {_value(value)} (of some languages)" for name, value in row.groups]
        yield _head(f"{number:2} {row.rule}", [*map(_threshold, row.thresholds), *of_groups])
        yield f"     {row.description}"
        yield f"     {row.signal} ({row.unit}){source}"
    else:
        yield f"   - {row.signal} ({row.unit}), measured only{source}"
        yield f"     {row.description}"


def _head(name: str, settings: list[str]) -> str:
    return f"  {name}: {', '.join(settings)}" if settings else f"  {name}"


def _threshold(threshold: "Threshold") -> str:
    """An end of a rule as a recipe sets it, or what the step asks for whatever the recipe says."""
    return f"{threshold.setting or _FIXED[threshold.end]} {_value(threshold.value)}"


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) if any(value) else "empty"
    return json.dumps(value)


def _wrapped(line: str, width: int) -> str:
    text = line.lstrip(" ")
    indent, further = (" " * (len(line) - len(text)), " " * 5) if line != text else ("", "")
    return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=further, break_on_hyphens=False)
