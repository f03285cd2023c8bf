"""Documents looked at by people, and what they hold of benchmarks."""

from typing import TYPE_CHECKING, Annotated

import typer

from gristmill.flows.cli.app import LOOK, FinishedRecipe, Json, app, console, print_json, print_texts, settings

if TYPE_CHECKING:
    from rich.table import Table

    from gristmill.flows.browse.votes import StepPrecision
    from gristmill.flows.reports.audit.agreement import Agreement


@app.command(rich_help_panel=LOOK)
def audit(
    name: Annotated[str, typer.Argument(metavar="[RECIPE]", help="as for `run`, which must have finished it")] = "",
    step: Annotated[str, typer.Option("--step", help="the learned filter; default: all")] = "",
    votes: Annotated[str, typer.Option("--votes", metavar="FILE", help="votes that were saved from a page")] = "",
    precision: Annotated[
        bool, typer.Option("--precision", help="of the drops of a recipe's steps, by the votes made in `browse`")
    ] = False,
    as_json: Json = False,
) -> None:
    """Judge learned filters: write a page with documents of either side of the cut, on which a person votes without
    knowing the side, and print its path; for a step that gives labels and drops nothing, with the labels. With --votes,
    how far the votes agree with the filter. With --precision, for every step: readers vote on drawn documents in
    `gristmill browse RECIPE`, knowing what the step did, and this says how many of its drops they would drop too."""
    if bool(name) == bool(votes):
        raise ValueError("give a recipe, for pages to vote on, or --votes FILE, saved from such a page")
    if precision:
        if not name:
            raise ValueError("--precision needs the recipe that was looked at with `gristmill browse`")
        _print_precision(name, step, as_json)
        return
    if name:
        from gristmill.flows.reports import audit as pages

        print_texts(pages.write(name, step, settings()))
        return
    from gristmill.flows.reports.audit.agreement import agreement

    found = agreement(votes, settings())
    if as_json:
        print_json(found)
        return
    console().print(agreement_table(found))
    if found.whole is not None:
        votes = f"the {found.sample.all.votes} votes on the sample"
        print_texts([f"by {votes} a reader agrees with {found.step} on {found.whole:.0%} of what it judged"])
    print_texts([f"{found.unsure} votes cannot say"])


def _print_precision(name: str, step: str, as_json: bool) -> None:
    from gristmill.flows.browse.opened import open_recipe
    from gristmill.flows.browse.votes import precision

    opened = open_recipe(name, settings())
    found = [one for one in precision(opened) if step in ("", one.step)]
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
    from rich.table import Table

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
    from rich.table import Table

    table = Table(title=f"votes on {found.step} ({found.stage}), of {found.recipe}")
    for column in ("documents", "", "votes", "agree with the filter", "share", "95% interval"):
        table.add_column(column, justify="left" if column in ("documents", "") else "right")
    for drawn, shares in (("nearest the cut", found.nearest), ("sample", found.sample)):
        for side, one in {"": shares.all, **shares.by_side}.items():
            share = f"{one.agreeing / one.votes:.0%}" if one.votes else "-"
            interval = f"{one.low:.0%} to {one.high:.0%}"
            table.add_row(drawn, side or "all", str(one.votes), str(one.agreeing), share, interval)
    return table


@app.command(rich_help_panel=LOOK)
def contamination(
    name: FinishedRecipe,
    n: Annotated[int, typer.Option("-n", min=0, help="how many examples of each benchmark")] = 3,
    as_json: Json = False,
) -> None:
    """Items of benchmarks that documents hold, by the recipe's step `decontamination`: of each benchmark how many, in
    how many documents, examples, and where its clean and dirty items lie, on which `evaluate --tasks` can be run."""
    from gristmill.flows.cli.render import documents as render
    from gristmill.flows.reports.contamination import contamination as report

    found = report(name, n)
    if as_json:
        print_json(found)
        return
    for one in found:
        console().print(render.benchmarks_table(one))
        print_texts(render.remarks(one))
