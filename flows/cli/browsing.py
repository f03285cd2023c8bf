"""Commands to compare finished corpora and to look around in one: diff, browse."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
import wrapt
from rich.text import Text

from gristmill.flows.cli.app import FinishedRecipe, Json
from gristmill.flows.cli.documents import passage
from gristmill.flows.cli.terminal import print_result, print_texts
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.reports.tables import Table

if TYPE_CHECKING:
    from gristmill.flows.explore.browse import document, pages
    from gristmill.flows.explore.browse import opened as opened_corpus
    from gristmill.flows.explore.browse import server as page_server
    from gristmill.flows.reports.diff import difference as differences
    from gristmill.flows.reports.diff import targets
    from gristmill.flows.reports.diff.columns import Columns
    from gristmill.flows.reports.diff.difference import Difference
    from gristmill.flows.reports.diff.matching import Alone
    from gristmill.flows.reports.diff.shares import Groups
else:
    opened_corpus = wrapt.lazy_import("gristmill.flows.explore.browse.opened")
    pages = wrapt.lazy_import("gristmill.flows.explore.browse.pages")
    page_server = wrapt.lazy_import("gristmill.flows.explore.browse.server")
    document = wrapt.lazy_import("gristmill.flows.explore.browse.document")
    differences = wrapt.lazy_import("gristmill.flows.reports.diff.difference")
    targets = wrapt.lazy_import("gristmill.flows.reports.diff.targets")


_QUANTILES = ("0.05", "0.5", "0.95")  # shown in a terminal; the page and --json have more
_HOSTS = 10


def difference_lines(difference: "Difference") -> "Iterator[str | Table | Text]":
    """All of it, the parts that do not differ in a word."""
    for letter, side in (("A", difference.a), ("B", difference.b)):
        yield f"{letter}  {side.name}: {side.documents:,} documents, {side.characters:,} characters ({side.stage})"
    if difference.empty:
        yield "nothing differs"
        return
    by_url = f", {difference.by_url:,} of them by URL and record, since their ids differ" if difference.by_url else ""
    yield f"{difference.both:,} documents in both{by_url}"
    for mine, other, some in (("A", "B", difference.only_a), ("B", "A", difference.only_b)):
        if some:
            yield f"{sum(one.documents for one in some):,} only in {mine}"
            yield _alone(other, some)
    yield from _changed(difference)
    yield from _columns(difference.columns)
    if not difference.shares.one_tokenizer:
        yield "the sides have tokenizers of their own: the same text may have more tokens on one"
    for what, groups in (("source", difference.shares.sources), ("host", difference.shares.hosts)):
        if groups.most:
            there = f"{groups.there[0]:,} in A, {groups.there[1]:,} in B"
            yield f"{difference.shares.unit} by {what}: {there}, {groups.differing:,} differ"
            yield _groups(what, groups, difference.shares.unit)


def _alone(other: str, some: "Sequence[Alone]") -> Table:
    rows = [(one.reason, one.documents, one.characters, one.examples[0][0]) for one in some]
    return Table((f"in {other} dropped by", "#documents", "#characters", "one of them"), rows)


def _changed(difference: "Difference") -> Iterator[str | Text]:
    changed = difference.changed
    if not changed.documents:
        return
    counted = f"{changed.counted:,} of them, drawn by a hash," if changed.counted < changed.documents else "them"
    yield (
        f"{changed.documents:,} in both with another text, of {changed.characters_a:,} characters in A and "
        f"{changed.characters_b:,} in B; in {counted} {changed.removed:,} characters of A are not in B, and "
        f"{changed.added:,} of B not in A"
    )
    for one in changed.examples:
        yield f"  {one.id_a} {one.url or ''}: {one.removed:,} characters only in A, {one.added:,} only in B"
        for letter, side in zip("AB", one.passages or (), strict=False):
            yield passage(side, f"    {letter} ")


def _columns(columns: "Columns") -> "Iterator[str | Table | Text]":
    if columns.numbers:
        names = [f"#{name} {side}|.4g" for name in ("mean", *_QUANTILES) for side in "AB"]
        pairs = [(one.name, [one.mean, *(one.quantiles[share] for share in _QUANTILES)]) for one in columns.numbers]
        rows = [(name, *("-" if value is None else value for pair in some for value in pair)) for name, some in pairs]
        yield "columns of numbers, mean and quantiles"
        yield Table(("column", *names), rows)
    for column in columns.values:
        yield f"most common values of {column.name}"
        yield Table(("value", "#A", "#B"), [(value, *both) for value, both in column.values.items()])
    if columns.same:
        yield f"{len(columns.same)} columns are distributed alike"
    for side, names in (("A", columns.only_a), ("B", columns.only_b)):
        if names:
            yield f"only {side} has the columns {', '.join(names)}"


def _groups(what: str, groups: "Groups", unit: str) -> Table:
    rows = [(one.name, *one.documents, *one.amount, one.amount[1] - one.amount[0]) for one in groups.most[:_HOSTS]]
    return Table((what, "#documents A", "#B", f"#{unit} A", "#B", "#B - A|+,"), rows)


_SIDE = "a recipe, as for `run`, which must have finished it; or a stage, name-key as in `home status`"


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help=_SIDE)],
    b: Annotated[str, typer.Argument(metavar="B", help="likewise: another recipe, or the same one before a change")],
    to: Annotated[str, typer.Option("--to", metavar="FILE", help="write one HTML page, and print its path")] = "",
    as_json: Json = False,
) -> None:
    """Lists documents that only one of them has, by the step and rule that dropped them in the other, or `not read` if
    it never had the record; documents with another text; columns with other distributions; tokens, or characters, by
    source and by host. Changes nothing in the home.

    Documents are matched by id; where a source has another name or its files lie elsewhere, by URL and record. Before a
    recipe is changed, copy it: `gristmill explain diff before.yaml recipe.yaml`; or take the stages that `gristmill
    home status` prints: `gristmill explain diff rules-KEY rules-KEY`."""
    difference = targets.diff(a, b, MachineSettings())
    if to:
        print_texts([differences.write(difference, to)])
    if as_json or not to:
        print_result({"empty": difference.empty} | vars(difference), difference_lines(difference), as_json)


def browse(
    name: FinishedRecipe,
    to: Annotated[
        str, typer.Option("--to", metavar="FILE", help="write one static page of at most 5 MB, print its path, and end")
    ] = "",
    seed: Annotated[int, typer.Option("--seed", min=0, help="draws the documents of the static page")] = 1,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="of the local page; default: a free one")] = 0,
) -> None:
    """Prints the page's address. From the funnel to a step and its rules, from a rule to documents that it dropped,
    each with the offending part, value and threshold; another threshold by a slider, with the documents that would
    enter and leave; kept documents drawn by a seed, or chosen by an expression; one document with its text, raw page,
    scores among all, and decisions. Nothing is made or changed.

    The page is served to this machine alone. Its address has a random token, without which nothing is given: who has
    the address can read the corpus while the command runs. On a machine elsewhere, forward the port:
    `ssh -L 8000:127.0.0.1:8000 HOST`, with --port 8000.
    """
    opened = opened_corpus.open_recipe(name, MachineSettings())
    if to:
        print_texts([document.write(opened, to, seed)])
        return

    with page_server.Server(pages.Pages(opened), port) as server:
        print_texts([server.address, "Ctrl-C ends it"])
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return
