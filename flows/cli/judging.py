"""Commands about rules and thresholds: whatif, thresholds, rules, new-step; and the pages report, dedup-report."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import wrapt

from gristmill.flows.cli.app import FinishedRecipe, Json
from gristmill.flows.cli.render import tables as render
from gristmill.flows.cli.render.tables import packing_table, plan_table
from gristmill.flows.cli.terminal import console, print_json, print_texts
from gristmill.flows.recipe import new_step as writing
from gristmill.flows.reports.rules import books

if TYPE_CHECKING:
    from gristmill.flows.reports import mixture_plan, near_duplicates, run_page
    from gristmill.flows.reports import thresholds as proposals
    from gristmill.flows.reports import whatif as replaying
else:
    mixture_plan = wrapt.lazy_import("gristmill.flows.reports.mixture_plan")
    near_duplicates = wrapt.lazy_import("gristmill.flows.reports.near_duplicates")
    run_page = wrapt.lazy_import("gristmill.flows.reports.run_page")
    proposals = wrapt.lazy_import("gristmill.flows.reports.thresholds")
    replaying = wrapt.lazy_import("gristmill.flows.reports.whatif")


def whatif(
    name: FinishedRecipe,
    settings: Annotated[
        list[str], typer.Option("--set", metavar="STEP.SETTING=VALUE", help="another threshold; may be repeated")
    ],
    as_json: Json = False,
) -> None:

    replay = replaying.whatif(name, replaying.parsed(settings))
    if as_json:
        print_json(list(replaying.funnel(replay)))
        return
    console().print(render.whatif_table(replaying.funnel(replay)))
    print_texts(render.whatif_remarks(replay))


def thresholds(
    name: FinishedRecipe,
    reference: Annotated[str, typer.Option(help="the language whose thresholds are right: a code of `language`")],
    least: Annotated[int, typer.Option(min=1, help="documents that a language needs for a proposal")] = 1000,
    as_json: Json = False,
) -> None:

    found = proposals.propose(name, reference, least)
    if as_json:
        print_json(found)
        return
    console().print(render.thresholds_table(found))
    print_texts([*render.thresholds_remarks(found, least), render.recipe_part(found)])


def dedup_report(name: FinishedRecipe) -> None:
    print_texts([near_duplicates.write(name)])


def report(name: FinishedRecipe) -> None:
    print_texts([run_page.write(name)])


def rules(
    step: Annotated[str, typer.Argument(help="of this step alone; default: of all")] = "",
    as_json: Json = False,
) -> None:

    if as_json:
        print_json(list(books(step)))
        return
    print_texts(render.rules(list(books(step)), console().width))


def new_step(
    name: Annotated[str, typer.Argument(help="of the step: a to z, 0 to 9 and _")],
    folder: Annotated[Path, typer.Argument(help="where the files are written")] = Path(),
) -> None:

    print_texts([str(path) for path in writing.write(name, folder)])


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

    rows = mixture_plan.plan_mixture(name, mixture, tokens, packing=packing)
    if as_json:
        print_json(rows)
        return
    console().print(plan_table(rows))
    if packing:
        console().print(packing_table(rows))
