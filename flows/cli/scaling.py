"""Commands about mixtures, other sizes and training: mix, scale, agreement, transfer, study."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import wrapt

from gristmill.flows.cli.app import Json, RecipeArgument
from gristmill.flows.cli.in_flow import in_flow, recipe_to_run
from gristmill.flows.cli.options import with_options
from gristmill.flows.cli.results import coordinate_lines, scaling_parts, sweep_lines
from gristmill.flows.cli.terminal import print_result, print_texts
from gristmill.flows.experiments.options import (
    AgreementOptions,
    MixOptions,
    OtherDevice,
    ScaleOptions,
    StudyOptions,
    TransferOptions,
)
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.remarks.sent_texts import plan_lines
from gristmill.flows.reports.dependents.retractions import stale_lines
from gristmill.flows.stages.evaluation.judge import check_judges
from gristmill.tasks.engine.extras import require

if TYPE_CHECKING:
    from gristmill.flows.experiments import mixture_plan, mixtures
    from gristmill.flows.experiments.decisions import device as decision_device
    from gristmill.flows.experiments.scaling import grid
    from gristmill.flows.experiments.scaling import scale as flow
    from gristmill.flows.experiments.scaling import transfer as transfer_check
    from gristmill.flows.experiments.studies import study as studies
    from gristmill.flows.recipe.recipe import Recipe
else:
    flow = wrapt.lazy_import("gristmill.flows.experiments.scaling.scale")
    transfer_check = wrapt.lazy_import("gristmill.flows.experiments.scaling.transfer")
    decision_device = wrapt.lazy_import("gristmill.flows.experiments.decisions.device")
    grid = wrapt.lazy_import("gristmill.flows.experiments.scaling.grid")
    mixture_plan = wrapt.lazy_import("gristmill.flows.experiments.mixture_plan")
    studies = wrapt.lazy_import("gristmill.flows.experiments.studies.study")
    mixtures = wrapt.lazy_import("gristmill.flows.experiments.mixtures")


@with_options
def mix(
    name: RecipeArgument,
    options: MixOptions,
    other: OtherDevice,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="recipe to write; default: NAME-METHOD.yaml")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="only the plan, with its cost")] = False,
) -> None:
    """Writes the mixture as a recipe if it beats the standard mixtures by more than chance.

    Guide: docs/guides/choose-a-mixture.md

    Examples:
        gristmill decide mix recipe.yaml --method doremi
        gristmill decide mix recipe.yaml --method regmix --judge extracted --plan
    """
    decision_device.check_asked(other, plan)
    recipe = recipe_to_run(name, None)
    to = out or Path(f"{recipe.name}-{options.method}.yaml")
    if to.exists() and not plan:
        raise FileExistsError(f"{to} exists. Choose another file with --out, or delete {to}")
    require("train", "searching for a mixture")

    planned = mixture_plan.planned_mixture(MachineSettings(), recipe, options)
    if plan:
        print_texts(planned.lines(decision_device.asked(MachineSettings(), other)))
        print_texts(plan_lines({recipe.name: recipe}, MachineSettings()))
        return

    mixture = in_flow("mix", recipe.name, lambda: mixtures.mix(recipe, **vars(options)))
    print_texts([mixture.table])
    if mixture.refusal:
        print_texts([*mixture.found, f"wrote no recipe: {mixture.refusal}"])
        return
    to.parent.mkdir(parents=True, exist_ok=True)
    with open(to, "x", encoding="utf-8") as file:
        file.write(mixtures.written(mixture))
    judge = options.judge or ([] if options.clean else ["extracted"])  # the default of DoReMi, too
    words = ["--proxy", str(options.proxy), *(part for one in judge for part in ("--judge", one))]
    words += ["--clean", options.clean] if options.clean else []
    print_texts(
        [*mixture.found, *mixture.remarks(), f"wrote {to}. Test it:", f"  {mixtures.command(mixture, to, words)}"]
    )


@with_options
def scale(
    name: RecipeArgument,
    options: ScaleOptions,
    plan: Annotated[bool, typer.Option("--plan", help="only the plan")] = False,
    as_json: Json = False,
) -> None:
    """The law forecasts the loss at other sizes, with intervals. Reuses finished runs.

    Guide: docs/guides/fit-a-scaling-law.md

    Examples:
        gristmill decide scale recipe.yaml --sizes 80k,150k,220k --tokens 50k,100k,200k --plan
        gristmill decide scale recipe.yaml --sizes 80k,150k,220k --tokens 50k,100k,200k --forecast 118k:200k
    """
    require("train", "training a grid of models")

    recipe = recipe_to_run(name, None)
    if plan:
        _print_plan(recipe, options)
        return
    grid.checked_grid(MachineSettings(), recipe, options)  # raises before Prefect starts

    report = in_flow("scale", recipe.name, lambda: flow.scale(recipe, **vars(options)))
    value = report.as_json() | ({"stale": report.stale} if report.stale else {})
    print_result(value, scaling_parts(report), as_json)


@with_options
def agreement(
    base: RecipeArgument,
    options: AgreementOptions,
    other: OtherDevice,
    plan: Annotated[bool, typer.Option("--plan", help="only the plan, with its cost")] = False,
    as_json: Json = False,
) -> None:
    """Trains models of several sizes on several recipes, and compares the order of recipes at each size with the order
    at the largest size.

    Guide: docs/explanation/scaling.md

    Examples:
        gristmill decide agreement recipe.yaml --raw --without minhash --sizes 80k,150k --tokens 50k,50k --judge web
        gristmill decide agreement recipe.yaml --against web.yaml --raw --sizes 80k,150k --tokens 50k,50k
    """
    require("train", "comparing recipes")

    decision_device.check_asked(other, plan)
    recipe = recipe_to_run(base, None)
    planned = grid.checked_agreement(MachineSettings(), recipe, options)
    if plan:
        print_texts([*planned.lines(), *planned.time_lines(decision_device.asked(MachineSettings(), other))])
        print_texts(plan_lines(planned.compared.recipes, MachineSettings()))
        return

    report = in_flow("agreement", recipe.name, lambda: flow.agreement(recipe, **vars(options)))
    print_result(report.as_json(), (report.sentence, *report.tables()), as_json)


@with_options
def transfer(
    options: TransferOptions,
    rule: Annotated[
        list[str],
        typer.Option(metavar="RULE", help="parametrization: standard, mup or completep; repeatable"),
    ] = ["standard", "mup"],  # noqa: B006
    look: Annotated[bool, typer.Option("--look", help="only the coordinate check, at --rate")] = False,
) -> None:
    """First runs the coordinate check, which measures how updates change activations at each size. Then trains each
    size at each learning rate.

    Guide: docs/explanation/scaling.md

    Examples:
        gristmill decide transfer --look
        gristmill decide transfer --widths 64,512 --rule mup
    """
    require("train", "training models of several sizes")

    transfer_check.check_options(options, rule)
    for each in rule:
        print_texts(coordinate_lines(transfer_check.coordinates(options, each, options.rate)))
    for each in rule if not look else []:
        print_texts(sweep_lines(transfer_check.sweep(options, each)))


def _print_plan(recipe: "Recipe", options: ScaleOptions) -> None:
    planned = grid.planned_grid(options)
    print_texts(planned.lines())
    try:
        last = f"judged by {', '.join(check_judges(MachineSettings(), [recipe], options.clean, options.judge))}"
    except ValueError as error:
        last = f"cannot train these runs yet: {error}"
    print_texts([last] + [f"cannot train these runs yet: {planned.problem}"] * bool(planned.problem))
    print_texts(plan_lines({recipe.name: recipe}, MachineSettings()))


class QuestionName(StrEnum):
    """The questions; `questions.py` has their arms."""

    BATCH = "batch"
    RATE_RULE = "rate-rule"
    PRECISION = "precision"
    CLIP = "clip"
    ORDER = "order"
    VOCABULARY = "vocabulary"
    RESUME = "resume"


@with_options
def study(
    question: Annotated[QuestionName, typer.Argument(metavar="QUESTION", help="question about training")],
    recipe: RecipeArgument,
    options: StudyOptions,
    as_json: Json = False,
) -> None:
    """QUESTION is batch, rate-rule, precision, clip, order, vocabulary or resume. Prints a table and one sentence, and
    writes a page with a plot.

    Guide: docs/guides/studies.md

    Examples:
        gristmill study batch recipe.yaml --judge extracted
        gristmill study order recipe.yaml --judge extracted --column characters
    """
    loaded = recipe_to_run(recipe, None)
    require("train", "studies")
    if question is not QuestionName.RESUME:
        check_judges(MachineSettings(), [loaded], options.clean, options.judge)
    report = in_flow("study", loaded.name, lambda: studies.study(loaded, question.value, **vars(options)))
    parts = [*stale_lines(report.stale), report.asks, report.table, report.sentence, report.page]
    print_result(report.as_json() | ({"stale": report.stale} if report.stale else {}), parts, as_json)
