"""The command that shows the decisions of a home: decisions."""

from typing import TYPE_CHECKING, Annotated

import typer

from gristmill.flows.cli.app import DECIDE, Json, app, console, print_json, settings

if TYPE_CHECKING:
    from rich.table import Table

    from gristmill.flows.decisions.leaderboard import Standing


@app.command(rich_help_panel=DECIDE)
def decisions(
    base: Annotated[
        str, typer.Argument(metavar="[BASE]", help="the name of a recipe: decisions against it alone")
    ] = "",
    by_cost: Annotated[
        bool, typer.Option("--by-cost", help="the CPU time that a candidate saves first; else the largest gain")
    ] = False,
    as_json: Json = False,
) -> None:
    """All decisions of this home side by side: which change gained most, by what judge and at what size."""
    from dataclasses import asdict

    from gristmill.flows.cli.render_results import print_fitting
    from gristmill.flows.decisions.leaderboard import standings

    home = settings().home
    found = standings(home, base or None, by_cost)
    if as_json:
        print_json([asdict(one) for one in found])
        return
    if not found:
        against = f" against {base}" if base else ""
        console().print(f"{home} has no decision{against}; `gristmill ablate` makes one", markup=False, soft_wrap=True)
        return
    print_fitting(standings_table(found), console())


def standings_table(found: list["Standing"]) -> "Table":
    """A row for each candidate."""
    from rich.markup import escape
    from rich.table import Table

    table = Table("candidate", "base", "verdict", title="Decisions", title_justify="left")
    for head in ("effect, bits per byte", "interval", "worth", "documents", "CPU hours"):
        table.add_column(head, justify="right")
    for head in ("judged by", "model and tokens"):
        table.add_column(head)
    for one in found:
        effect = interval = ""
        if one.effect is not None:
            effect, interval = f"{one.effect:+.4f}", f"{one.low:+.4f} to {one.high:+.4f}"
        table.add_row(
            escape(one.candidate),
            escape(one.base),
            one.outcome,
            effect,
            interval,
            "" if one.worth is None else f"{one.worth:+.0%}",
            f"{one.documents:+,}",
            "" if one.cpu_hours is None else f"{one.cpu_hours:+.4f}",
            escape(one.judge),
            f"{one.parameters:,}, {one.tokens:,}",
        )
    return table
