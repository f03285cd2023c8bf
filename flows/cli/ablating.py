"""Commands that compare recipes: ablate, noise, by which its reach is known, and list, which shows all."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import wrapt

from gristmill.flows.cli.app import Json
from gristmill.flows.cli.in_flow import in_flow, recipe_to_run
from gristmill.flows.cli.options import with_options
from gristmill.flows.cli.results import decision_parts
from gristmill.flows.cli.terminal import print_result, print_texts
from gristmill.flows.experiments.decisions.options import DecisionOptions, OtherDevice
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.check import before_run
from gristmill.flows.recipe.given_files import tokenizer_at, vocabulary
from gristmill.flows.recipe.proxy import load_proxy
from gristmill.flows.stages.judge import EXTRACTED, check_judges, set_names, without_judge
from gristmill.tasks.engine.extras import require

if TYPE_CHECKING:
    from gristmill.flows.experiments.decisions import ablate as ablation
    from gristmill.flows.experiments.decisions import device as decision_device
    from gristmill.flows.experiments.decisions import noise, report
    from gristmill.flows.experiments.decisions import page as decision_page
    from gristmill.flows.experiments.decisions import plan as decision_plan
    from gristmill.flows.experiments.decisions import tasks as decision_tasks
    from gristmill.flows.experiments.decisions.plan import Arms
    from gristmill.flows.recipe.recipe import Recipe
else:
    ablation = wrapt.lazy_import("gristmill.flows.experiments.decisions.ablate")
    decision_device = wrapt.lazy_import("gristmill.flows.experiments.decisions.device")
    decision_page = wrapt.lazy_import("gristmill.flows.experiments.decisions.page")
    report = wrapt.lazy_import("gristmill.flows.experiments.decisions.report")
    noise = wrapt.lazy_import("gristmill.flows.experiments.decisions.noise")
    decision_plan = wrapt.lazy_import("gristmill.flows.experiments.decisions.plan")
    decision_tasks = wrapt.lazy_import("gristmill.flows.experiments.decisions.tasks")


@with_options
def ablate(
    base: Annotated[str, typer.Argument(metavar="BASE", help="a YAML file, or the name of a shipped recipe")],
    options: DecisionOptions,
    other: OtherDevice,
    plan: Annotated[
        bool, typer.Option("--plan", help="print what would be done and what it costs; do nothing")
    ] = False,
    as_json: Json = False,
) -> None:
    """Prints which is better, by how many bits per byte, how sure that is, and what it costs. Finished runs are reused.

    gristmill decide ablate recipe.yaml --without gopher_quality --judge extracted --plan"""
    require("train", "comparing recipes")
    if plan:
        _print_plan(base, options, other)
    elif named := [flag for flag, value in (("--device", other.device), ("--price", other.price)) if value]:
        raise ValueError(f"{' and '.join(named)}: for --plan alone; runs are trained on this machine")
    else:
        compare(base, options, as_json)


def _print_plan(base: str, options: DecisionOptions, other: OtherDevice) -> None:
    """Without a judge all sources judge, and that is printed."""
    if other.devices > 1 and not other.device:
        raise ValueError(f"--devices {other.devices}: of what? name it by --device, as h100")
    has_judge = bool(options.clean or options.judge)
    options = options if has_judge else replace(options, judge=[EXTRACTED])
    _, compared, sets = _checked(base, options)
    size = None
    if options.tokenizer:
        size = vocabulary(tokenizer_at(MachineSettings(), options.tokenizer, "tokenizer"))
    device = (
        partial(decision_device.named, other)
        if other.device
        else partial(decision_device.measured, MachineSettings(), price=other.price)
    )
    print_texts(decision_plan.planned(compared, options, device, sets, size).lines())
    if not has_judge:
        print_texts([without_judge(set_names([*compared.recipes.values()], None))])


def _checked(base: str, options: DecisionOptions) -> tuple["Recipe", "Arms", dict[str, int]]:
    """The base, the recipes that are compared, and the sets that tasks give. Raises before Prefect is imported."""
    recipe = recipe_to_run(base, None)
    compared = decision_plan.arms(recipe, options, options.leave_one_out)
    for candidate in compared.candidates:
        before_run(compared.recipes[candidate], MachineSettings())
    sets = {}
    if options.tasks:
        sets = decision_tasks.task_sets(decision_tasks.tasks_folder(MachineSettings(), options.tasks))
    check_judges(MachineSettings(), [*compared.recipes.values()], options.clean, options.judge, tuple(sets))
    return recipe, compared, sets


def compare(base: str, options: DecisionOptions, as_json: bool = False) -> None:
    """Run the flow `ablate` and print what it found."""
    recipe, *_ = _checked(base, options)

    report = in_flow("ablate", recipe.name, lambda: ablation.ablate(recipe, **vars(options)))
    print_result(report.as_json(), decision_parts(report, MachineSettings()), as_json)


def proxy_noise(
    proxy: Annotated[Path, typer.Argument(metavar="FILE", help="a proxy's YAML file", exists=True, dir_okay=False)],
    runs: Annotated[str, typer.Option(metavar="TEXT", help="which runs these were; kept with the numbers")],
) -> None:
    """Reads the runs of the proxy in the home, and writes FILE with the ending .json. With it a decision says which
    effect it can detect before it trains anything."""
    fitted_noise = noise.fit_noise(MachineSettings().home, load_proxy(proxy), runs)
    written = proxy.with_suffix(".json")
    noise.write_noise(fitted_noise, written)
    size = f"{fitted_noise.documents} documents, {fitted_noise.degrees} degrees"
    print_texts([f"{written}: {fitted_noise.tokens:,} tokens a run, {size}"])


def decisions(
    base: Annotated[
        str, typer.Argument(metavar="[BASE]", help="the name of a recipe: decisions against it alone")
    ] = "",
    by_cost: Annotated[
        bool, typer.Option("--by-cost", help="the CPU time that a candidate saves first; else the largest gain")
    ] = False,
    as_json: Json = False,
) -> None:
    """Side by side: which change gained most, by what judge and at what size."""
    home = MachineSettings().home
    rows = report.leaderboard(home, base or None, by_cost)
    against = f" against {base}" if base else ""
    missing = f"{home} has no decision{against} that says what judged; `gristmill decide ablate` makes one"
    print_result(rows, [decision_page.leaderboard(rows) if rows else missing], as_json)
