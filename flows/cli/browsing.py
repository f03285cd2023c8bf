"""Finished corpora beside each other, and one to look around in: diff, browse."""

from typing import Annotated

import typer

from gristmill.flows.cli.app import LOOK, FinishedRecipe, Json, app, console, print_json, print_texts, settings

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
    from gristmill.flows.diff.difference import diff as differing

    found = differing(a, b, settings())
    if to:
        from gristmill.flows.diff.page import write

        print_texts([write(found, to)])
    if as_json:
        print_json({"empty": found.empty} | vars(found))
    elif not to:
        from gristmill.flows.cli.render.differences import difference as rendered

        for part in rendered(found):
            if isinstance(part, str):
                print_texts([part])
            else:
                console().print(part)


@app.command(rich_help_panel=LOOK)
def browse(
    name: FinishedRecipe,
    to: Annotated[
        str, typer.Option("--to", metavar="FILE", help="write one static page of at most 5 MB, print its path, and end")
    ] = "",
    seed: Annotated[int, typer.Option("--seed", min=0, help="draws the documents of the static page")] = 1,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="of the local page; default: a free one")] = 0,
) -> None:
    """Look around in a finished corpus with a browser: a local page, whose address is printed, until Ctrl-C.

    From the funnel to a step and its rules, from a rule to documents that it dropped, each with the offending part,
    value and threshold; another threshold by a slider, with the documents that would enter and leave; kept documents
    drawn by a seed, or chosen by an expression; one document with its text, raw page, scores among all, and decisions.
    Nothing is made or changed.

    The page is served to this machine alone. Its address has a random token, without which nothing is given: who has
    the address can read the corpus while the command runs. On a machine elsewhere, forward the port:
    `ssh -L 8000:127.0.0.1:8000 HOST`, with --port 8000.
    """
    from gristmill.flows.browse.opened import open_recipe

    opened = open_recipe(name, settings())
    if to:
        from gristmill.flows.browse.static import write

        print_texts([write(opened, to, seed)])
        return
    from gristmill.flows.browse.pages import Pages
    from gristmill.flows.browse.server import Server

    with Server(Pages(opened), port) as server:
        print_texts([server.address, "Ctrl-C ends it"])
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return
