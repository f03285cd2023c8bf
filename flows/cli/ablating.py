"""Commands that compare recipes: ablate, noise, by which its reach is known, and list, which shows all."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import wrapt

from gristmill.flows.cli.app import Json
from gristmill.flows.cli.in_flow import in_flow, recipe_to_run
from gristmill.flows.cli.results import decision_parts
from gristmill.flows.cli.terminal import print_result, print_texts
from gristmill.flows.machine.settings import MachineSettings, require
from gristmill.flows.recipe.check import before_run
from gristmill.flows.recipe.given_files import tokenizer_at, vocabulary
from gristmill.flows.recipe.proxy import load_proxy
from gristmill.flows.stages.judge import EXTRACTED, check_judges, set_names, without_judge

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


def ablate(
    base: Annotated[str, typer.Argument(metavar="BASE", help="a YAML file, or the name of a shipped recipe")],
    against: Annotated[list[str], typer.Option(metavar="RECIPE", help="another recipe; may be given again")] = [],  # noqa: B006
    setting: Annotated[
        list[str],
        typer.Option("--set", metavar="KEY=VALUE", help="BASE with another value, as minhash.threshold=0.9; likewise"),
    ] = [],  # noqa: B006
    without: Annotated[list[str], typer.Option(metavar="STEP", help="BASE without a step; likewise")] = [],  # noqa: B006
    leave_one_out: Annotated[
        bool, typer.Option("--leave-one-out", help="BASE without each of its steps in turn: what each is worth")
    ] = False,
    raw: Annotated[bool, typer.Option("--raw", help="raw extraction, without the steps behind it")] = False,
    proxy: Annotated[
        str, typer.Option(metavar="FILE", help="the small model: a YAML file, or a shipped one")
    ] = "small",
    clean: Annotated[
        str,
        typer.Option(
            metavar="PATH", help="texts to judge by: JSON lines, Parquet, a folder of .txt files, or reference"
        ),
    ] = "",
    judge: Annotated[
        list[str],
        typer.Option(
            metavar="SET",
            help="an evaluation set that counts: a source, clean, task:NAME, or extracted for all sources",
        ),
    ] = [],  # noqa: B006
    tasks: Annotated[
        str,
        typer.Option(metavar="FOLDER", help="tasks that the trained models are scored on, or lm-eval:NAME,NAME"),
    ] = "",
    tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="of each run; then an arm may repeat its documents, and decisions share a recipe's runs. Default: "
            "one epoch of the recipe that has least, at most the proxy's",
        ),
    ] = None,
    pairs: Annotated[
        str, typer.Option(metavar="N,N,...", help="pairs of runs at each look, instead of the proxy's")
    ] = "",
    bank_pairs: Annotated[
        int, typer.Option(min=0, help="A/A pairs, which say how much runs differ ahead of a verdict")
    ] = 0,
    first_pair: Annotated[
        int,
        typer.Option(min=1, help="number of the first pair: a decision after one that could not tell takes new ones"),
    ] = 1,
    tokenizer: Annotated[
        str, typer.Option(metavar="FILE", help="that all recipes share; default: trained on the sources of all")
    ] = "",
    resample: Annotated[
        bool,
        typer.Option(
            "--resample", help="each pair reads its own half of the hosts: the interval covers which pages were crawled"
        ),
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="print what would be done and what it costs; do nothing")
    ] = False,
    device: Annotated[
        str, typer.Option(metavar="NAME", help="--plan for a GPU that is not here, as h100; default: this machine")
    ] = "",
    devices: Annotated[int, typer.Option(min=1, help="how many of --device")] = 1,
    mfu: Annotated[float, typer.Option(help="share of its data sheet's rate that --device trains with")] = 0.4,
    price: Annotated[float, typer.Option(min=0, help="of a device and an hour: --plan says what the runs cost")] = 0,
    as_json: Json = False,
) -> None:
    """Prints which is better, by how many bits per byte, how sure that is, and what it costs. Finished runs are reused.

    gristmill decide ablate recipe.yaml --without gopher_quality --judge extracted --plan"""
    require("train", "comparing recipes")
    candidates: dict[str, Any] = {"against": against, "settings": setting, "without": without}
    candidates |= {"leave_one_out": leave_one_out, "raw": raw}
    runs: dict[str, Any] = {"proxy": proxy, "tokens": tokens, "pairs": _numbers(pairs), "bank_pairs": bank_pairs}
    runs |= {"first_pair": first_pair, "resample": resample}
    judged: dict[str, Any] = {"clean": clean or None, "judge": judge}
    if plan:
        device_options = {"name": device, "devices": devices, "mfu": mfu, "price": price}
        _print_plan(base, candidates, device_options, tokenizer, tasks, **runs, **judged)
    elif named := [name for name, value in (("--device", device), ("--price", price)) if value]:
        raise ValueError(f"{' and '.join(named)}: for --plan alone; runs are trained on this machine")
    else:
        others = {"tasks": tasks or None, "tokenizer": tokenizer or None}
        compare(base, candidates, as_json, **runs, **judged, **others)


def _print_plan(
    base: str, candidates: dict[str, Any], device: dict[str, Any], tokenizer: str, tasks: str, **options: Any
) -> None:
    """`device`: what --device and its like say; `tasks`, `options`: parameters of the flow `ablate`. Without a judge
    all sources judge, and that is printed."""
    if device["devices"] > 1 and not device["name"]:
        raise ValueError(f"--devices {device['devices']}: of what? name it by --device, as h100")
    judge_given = bool(options["clean"] or options["judge"])
    options["judge"] = options["judge"] if judge_given else [EXTRACTED]
    _, compared, sets = _checked(base, candidates, options["clean"], options["judge"], tasks)
    options |= {"leave_one_out": candidates["leave_one_out"], "tasks": sets}
    proxy = options.pop("proxy")
    if tokenizer:
        options["vocabulary"] = vocabulary(tokenizer_at(MachineSettings(), tokenizer, "tokenizer"))
    device_speed = (
        partial(decision_device.named, **device)
        if device["name"]
        else partial(decision_device.measured, MachineSettings(), price=device["price"])
    )
    print_texts(decision_plan.planned(compared, proxy, device_speed, **options).lines())
    if not judge_given:
        print_texts([without_judge(set_names([*compared.recipes.values()], None))])


def _checked(
    base: str, candidates: dict[str, Any], clean: str | None, judge: list[str], tasks: str | None
) -> tuple["Recipe", "Arms", dict[str, int]]:
    """The base, the recipes that are compared, and the sets that tasks give. Raises before Prefect is imported."""
    recipe = recipe_to_run(base, None)
    compared = decision_plan.arms(recipe, **candidates)
    for candidate in compared.candidates:
        before_run(compared.recipes[candidate], MachineSettings())
    sets = decision_tasks.task_sets(decision_tasks.tasks_folder(MachineSettings(), tasks)) if tasks else {}
    check_judges(MachineSettings(), [*compared.recipes.values()], clean, judge, tuple(sets))
    return recipe, compared, sets


def compare(base: str, candidates: dict[str, Any], as_json: bool = False, **options: Any) -> None:
    """Run the flow `ablate` and print what it found. `candidates`, `options`: its parameters."""
    recipe, *_ = _checked(base, candidates, options.get("clean"), options.get("judge", []), options.get("tasks"))

    report = in_flow("ablate", recipe.name, lambda: ablation.ablate(recipe, **candidates, **options))
    print_result(report.as_json(), decision_parts(report, MachineSettings()), as_json)


def _numbers(text: str) -> list[int]:
    try:
        return [int(number) for number in text.split(",") if number.strip()]
    except ValueError:
        raise ValueError(f"--pairs {text} is no list of whole numbers: write 3,6,12") from None


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
