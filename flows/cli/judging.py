"""Commands about rules and thresholds: whatif, thresholds, rules, new-step; and the pages report, dedup-report."""

from pathlib import Path
from typing import Annotated

import typer

from gristmill.flows.cli.app import DECIDE, LOOK, MAKE, FinishedRecipe, Json, app, console, print_json, print_texts


@app.command(rich_help_panel=DECIDE)
def whatif(
    name: FinishedRecipe,
    settings: Annotated[
        list[str], typer.Option("--set", metavar="STEP.SETTING=VALUE", help="another threshold; may be repeated")
    ],
    as_json: Json = False,
) -> None:
    """The funnel of a finished run under other thresholds: decisions replayed over stored signals, nothing computed
    again. Steps behind the replayed ones that look at all documents together are not replayed."""
    from gristmill.flows.cli.render import tables as render
    from gristmill.flows.reports import whatif as changes
    from gristmill.flows.reports import whatif as replaying

    replay = replaying.whatif(name, changes.parsed(settings))
    if as_json:
        print_json(list(replaying.funnel(replay)))
        return
    console().print(render.whatif_table(replaying.funnel(replay)))
    print_texts(render.whatif_remarks(replay))


@app.command(rich_help_panel=DECIDE)
def thresholds(
    name: FinishedRecipe,
    reference: Annotated[str, typer.Option(help="the language whose thresholds are right: a code of `language`")],
    least: Annotated[int, typer.Option(min=1, help="documents that a language needs for a proposal")] = 1000,
    as_json: Json = False,
) -> None:
    """Thresholds for languages, proposed from the stored signals of a finished run: those that drop the same share of a
    language's documents as the recipe's drop of the reference. Printed as a table, and as YAML for the recipe."""
    from gristmill.flows.cli.render import tables as render
    from gristmill.flows.reports.thresholds import propose

    found = propose(name, reference, least)
    if as_json:
        print_json(found)
        return
    console().print(render.thresholds_table(found))
    print_texts([*render.thresholds_remarks(found, least), render.recipe_part(found)])


@app.command(name="dedup-report", rich_help_panel=LOOK)
def dedup_report(name: FinishedRecipe) -> None:
    """Write one HTML page about a finished run's near-duplicates, and print its path: sizes of clusters, sample pairs
    side by side, measured recall against the S-curve."""
    from gristmill.flows.reports import near_duplicates

    print_texts([near_duplicates.write(name)])


@app.command(rich_help_panel=LOOK)
def report(name: FinishedRecipe) -> None:
    """Write one HTML page about a finished run, and print its path: funnel, samples of what each rule dropped,
    languages, lengths, clusters of near-duplicates, training."""
    from gristmill.flows.reports import run_page

    print_texts([run_page.write(name)])


@app.command(rich_help_panel=LOOK)
def rules(
    step: Annotated[str, typer.Argument(help="of this step alone; default: of all")] = "",
    as_json: Json = False,
) -> None:
    """The rules of all document steps in the order in which they are asked, of which the first that a document fails is
    the reason of its drop: thresholds and the recipe's keys for them, and what each measures, with unit and source."""
    from gristmill.flows.cli.render import tables as render
    from gristmill.flows.reports.rules import books

    if as_json:
        print_json(list(books(step)))
        return
    print_texts(render.rules(list(books(step)), console().width))


@app.command(name="new-step", rich_help_panel=MAKE)
def new_step(
    name: Annotated[str, typer.Argument(help="of the step: a to z, 0 to 9 and _")],
    folder: Annotated[Path, typer.Argument(help="where the files are written")] = Path(),
) -> None:
    """Write a working step on documents to begin with, NAME_step.py, and its test. Recipes name it as NAME, or
    as NAME_step:Name, where GRISTMILL_STEPS=NAME_step is set and the folder is on the PYTHONPATH."""
    from gristmill.flows.recipe import new_step as writing

    print_texts([str(path) for path in writing.write(name, folder)])


@app.command("plan-mixture", rich_help_panel=DECIDE)
def plan_mixture(
    name: FinishedRecipe,
    mixture: Annotated[
        str, typer.Option(help="a mixture that ships (llama, pile, redpajama), or a YAML file; default: the recipe's")
    ] = "",
    tokens: Annotated[int, typer.Option(min=0, help="to train on; default: those of the recipe's training")] = 0,
    packing: Annotated[
        bool, typer.Option("--packing", help="pack the documents, too, by `concatenate` and by `best_fit`")
    ] = False,
    as_json: Json = False,
) -> None:
    """What training would take of each source: its share, tokens, and how often it would read them."""
    from gristmill.flows.cli.render.tables import packing_table, plan_table
    from gristmill.flows.reports.mixture_plan import plan_mixture as plan

    rows = plan(name, mixture, tokens, packing=packing)
    if as_json:
        print_json(rows)
        return
    console().print(plan_table(rows))
    if packing:
        console().print(packing_table(rows))
