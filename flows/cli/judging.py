"""Judge filters, rules and thresholds: audit, contamination, whatif, thresholds, rules, new-step, report."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import wrapt
import yaml

from gristmill.flows.cli.app import FinishedRecipe, Json
from gristmill.flows.cli.terminal import console, print_result, print_texts
from gristmill.flows.machine.settings import MachineSettings

if TYPE_CHECKING:
    from gristmill.flows.explore.browse import opened as opened_corpus
    from gristmill.flows.explore.browse import votes as votes_on_drops
    from gristmill.flows.recipe import new_step as step_files
    from gristmill.flows.reports import audit as audit_pages
    from gristmill.flows.reports import contamination as contamination_report
    from gristmill.flows.reports import mixture_plan, near_duplicates, run_page
    from gristmill.flows.reports import rules as rule_books
    from gristmill.flows.reports import thresholds as proposals
    from gristmill.flows.reports import whatif as replaying
else:
    step_files = wrapt.lazy_import("gristmill.flows.recipe.new_step")
    rule_books = wrapt.lazy_import("gristmill.flows.reports.rules")
    mixture_plan = wrapt.lazy_import("gristmill.flows.reports.mixture_plan")
    near_duplicates = wrapt.lazy_import("gristmill.flows.reports.near_duplicates")
    run_page = wrapt.lazy_import("gristmill.flows.reports.run_page")
    proposals = wrapt.lazy_import("gristmill.flows.reports.thresholds")
    replaying = wrapt.lazy_import("gristmill.flows.reports.whatif")
    opened_corpus = wrapt.lazy_import("gristmill.flows.explore.browse.opened")
    votes_on_drops = wrapt.lazy_import("gristmill.flows.explore.browse.votes")
    audit_pages = wrapt.lazy_import("gristmill.flows.reports.audit")
    contamination_report = wrapt.lazy_import("gristmill.flows.reports.contamination")


def audit(
    name: Annotated[str, typer.Argument(metavar="[RECIPE]", help="as for `run`, which must have finished it")] = "",
    step: Annotated[str, typer.Option("--step", help="the learned filter; default: all")] = "",
    votes: Annotated[str, typer.Option("--votes", metavar="FILE", help="votes that were saved from a page")] = "",
    precision: Annotated[
        bool, typer.Option("--precision", help="of the drops of a recipe's steps, by the votes made in `browse`")
    ] = False,
    as_json: Json = False,
) -> None:
    """Of a learned filter it writes a page with documents from both sides of the cut, on which a person votes without
    knowing the side, and prints its path; for a step that gives labels and drops nothing, with the labels. With --votes
    it prints how far the votes agree with the filter.

    With --precision, for every step: readers vote on drawn documents in `gristmill browse RECIPE`, knowing what the
    step did, and this prints how many of its drops they would drop, too."""
    if bool(name) == bool(votes):
        raise ValueError("give a recipe, for pages to vote on, or --votes FILE, saved from such a page")
    if precision:
        if not name:
            raise ValueError("--precision needs the recipe that was looked at with `gristmill browse`")
        _print_precision(name, step, as_json)
        return
    if name:
        print_texts(audit_pages.write(name, step, MachineSettings()))
        return

    result = audit_pages.agreement(votes, MachineSettings())
    print_result(result, [result.table, *result.remarks], as_json)


def _print_precision(name: str, step: str, as_json: bool) -> None:
    opened = opened_corpus.open_recipe(name, MachineSettings())
    rows = [one for one in votes_on_drops.precision(opened) if step in ("", one.step)]
    missing = f"there are no votes on {step or opened.recipe.name}: vote with `gristmill browse {name}`"
    print_result(rows, [part for one in rows for part in one.parts()] or [missing], as_json)


def contamination(
    name: FinishedRecipe,
    n: Annotated[int, typer.Option("-n", min=0, help="how many examples of each benchmark")] = 3,
    as_json: Json = False,
) -> None:
    """The step `decontamination` of the recipe finds them. For each benchmark: how many items, in how many documents,
    examples, and where its clean and dirty items are, which `train evaluate --tasks` reads."""
    benchmarks = contamination_report.contamination(name, n)
    print_result(benchmarks, (part for one in benchmarks for part in one.parts()), as_json)


def whatif(
    name: FinishedRecipe,
    settings: Annotated[
        list[str], typer.Option("--set", metavar="STEP.SETTING=VALUE", help="another threshold; may be repeated")
    ],
    as_json: Json = False,
) -> None:
    """Decisions are replayed over stored signals; nothing is computed again. Later steps that look at all documents
    together are not replayed.

    gristmill decide whatif recipe.yaml --set gopher_quality.min_words=100"""
    replay = replaying.whatif(name, replaying.parsed(settings))
    steps = replaying.funnel(replay)
    print_result(steps, [replaying.table(steps), *replay.remarks], as_json)


def thresholds(
    name: FinishedRecipe,
    reference: Annotated[str, typer.Option(help="the language whose thresholds are right: a code of `language`")],
    least: Annotated[int, typer.Option(min=1, help="documents that a language needs for a proposal")] = 1000,
    as_json: Json = False,
) -> None:
    """The proposed thresholds drop the same share of a language's documents as the recipe's thresholds drop of the
    reference language. Printed as a table, and as YAML for the recipe."""
    result = proposals.propose(name, reference, least)
    part = yaml.safe_dump(result.recipe_part(), sort_keys=False, allow_unicode=True)
    print_result(result, [result.table, *result.remarks(least), part], as_json)


def dedup_report(name: FinishedRecipe) -> None:
    """Prints the page's path. It has sizes of clusters, sample pairs side by side, and measured recall against the
    S-curve."""
    print_texts([near_duplicates.write(name)])


def report(name: FinishedRecipe) -> None:
    """The page has the funnel, samples of what each rule dropped, languages, lengths, clusters of near-duplicates and
    training."""
    print_texts([run_page.write(name)])


def rules(
    step: Annotated[str, typer.Argument(help="of this step alone; default: of all")] = "",
    as_json: Json = False,
) -> None:
    """In the order in which the rules are applied; the first rule that a document fails is the reason of its drop. Each
    has its threshold, the recipe's key for it, and what it measures, with unit and source."""
    books = list(rule_books.books(step))
    print_result(books, rule_books.lines(books, console().width), as_json)


def new_step(
    name: Annotated[str, typer.Argument(help="of the step: a to z, 0 to 9 and _")],
    folder: Annotated[Path, typer.Argument(help="where the files are written")] = Path(),
) -> None:
    """Writes NAME_step.py and its test. Recipes name the step as NAME, or as NAME_step:Name, where
    GRISTMILL_STEPS=NAME_step is set and the folder is on the PYTHONPATH."""
    print_texts([str(path) for path in step_files.write(name, folder)])


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
    """Of each source: its share, its tokens, and how many epochs training reads it."""
    rows = mixture_plan.plan_mixture(name, mixture, tokens, packing=packing)
    packed = [mixture_plan.packing_table(rows)] if packing else []
    print_result(rows, [mixture_plan.plan_table(rows), *packed], as_json)
