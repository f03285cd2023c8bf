"""Finished corpora beside each other, and one to look around in: diff."""

from typing import Annotated

import typer

from gristmill.flows.cli.app import LOOK, Json, app, console, print_json, print_texts, settings

_SIDE = "a recipe, as for `run`, which must have finished it; or a stage, name-key as in `status`"


@app.command(rich_help_panel=LOOK)
def diff(
    a: Annotated[str, typer.Argument(metavar="A", help=_SIDE)],
    b: Annotated[str, typer.Argument(metavar="B", help="likewise: another recipe, or the same one before a change")],
    to: Annotated[str, typer.Option("--to", metavar="FILE", help="write one HTML page, and print its path")] = "",
    as_json: Json = False,
) -> None:
    """What differs between two finished corpora: documents that one has alone, by the step and rule that dropped them
    in the other, or `not read` where it never had the record; documents with another text; columns that are distributed
    otherwise; tokens, or characters, by source and by host. Makes nothing, and changes nothing in the home.

    Documents are matched by id; where a source has another name or its files lie elsewhere, by URL and record. Before a
    recipe is changed, copy it: `gristmill diff before.yaml recipe.yaml`; or take the stages that `gristmill status`
    prints: `gristmill diff rules-KEY rules-KEY`.
    """
    from gristmill.flows.diff.difference import difference

    found = difference(a, b, settings())
    if to:
        from gristmill.flows.diff.page import write

        print_texts([write(found, to)])
    if as_json:
        print_json(found)
    elif not to:
        from gristmill.flows.cli.render.differences import difference as rendered

        for part in rendered(found):
            if isinstance(part, str):
                print_texts([part])
            else:
                console().print(part)
