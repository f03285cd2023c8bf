"""Judge filters, rules and thresholds: audit, agreement, contamination, whatif, thresholds, rules, new-step, report."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import wrapt
import yaml

from gristmill.flows.cli.app import FinishedRecipe, Json
from gristmill.flows.cli.options import with_options
from gristmill.flows.cli.terminal import console, print_result, print_texts
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.options import Changes

if TYPE_CHECKING:
    from gristmill.flows.explore.browse import opened as opened_corpus
    from gristmill.flows.explore.browse import votes as votes_on_drops
    from gristmill.flows.recipe import new_step as step_files
    from gristmill.flows.recipe import recipe as recipes
    from gristmill.flows.recipe import variants
    from gristmill.flows.reports import audit as audit_pages
    from gristmill.flows.reports import contamination as contamination_report
    from gristmill.flows.reports import mixture_plan, near_duplicates, run_page
    from gristmill.flows.reports import rules as rule_books
    from gristmill.flows.reports import thresholds as proposals
    from gristmill.flows.reports import whatif as replaying
    from gristmill.flows.reports.run import agreement as annotators
else:
    recipes = wrapt.lazy_import("gristmill.flows.recipe.recipe")
    variants = wrapt.lazy_import("gristmill.flows.recipe.variants")
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
    annotators = wrapt.lazy_import("gristmill.flows.reports.run.agreement")


def audit(
    name: Annotated[
        str, typer.Argument(metavar="RECIPE", help="YAML file or shipped recipe whose run is finished")
    ] = "",
    step: Annotated[str, typer.Option("--step", metavar="STEP", help="learned filter; default: all")] = "",
    votes: Annotated[str, typer.Option("--votes", metavar="FILE", help="votes, saved from a page")] = "",
    precision: Annotated[
        bool, typer.Option("--precision", help="precision of each step's drops, by votes made in `browse`")
    ] = False,
    as_json: Json = False,
) -> None:
    """Writes a page for blind votes on documents from both sides of a filter's threshold. --votes prints the agreement
    of votes and filter.

    Guide: docs/guides/quality-classifier.md

    Examples:
        gristmill explain audit recipe.yaml
        gristmill explain audit recipe.yaml --precision
    """
    if bool(name) == bool(votes):
        raise ValueError("audit needs either a recipe or --votes. Give a recipe to write pages, or --votes FILE")
    if precision:
        if not name:
            raise ValueError("--precision needs a recipe. Name the recipe that you voted on in `gristmill browse`")
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
    missing = f"no votes on {step or opened.recipe.name}. Vote in `gristmill browse {name}`"
    print_result(rows, [part for one in rows for part in one.parts()] or [missing], as_json)


def agreement(
    name: FinishedRecipe,
    columns: Annotated[
        str, typer.Option("--columns", metavar="A,B", help="columns to compare; default: values of annotate steps")
    ] = "",
    as_json: Json = False,
) -> None:
    """Prints Cohen's kappa of two annotators, or Fleiss' of more, with 90% intervals by host. --columns compares any
    columns.

    Guide: docs/guides/annotate.md

    Examples:
        gristmill explain agreement recipe.yaml
        gristmill explain agreement recipe.yaml --columns annotate_score,label
    """
    given = [column.strip() for column in columns.split(",")] if columns else []
    found = annotators.annotator_agreement(name, given)
    print_result(found, [part for one in found for part in one.parts()], as_json)


def contamination(
    name: FinishedRecipe,
    n: Annotated[int, typer.Option("-n", min=0, help="examples to print of each benchmark")] = 3,
    as_json: Json = False,
) -> None:
    """Prints the items and documents of each benchmark, examples, and the folders of clean and contaminated items. The
    recipe needs the step `decontamination`.

    Guide: docs/guides/remove-benchmarks.md

    Examples:
        gristmill explain contamination recipe.yaml
        gristmill explain contamination recipe.yaml -n 10
    """
    benchmarks = contamination_report.contamination(name, n)
    print_result(benchmarks, (part for one in benchmarks for part in one.parts()), as_json)


def whatif(
    name: FinishedRecipe,
    settings: Annotated[list[str], typer.Option("--set", metavar="STEP.KEY=VALUE", help="new threshold; repeatable")],
    as_json: Json = False,
) -> None:
    """Applies the thresholds to stored signals, without a new run. Does not replay steps that compare documents with
    each other, such as deduplication.

    Guide: docs/guides/what-if.md

    Examples:
        gristmill decide whatif recipe.yaml --set gopher_quality.min_words=100
        gristmill decide whatif recipe.yaml --set c4.min_sentences=5 --json
    """
    replay = replaying.whatif(name, replaying.parsed(settings))
    steps = replaying.funnel(replay)
    print_result(steps, [replaying.table(steps), *replay.remarks], as_json)


def thresholds(
    name: FinishedRecipe,
    reference: Annotated[str, typer.Option(metavar="CODE", help="language with the right thresholds")],
    least: Annotated[int, typer.Option(min=1, help="minimum number of documents of a language")] = 1000,
    as_json: Json = False,
) -> None:
    """The proposed thresholds drop the same share of documents in every language. Prints a table, and YAML for the
    recipe.

    Guide: docs/guides/what-if.md

    Examples:
        gristmill decide thresholds recipe.yaml --reference en
        gristmill decide thresholds recipe.yaml --reference en --least 100
    """
    result = proposals.propose(name, reference, least)
    part = yaml.safe_dump(result.recipe_part(), sort_keys=False, allow_unicode=True)
    print_result(result, [result.table, *result.remarks(least), part], as_json)


def dedup_report(name: FinishedRecipe) -> None:
    """The page has the sizes of clusters, sample pairs side by side, and the measured recall with the S-curve.

    Guide: docs/guides/remove-duplicates.md

    Examples:
        gristmill explain duplicates recipe.yaml
    """
    print_texts([near_duplicates.write(name)])


@with_options
def report(name: FinishedRecipe, changes: Changes) -> None:
    """The page has the funnel, samples of the documents that each rule dropped, languages, lengths, near-duplicates and
    training.

    Examples:
        gristmill report recipe.yaml
        gristmill report recipe.yaml --set training.batch=32
    """
    recipe = variants.changed(recipes.load(name), changes.settings) if changes.settings else name
    print_texts([run_page.write(recipe)])


def rules(
    step: Annotated[str, typer.Argument(metavar="STEP", help="step whose rules are listed; default: all")] = "",
    as_json: Json = False,
) -> None:
    """Lists rules in the order in which they apply: the first rule that a document fails is recorded as the reason.

    Reference: docs/reference/rules.md

    Examples:
        gristmill recipe rules
        gristmill recipe rules gopher_quality
    """
    books = list(rule_books.books(step))
    print_result(books, rule_books.lines(books, console().width), as_json)


def new_step(
    name: Annotated[str, typer.Argument(metavar="NAME", help="name of the step: a to z, 0 to 9 and _")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="folder of the files")] = Path(),
) -> None:
    """Writes NAME_step.py and its test. To use the step, set GRISTMILL_STEPS=NAME_step, and add its folder to
    PYTHONPATH.

    Guide: docs/guides/add-a-step.md

    Examples:
        gristmill recipe new-step profanity
        gristmill recipe new-step profanity steps
    """
    print_texts([str(path) for path in step_files.write(name, folder)])


def plan_mixture(
    name: FinishedRecipe,
    mixture: Annotated[
        str,
        typer.Option(metavar="MIXTURE", help="llama, pile, redpajama, or YAML file; default: the recipe's mixture"),
    ] = "",
    tokens: Annotated[
        int, typer.Option(min=0, show_default=False, help="tokens to train on; default: as in the recipe")
    ] = 0,
    packing: Annotated[
        bool, typer.Option("--packing", help="comparison of the packings `concatenate` and `best_fit`")
    ] = False,
    as_json: Json = False,
) -> None:
    """An epoch is one pass over the tokens of a source.

    Guide: docs/guides/choose-a-mixture.md

    Examples:
        gristmill decide mixture recipe.yaml --packing
        gristmill decide mixture recipe.yaml --tokens 100000
    """
    rows = mixture_plan.plan_mixture(name, mixture, tokens, packing=packing)
    packed = [mixture_plan.packing_table(rows)] if packing else []
    print_result(rows, [mixture_plan.plan_table(rows), *packed], as_json)
