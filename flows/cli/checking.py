"""The command that looks at a recipe before it runs: check."""

from dataclasses import asdict
from typing import Annotated

import typer

from flows.cli.app import Json, app, print_json, print_texts, settings


@app.command()
def check(
    name: Annotated[str, typer.Argument(metavar="RECIPE", help="a YAML file, or the name of a shipped recipe")],
    deep: Annotated[bool, typer.Option("--deep", help="ask for remote files, and import steps of your own")] = False,
    as_json: Json = False,
) -> None:
    """Look for all that is wrong with a recipe before it runs, a line each: unknown keys, settings that exclude each
    other, missing files, a home without room. Estimate time and space. Exits with 1 if anything is wrong.
    """
    from flows.check.run import check

    found = check(name, settings(), deep)
    if as_json:
        print_json(asdict(found))
    else:
        print_texts(map(str, found.findings))
        if found.unseen:
            print_texts([f"not looked at without --deep: {', '.join(found.unseen)}"])
        if found.estimate is not None:
            print_texts([found.estimate.sentence])
        if not found.findings:
            print_texts([f"{name}: nothing is wrong"])
    if found.findings:
        raise typer.Exit(1)
