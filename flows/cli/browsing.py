"""Commands to compare finished corpora and to look around in one: diff, browse."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
import wrapt
from rich.text import Text

from gristmill.flows.cli.app import FinishedRecipe, Json
from gristmill.flows.cli.documents import passage
from gristmill.flows.cli.options import with_options
from gristmill.flows.cli.terminal import print_result, print_texts
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.options import Changes
from gristmill.flows.reports.tables import Table
from gristmill.storage.printable import redact_user

if TYPE_CHECKING:
    from gristmill.flows.explore.browse import document, pages
    from gristmill.flows.explore.browse import opened as opened_corpus
    from gristmill.flows.explore.browse import server as page_server
    from gristmill.flows.recipe import recipe as recipes
    from gristmill.flows.recipe import variants
    from gristmill.flows.reports.diff import difference as differences
    from gristmill.flows.reports.diff import targets
    from gristmill.flows.reports.diff.columns import Columns, Groups
    from gristmill.flows.reports.diff.difference import Difference
    from gristmill.flows.reports.diff.matching import Alone
else:
    recipes = wrapt.lazy_import("gristmill.flows.recipe.recipe")
    variants = wrapt.lazy_import("gristmill.flows.recipe.variants")
    opened_corpus = wrapt.lazy_import("gristmill.flows.explore.browse.opened")
    pages = wrapt.lazy_import("gristmill.flows.explore.browse.pages")
    page_server = wrapt.lazy_import("gristmill.flows.explore.browse.server")
    document = wrapt.lazy_import("gristmill.flows.explore.browse.document")
    differences = wrapt.lazy_import("gristmill.flows.reports.diff.difference")
    targets = wrapt.lazy_import("gristmill.flows.reports.diff.targets")


_QUANTILES = ("0.05", "0.5", "0.95")  # shown in a terminal; the page and --json have more
_HOSTS = 10


def difference_lines(difference: "Difference") -> "Iterator[str | Table | Text]":
    """Yield the whole comparison; parts without a difference are one line."""
    for letter, side in (("A", difference.a), ("B", difference.b)):
        yield f"{letter}  {side.name}: {side.documents:,} documents, {side.characters:,} characters ({side.stage})"
    if difference.empty:
        yield "no differences"
        return
    by_url = (
        f", {difference.by_url:,} of them matched by URL and record because their ids differ"
        if difference.by_url
        else ""
    )
    yield f"{difference.both:,} documents in both{by_url}"
    for mine, other, some in (("A", "B", difference.only_a), ("B", "A", difference.only_b)):
        if some:
            yield f"{sum(one.documents for one in some):,} only in {mine}"
            yield _alone(other, some)
    yield from _changed(difference)
    yield from _columns(difference.columns)
    if not difference.shares.one_tokenizer:
        yield "A and B have different tokenizers, so the same text can have different numbers of tokens"
    for what, groups in (("source", difference.shares.sources), ("host", difference.shares.hosts)):
        if groups.most:
            counts = f"{groups.there[0]:,} in A, {groups.there[1]:,} in B"
            yield f"{difference.shares.unit} by {what}: {counts}, {groups.differing:,} differ"
            yield _groups(what, groups, difference.shares.unit)


def _alone(other: str, some: "Sequence[Alone]") -> Table:
    rows = [(one.reason, one.documents, one.characters, one.examples[0][0]) for one in some]
    return Table((f"in {other} dropped by", "#documents", "#characters", "example"), rows)


def _changed(difference: "Difference") -> Iterator[str | Text]:
    changed = difference.changed
    if not changed.documents:
        return
    counted = f"a sample of {changed.counted:,}" if changed.counted < changed.documents else "these"
    yield (
        f"{changed.documents:,} in both with different texts: {changed.characters_a:,} characters in A, "
        f"{changed.characters_b:,} in B. In {counted}, {changed.removed:,} characters are only in A and "
        f"{changed.added:,} only in B"
    )
    for one in changed.examples:
        url = redact_user(one.url or "")
        yield f"  {one.id_a} {url}: {one.removed:,} characters only in A, {one.added:,} only in B"
        for letter, side in zip("AB", one.passages or (), strict=False):
            yield passage(side, f"    {letter} ")


def _columns(columns: "Columns") -> "Iterator[str | Table | Text]":
    if columns.numbers:
        names = [f"#{name} {side}|.4g" for name in ("mean", *_QUANTILES) for side in "AB"]
        pairs = [(one.name, [one.mean, *(one.quantiles[share] for share in _QUANTILES)]) for one in columns.numbers]
        rows = [(name, *("-" if value is None else value for pair in some for value in pair)) for name, some in pairs]
        yield "numeric columns, mean and quantiles"
        yield Table(("column", *names), rows)
    for column in columns.values:
        yield f"most common values of {column.name}"
        yield Table(("value", "#A", "#B"), [(value, *both) for value, both in column.values.items()])
    if columns.same:
        yield f"{len(columns.same)} columns have the same distribution"
    for side, names in (("A", columns.only_a), ("B", columns.only_b)):
        if names:
            yield f"columns only in {side}: {', '.join(names)}"


def _groups(what: str, groups: "Groups", unit: str) -> Table:
    rows = [(one.name, *one.documents, *one.amount, one.amount[1] - one.amount[0]) for one in groups.most[:_HOSTS]]
    return Table((what, "#documents A", "#B", f"#{unit} A", "#B", "#B - A|+,"), rows)


_SIDE = "finished recipe; or stage, as name-key of `home status`"


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help=_SIDE)],
    b: Annotated[str, typer.Argument(metavar="B", help="finished recipe or stage to compare with")],
    to: Annotated[str, typer.Option("--to", metavar="FILE", help="HTML page to write")] = "",
    as_json: Json = False,
) -> None:
    """Lists documents in only one corpus with the rule that dropped them in the other, and differences in texts,
    columns and tokens.

    Guide: docs/guides/browse.md

    Examples:
        gristmill explain diff before.yaml recipe.yaml
        gristmill explain diff before.yaml recipe.yaml --to diff.html
    """
    difference = targets.diff(a, b, MachineSettings())
    if to:
        print_texts([differences.write(difference, to)])
    if as_json or not to:
        print_result({"empty": difference.empty} | vars(difference), difference_lines(difference), as_json)


@with_options
def browse(
    name: FinishedRecipe,
    changes: Changes,
    to: Annotated[
        str, typer.Option("--to", metavar="FILE", help="static page to write, at most 5 MB, instead of a server")
    ] = "",
    seed: Annotated[int, typer.Option("--seed", min=0, help="with --to: seed of the sample of documents")] = 1,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="port of the page; 0: a free port")] = 0,
) -> None:
    """Prints the page's address, which has a random token and works only on this machine. Use `ssh -L` to open the page
    elsewhere.

    Guide: docs/guides/browse.md

    Examples:
        gristmill browse recipe.yaml
        gristmill browse recipe.yaml --to corpus.html
    """
    recipe = variants.changed(recipes.load(name), changes.settings) if changes.settings else name
    opened = opened_corpus.open_recipe(recipe, MachineSettings())
    if to:
        print_texts([document.write(opened, to, seed)])
        return

    with page_server.Server(pages.Pages(opened), port) as server:
        print_texts([server.address, "Press Ctrl-C to stop"])
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return
