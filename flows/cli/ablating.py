"""Commands that compare recipes: ablate, noise and list."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import wrapt

from gristmill.flows.cli.app import Json, RecipeArgument
from gristmill.flows.cli.in_flow import in_flow, recipe_to_run, warn_of_unread_urls
from gristmill.flows.cli.options import with_options
from gristmill.flows.cli.results import decision_parts
from gristmill.flows.cli.terminal import print_result, print_texts
from gristmill.flows.experiments.options import DecisionOptions, OtherDevice
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.check import before_run
from gristmill.flows.recipe.given_files import tokenizer_at, vocabulary
from gristmill.flows.recipe.proxy import load_proxy
from gristmill.flows.recipe.remarks.sent_texts import plan_lines
from gristmill.flows.stages.evaluation.judge import EXTRACTED, check_judges, set_names, without_judge
from gristmill.tasks.engine.extras import require

if TYPE_CHECKING:
    from gristmill.flows.experiments.decisions import ablate as ablation
    from gristmill.flows.experiments.decisions import arm_settings, noise, report
    from gristmill.flows.experiments.decisions import device as decision_device
    from gristmill.flows.experiments.decisions import expected as decision_expected
    from gristmill.flows.experiments.decisions import page as decision_page
    from gristmill.flows.experiments.decisions import plan as decision_plan
    from gristmill.flows.experiments.decisions import tasks as decision_tasks
    from gristmill.flows.experiments.decisions.plan import Arms
    from gristmill.flows.recipe.recipe import Recipe
else:
    ablation = wrapt.lazy_import("gristmill.flows.experiments.decisions.ablate")
    arm_settings = wrapt.lazy_import("gristmill.flows.experiments.decisions.arm_settings")
    decision_device = wrapt.lazy_import("gristmill.flows.experiments.decisions.device")
    decision_expected = wrapt.lazy_import("gristmill.flows.experiments.decisions.expected")
    decision_page = wrapt.lazy_import("gristmill.flows.experiments.decisions.page")
    report = wrapt.lazy_import("gristmill.flows.experiments.decisions.report")
    noise = wrapt.lazy_import("gristmill.flows.experiments.decisions.noise")
    decision_plan = wrapt.lazy_import("gristmill.flows.experiments.decisions.plan")
    decision_tasks = wrapt.lazy_import("gristmill.flows.experiments.decisions.tasks")


@with_options
def ablate(
    base: RecipeArgument,
    options: DecisionOptions,
    other: OtherDevice,
    plan: Annotated[bool, typer.Option("--plan", help="only the plan, with its cost")] = False,
    as_json: Json = False,
) -> None:
    """Prints the better recipe, the difference in bits per byte with its uncertainty, and the cost. Reuses finished
    runs.

    Guide: docs/guides/compare-recipes.md

    Examples:
        gristmill decide ablate recipe.yaml --without gopher_quality --plan
        gristmill decide ablate recipe.yaml --raw --judge extracted
    """
    require("train", "comparing recipes")
    decision_device.check_asked(other, plan)
    if plan:
        _print_plan(base, options, other)
    else:
        compare(base, options, as_json)


def _print_plan(base: str, options: DecisionOptions, other: OtherDevice) -> None:
    """Print the plan of a decision. Without a judge, all sources judge, and a line reports that."""
    has_judge = bool(options.clean or options.judge)
    options = options if has_judge else replace(options, judge=[EXTRACTED])
    _, compared, sets = _checked(base, options)
    file = tokenizer_at(MachineSettings(), options.tokenizer, "tokenizer") if options.tokenizer else None
    asked = decision_device.asked(MachineSettings(), other)
    expected = decision_plan.planned(compared, options, asked, sets, None if file is None else vocabulary(file))
    print_texts(decision_expected.expected(MachineSettings(), expected, options, file).lines())
    print_texts(plan_lines(compared.recipes, MachineSettings()))
    if not has_judge:
        print_texts([without_judge(set_names([*compared.recipes.values()], None))])


def _vocabulary(options: DecisionOptions) -> int | None:
    """Return the size of a tokenizer that the options name."""
    if not options.tokenizer:
        return None
    return vocabulary(tokenizer_at(MachineSettings(), options.tokenizer, "tokenizer"))


def _checked(base: str, options: DecisionOptions) -> tuple["Recipe", "Arms", dict[str, int]]:
    """Return the base, the compared recipes, and the evaluation sets of tasks. Raises ValueError before Prefect is
    imported."""
    recipe = recipe_to_run(base, None)
    compared = decision_plan.arms(recipe, options, options.leave_one_out)
    arm_settings.not_compared(compared.recipes, options.tokenizer is not None)
    for candidate in compared.candidates:
        before_run(compared.recipes[candidate], MachineSettings())
    sets = {}
    if options.tasks:
        sets = decision_tasks.task_sets(decision_tasks.tasks_folder(MachineSettings(), options.tasks))
    check_judges(MachineSettings(), [*compared.recipes.values()], options.clean, options.judge, tuple(sets))
    warn_of_unread_urls(base, recipe)
    return recipe, compared, sets


def compare(base: str, options: DecisionOptions, as_json: bool = False) -> None:
    """Run the flow `ablate` and print its report."""
    recipe, compared, sets = _checked(base, options)
    size = _vocabulary(options)
    decision_plan.planned(compared, options, lambda proxy: None, sets, size)  # raises before Prefect starts

    report = in_flow("ablate", recipe.name, lambda: ablation.ablate(recipe, **vars(options)))
    value = report.as_json() | ({"stale": report.stale} if report.stale else {})
    print_result(value, decision_parts(report, MachineSettings()), as_json)


def proxy_noise(
    proxy: Annotated[Path, typer.Argument(metavar="FILE", help="YAML file of a proxy", exists=True, dir_okay=False)],
    runs: Annotated[str, typer.Option(metavar="TEXT", help="description of the runs, stored with the result")],
) -> None:
    """Reads the proxy's runs in the home and writes FILE as .json. Decisions use it to report the smallest effect that
    they can detect.

    Guide: docs/guides/compare-recipes.md

    Examples:
        gristmill decide noise own.yaml --runs "12 A/A pairs of web.yaml"
    """
    fitted_noise = noise.fit_noise(MachineSettings().home, load_proxy(proxy), runs)
    written = proxy.with_suffix(".json")
    noise.write_noise(fitted_noise, written)
    size = f"{fitted_noise.documents} documents, {fitted_noise.degrees} degrees"
    print_texts([f"wrote {written}: {fitted_noise.tokens:,} tokens per run, {size}"])


def decisions(
    base: Annotated[str, typer.Argument(metavar="BASE", help="name of the recipe whose decisions are listed")] = "",
    by_cost: Annotated[bool, typer.Option("--by-cost", help="order by saved CPU time instead of gain")] = False,
    as_json: Json = False,
) -> None:
    """Prints the gain, judge and model size of each decision.

    Guide: docs/guides/compare-recipes.md

    Examples:
        gristmill decide list
        gristmill decide list --by-cost
    """
    home = MachineSettings().home
    rows = report.leaderboard(home, base or None, by_cost)
    against = f" against {base}" if base else ""
    missing = f"no decision{against} in {home} has a judge. Make one with `gristmill decide ablate`"
    print_result(rows, [decision_page.leaderboard(rows) if rows else missing], as_json)
