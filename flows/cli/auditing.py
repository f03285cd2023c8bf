"""The command audit."""

from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.app import Json, app, console, print_json, print_texts, settings

if TYPE_CHECKING:
    from rich.table import Table

    from flows.reports.audit.agreement import Agreement


@app.command()
def audit(
    name: Annotated[str, typer.Argument(metavar="[RECIPE]", help="as for `run`, which must have finished it")] = "",
    step: Annotated[str, typer.Option("--step", help="the learned filter; default: each that dropped documents")] = "",
    votes: Annotated[str, typer.Option("--votes", metavar="FILE", help="votes that were saved from a page")] = "",
    as_json: Json = False,
) -> None:
    """Judge learned filters: write a page with documents of either side of the cut, on which a person votes without
    knowing the side, and print its path. With --votes, how far the votes agree with the filter."""
    if bool(name) == bool(votes):
        raise ValueError("give a recipe, for pages to vote on, or --votes FILE, saved from such a page")
    if name:
        from flows.reports import audit as pages

        print_texts(pages.write(name, step, settings()))
        return
    from flows.reports.audit.agreement import agreement

    found = agreement(votes, settings())
    if as_json:
        print_json(found)
        return
    console().print(agreement_table(found))
    print_texts([f"{found.unsure} votes cannot say"])


def agreement_table(found: "Agreement") -> "Table":
    """A row for all documents, for those that the filter keeps, and for those that it drops."""
    from rich.table import Table

    table = Table(title=f"votes on {found.stage}, of {found.recipe}")
    for column in ("documents", "votes", "agree with the filter", "share", "95% interval"):
        table.add_column(column, justify="left" if column == "documents" else "right")
    for name, one in (("all", found.all), ("kept", found.kept), ("dropped", found.dropped)):
        share = f"{one.agreeing / one.votes:.0%}" if one.votes else "-"
        table.add_row(name, str(one.votes), str(one.agreeing), share, f"{one.low:.0%} to {one.high:.0%}")
    return table
