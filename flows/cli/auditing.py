"""Documents looked at by people, and what they hold of benchmarks."""

from typing import TYPE_CHECKING, Annotated

import typer
import wrapt
from rich.table import Table

from gristmill.flows.cli.app import FinishedRecipe, Json
from gristmill.flows.cli.render import documents as render
from gristmill.flows.cli.terminal import console, print_json, print_texts
from gristmill.flows.machine.settings import MachineSettings

if TYPE_CHECKING:
    from rich.table import Table

    from gristmill.flows.explore.browse import opened as opened_corpus
    from gristmill.flows.explore.browse import votes as votes_on_drops
    from gristmill.flows.explore.browse.votes import StepPrecision
    from gristmill.flows.reports import audit as audit_pages
    from gristmill.flows.reports import contamination as contamination_report
    from gristmill.flows.reports.audit import agreement
    from gristmill.flows.reports.audit.agreement import Agreement
else:
    opened_corpus = wrapt.lazy_import("gristmill.flows.explore.browse.opened")
    votes_on_drops = wrapt.lazy_import("gristmill.flows.explore.browse.votes")
    audit_pages = wrapt.lazy_import("gristmill.flows.reports.audit")
    agreement = wrapt.lazy_import("gristmill.flows.reports.audit.agreement")
    contamination_report = wrapt.lazy_import("gristmill.flows.reports.contamination")


def audit(
    name: Annotated[str, typer.Argument(metavar="[RECIPE]", help="as for `run`, which must have finished it")] = "",
    step: Annotated[str, typer.Option("--step", help="the learned filter; default: all")] = "",
    votes: Annotated[str, typer.Option("--votes", metavar="FILE", help="votes that were saved from a page")] = "",
    precision: Annotated[
        bool, typer.Option("--precision", help="of the drops of a recipe's steps, by the votes made in `browse`")
    ] = False,
    as_json: Json = False,
) -> None:
    if bool(name) == bool(votes):
        raise ValueError("give a recipe, for pages to vote on, or --votes FILE, saved from such a page")
    if precision:
        if not name:
            raise ValueError("--precision needs the recipe that was looked at with `gristmill browse`")
        _print_precision(name, step, as_json)
        return
    if name:
        print_texts(audit_pages.write(name, step, MachineSettings()))
        return

    found = agreement.agreement(votes, MachineSettings())
    if as_json:
        print_json(found)
        return
    console().print(agreement_table(found))
    if found.whole is not None:
        votes = f"the {found.sample.all.votes} votes on the sample"
        print_texts([f"by {votes} a reader agrees with {found.step} on {found.whole:.0%} of what it judged"])
    print_texts([f"{found.unsure} votes cannot say"])


def _print_precision(name: str, step: str, as_json: bool) -> None:
    opened = opened_corpus.open_recipe(name, MachineSettings())
    found = [one for one in votes_on_drops.precision(opened) if step in ("", one.step)]
    if as_json:
        print_json(found)
        return
    if not found:
        print_texts([f"there are no votes on {step or opened.recipe.name}: vote with `gristmill browse {name}`"])
    for one in found:
        console().print(precision_table(one))
        if one.precision is not None:
            what = f"of {one.step}'s drops readers would drop" if one.step else "of what is kept readers would keep"
            over = "" if one.covered == one.documents else f", over rules with {one.covered:,} of {one.documents:,}"
            print_texts([f"{one.precision:.0%} ({one.low:.0%} to {one.high:.0%}) {what}{over}"])


def precision_table(found: "StepPrecision") -> "Table":
    """A row for each rule of a step, or one for what is kept."""
    title = f"votes on the drops of {found.step} ({found.stage})" if found.step else "votes on what is kept"
    table = Table(title=title)
    for column in ("rule", "documents", "votes", "agree", "share", "95% interval", "cannot say", "looked for"):
        table.add_column(column, justify="left" if column == "rule" else "right")
    for one in found.rules:
        given = one.share
        share = f"{given.agreeing / given.votes:.0%}" if given.votes else "-"
        interval = f"{given.low:.0%} to {given.high:.0%}" if given.votes else "-"
        counts = (str(given.votes), str(given.agreeing), share, interval, str(one.unsure), str(one.sought))
        table.add_row(one.rule or "kept", f"{one.documents:,}", *counts)
    return table


def agreement_table(found: "Agreement") -> "Table":
    """For each draw a row for all its documents, and one for each side or label."""
    table = Table(title=f"votes on {found.step} ({found.stage}), of {found.recipe}")
    for column in ("documents", "", "votes", "agree with the filter", "share", "95% interval"):
        table.add_column(column, justify="left" if column in ("documents", "") else "right")
    for drawn, shares in (("nearest the cut", found.nearest), ("sample", found.sample)):
        for side, one in {"": shares.all, **shares.by_side}.items():
            share = f"{one.agreeing / one.votes:.0%}" if one.votes else "-"
            interval = f"{one.low:.0%} to {one.high:.0%}"
            table.add_row(drawn, side or "all", str(one.votes), str(one.agreeing), share, interval)
    return table


def contamination(
    name: FinishedRecipe,
    n: Annotated[int, typer.Option("-n", min=0, help="how many examples of each benchmark")] = 3,
    as_json: Json = False,
) -> None:

    found = contamination_report.contamination(name, n)
    if as_json:
        print_json(found)
        return
    for one in found:
        console().print(render.benchmarks_table(one))
        print_texts(render.remarks(one))
