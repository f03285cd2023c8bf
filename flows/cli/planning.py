"""The command capacity."""

from typing import Annotated

import typer

from flows.cli.app import FinishedRecipe, Json, app, console, print_json, print_texts

# as flows.reports.capacity has it, which imports much
_PAGES = 2_640_000_000


@app.command()
def capacity(
    name: FinishedRecipe,
    pages: Annotated[int, typer.Option(min=1, help="of the crawl; default: those of CC-MAIN-2024-51")] = _PAGES,
    cores: Annotated[int, typer.Option(min=1, help="that work at the same time")] = 1000,
    core_hour: Annotated[float, typer.Option(min=0.0, help="price of an hour of a core")] = 0.0,
    terabyte_month: Annotated[float, typer.Option(min=0.0, help="price of a terabyte in the home, a month")] = 0.0,
    as_json: Json = False,
) -> None:
    """What a whole crawl would take, by what a finished run took: documents, hours of a core, bytes, money."""
    from flows.cli.render_capacity import capacity_lines, capacity_table
    from flows.reports.capacity import capacity
    from flows.reports.finished import finished

    found = capacity(finished(name), pages, core_hour, terabyte_month)
    if as_json:
        print_json(found)
        return
    console().print(capacity_table(found))
    print_texts(capacity_lines(found, cores))
