"""The end of a run on the terminal: its funnel, and a card with the results, hints and the next commands."""

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

import wrapt
from rich.console import RenderableType
from rich.text import Text

from gristmill.flows.cli.results import (
    exported_line,
    mixture_line,
    relabeled_line,
    served_pages,
    training_lines,
    types_line,
)
from gristmill.flows.reports import funnel
from gristmill.flows.reports.tables import Table, listed

if TYPE_CHECKING:
    from gristmill.flows.reports.run import Run
    from gristmill.flows.stages import group_losses
else:
    group_losses = wrapt.lazy_import("gristmill.flows.stages.group_losses")

# More shards are not replayed at the end of a run, only for its page: a replay reads the signals of each.
MAX_HINT_SHARDS = 200


def run_parts(report: "Run", recipe: str) -> Iterator[RenderableType | Table]:
    """All that a flow prints at its end. `recipe`: the argument that the user gave, for the next commands."""
    title = f"Funnel of {report.recipe.name}"
    yield funnel.table(report.steps, report.characters_per_token, report.tokens, title)
    if report.types:
        yield types_line(report.types)
    if report.relabeled:
        yield relabeled_line(report.relabeled)
    yield from report.date_lines
    if report.empty_files:
        yield f"files that held no record: {', '.join(report.empty_files)}"
    if report.engines:
        yield f"texts by engine: {listed(report.engines)}"
    if report.mixture:
        yield mixture_line(report)
    if report.trained:
        yield from training_lines(report)
        if report.result["sample"] is not None:
            yield Text("\nSample", style="bold")
            yield report.result["sample"]
    yield Text(f"\n{report.recipe.name}", style="bold")
    yield from card_lines(report, recipe)


def card_lines(report: "Run", recipe: str) -> Iterator[str]:
    """The card of a finished run: what is kept, what dropped most, groups that lost much, hints, next commands."""
    yield kept_line(report)
    if (most := most_dropped_line(report)) is not None:
        yield most
    if report.group_losses is not None:
        yield from group_losses.sentences(report.group_losses.result)
    if report.exported:
        yield f"exported: {exported_line(report.exported)}"
    typed = shlex.quote(recipe)
    if len(report.corpus.sources) <= MAX_HINT_SHARDS:
        for hint in report.hints():
            yield f"hint: {hint.sentence}:"
            yield f"  {hint.command(typed)}"
    yield from served_pages(report.settings, bool(report.trained))
    yield "next:"
    yield from (f"  {command}" for command in next_commands(report, typed))


def kept_line(report: "Run") -> str:
    """`kept: 1,204 of 4,560 documents (26.4%), 1,234,567 tokens`; before there are tokens, characters."""
    first, last = report.steps[0].documents_in, report.steps[-1]
    share = f" ({last.documents_out / first:.1%})" if first else ""
    size = f"{report.tokens:,} tokens" if report.tokens is not None else f"{last.characters_out or 0:,} characters"
    return f"kept: {last.documents_out:,} of {first:,} documents{share}, {size}"


def most_dropped_line(report: "Run") -> str | None:
    """The rule that dropped most documents; None where none was dropped."""
    drops = [(count, row, rule) for row in report.steps for rule, count in row.drops.items() if count]
    if not drops:
        return None
    count, row, rule = max(drops, key=lambda one: one[0])
    return f"most dropped by {row.step}.{rule}: {count:,} of the {row.documents_in:,} documents that reached it"


def next_commands(report: "Run", recipe: str) -> Iterator[str]:
    """Three commands that can be typed as they are. `recipe`: quoted for a shell. A trained model is exported as a
    model; documents that the run has exported are not exported again."""
    yield f"gristmill browse {recipe}"
    yield f"gristmill report {recipe}"
    name = report.recipe.name
    if report.trained:
        yield f"gristmill export model {recipe} --to {name}-model"
    elif not report.exported:
        # an export makes what is missing, so of a run with a limit it has the same
        limit = "" if report.recipe.limit is None else f" --limit {report.recipe.limit}"
        yield f"gristmill export documents {recipe} --to {name}-documents{limit}"
