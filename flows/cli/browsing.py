"""Finished corpora beside each other, and one to look around in: diff, browse."""

from typing import TYPE_CHECKING, Annotated

import typer
import wrapt

from gristmill.flows.cli.app import FinishedRecipe, Json
from gristmill.flows.cli.render.differences import difference as rendered
from gristmill.flows.cli.terminal import console, print_json, print_texts
from gristmill.flows.machine.settings import MachineSettings

if TYPE_CHECKING:
    from gristmill.flows.explore.browse import opened as opened_corpus
    from gristmill.flows.explore.browse import pages, shown
    from gristmill.flows.explore.browse import server as page_server
    from gristmill.flows.reports.diff import difference
else:
    opened_corpus = wrapt.lazy_import("gristmill.flows.explore.browse.opened")
    pages = wrapt.lazy_import("gristmill.flows.explore.browse.pages")
    page_server = wrapt.lazy_import("gristmill.flows.explore.browse.server")
    shown = wrapt.lazy_import("gristmill.flows.explore.browse.shown")
    difference = wrapt.lazy_import("gristmill.flows.reports.diff.difference")

_SIDE = "a recipe, as for `run`, which must have finished it; or a stage, name-key as in `status`"


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help=_SIDE)],
    b: Annotated[str, typer.Argument(metavar="B", help="likewise: another recipe, or the same one before a change")],
    to: Annotated[str, typer.Option("--to", metavar="FILE", help="write one HTML page, and print its path")] = "",
    as_json: Json = False,
) -> None:
    """
    Documents are matched by id; where a source has another name or its files lie elsewhere, by URL and record. Before a
    recipe is changed, copy it: `gristmill diff before.yaml recipe.yaml`; or take the stages that `gristmill status`
    prints: `gristmill diff rules-KEY rules-KEY`."""
    found = difference.diff(a, b, MachineSettings())
    if to:
        print_texts([difference.write(found, to)])
    if as_json:
        print_json({"empty": found.empty} | vars(found))
    elif not to:
        for part in rendered(found):
            if isinstance(part, str):
                print_texts([part])
            else:
                console().print(part)


def browse(
    name: FinishedRecipe,
    to: Annotated[
        str, typer.Option("--to", metavar="FILE", help="write one static page of at most 5 MB, print its path, and end")
    ] = "",
    seed: Annotated[int, typer.Option("--seed", min=0, help="draws the documents of the static page")] = 1,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="of the local page; default: a free one")] = 0,
) -> None:
    """From the funnel to a step and its rules, from a rule to documents that it dropped, each with the offending part,
    value and threshold; another threshold by a slider, with the documents that would enter and leave; kept documents
    drawn by a seed, or chosen by an expression; one document with its text, raw page, scores among all, and decisions.
    Nothing is made or changed.

    The page is served to this machine alone. Its address has a random token, without which nothing is given: who has
    the address can read the corpus while the command runs. On a machine elsewhere, forward the port:
    `ssh -L 8000:127.0.0.1:8000 HOST`, with --port 8000.
    """
    opened = opened_corpus.open_recipe(name, MachineSettings())
    if to:
        print_texts([shown.write(opened, to, seed)])
        return

    with page_server.Server(pages.Pages(opened), port) as server:
        print_texts([server.address, "Ctrl-C ends it"])
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return
