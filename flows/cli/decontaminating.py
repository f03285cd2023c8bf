"""The command contamination."""

from typing import Annotated

import typer

from flows.cli.app import FinishedRecipe, Json, app, console, print_json, print_texts


@app.command()
def contamination(
    name: FinishedRecipe,
    n: Annotated[int, typer.Option("-n", min=0, help="how many examples of each benchmark")] = 3,
    as_json: Json = False,
) -> None:
    """Items of benchmarks that documents hold, by the recipe's step `decontamination`: of each benchmark how many, in
    how many documents, examples, and where its clean and dirty items lie, on which `evaluate --tasks` can be run."""
    from flows.cli import render_contamination as render
    from flows.reports.contamination import contamination as report

    found = report(name, n)
    if as_json:
        print_json(found)
        return
    for one in found:
        console().print(render.benchmarks_table(one))
        print_texts(render.remarks(one))
