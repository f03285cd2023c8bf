"""Commands that compare recipes: ablate, and proxy-noise, by which its reach is known."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gristmill.flows.cli.app import DECIDE, Json, app, console, print_json, print_texts, recipe_to_run, settings
from gristmill.flows.cli.in_flow import in_flow
from gristmill.flows.machine.extras import require

if TYPE_CHECKING:
    from gristmill.flows.decisions.plan import Arms
    from gristmill.flows.decisions.report import DecisionReport
    from gristmill.flows.recipe.recipe import Recipe


@app.command(rich_help_panel=DECIDE)
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
        str, typer.Option(metavar="PATH", help="texts to judge by: JSON lines, Parquet, or a folder of .txt files")
    ] = "",
    judge: Annotated[
        list[str],
        typer.Option(
            metavar="SET",
            help="an evaluation set that counts: a source, clean, or task:NAME; default: clean, or all sources",
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
    bank_pairs: Annotated[int, typer.Option(min=0, help="A/A pairs, which say how much runs differ")] = 8,
    first_pair: Annotated[
        int,
        typer.Option(min=1, help="number of the first pair: a decision after one that could not tell takes new ones"),
    ] = 1,
    plan: Annotated[
        bool, typer.Option("--plan", help="print what would be done and what it costs; do nothing")
    ] = False,
    as_json: Json = False,
) -> None:
    """Compare a recipe with candidates by training small models on each: which is better, by how many bits per byte,
    how sure that is, what it costs. What is finished already is reused."""
    require("train", "comparing recipes")
    candidates: dict[str, Any] = {"against": against, "settings": setting, "without": without}
    candidates |= {"leave_one_out": leave_one_out, "raw": raw}
    runs: dict[str, Any] = {"proxy": proxy, "tokens": tokens, "pairs": _numbers(pairs), "bank_pairs": bank_pairs}
    runs |= {"first_pair": first_pair}
    judged: dict[str, Any] = {"clean": clean or None, "judge": judge, "tasks": tasks or None}
    if plan:
        _print_plan(base, candidates, tasks, **runs, clean=judged["clean"], judge=judge)
    else:
        compare(base, candidates, as_json, **runs, **judged)


def _print_plan(base: str, candidates: dict[str, Any], tasks: str, **given: Any) -> None:
    """`tasks`, `given`: parameters of the flow `ablate`."""
    from gristmill.flows.decisions.plan import planned
    from gristmill.flows.stages.proxy import at_once

    _, compared, sets = _checked(base, candidates, given["clean"], given["judge"], tasks)
    given |= {"leave_one_out": candidates["leave_one_out"], "tasks": sets}
    print_texts(planned(compared, at_once=at_once(settings()), **given).lines())


def _checked(
    base: str, candidates: dict[str, Any], clean: str | None, judge: list[str], tasks: str | None
) -> tuple["Recipe", "Arms", dict[str, int]]:
    """The base, the recipes that are compared, and the sets that tasks give. Raises before Prefect is imported."""
    from gristmill.flows.check.run import before_run
    from gristmill.flows.decisions.plan import arms
    from gristmill.flows.decisions.tasks import task_sets, tasks_folder
    from gristmill.flows.stages.evaluation.documents import check_judges

    recipe = recipe_to_run(base, None)
    compared = arms(recipe, **candidates)
    for candidate in compared.candidates:
        before_run(compared.recipes[candidate], settings())
    sets = task_sets(tasks_folder(settings(), tasks)) if tasks else {}
    check_judges(settings(), recipe, clean, judge, tuple(sets))
    return recipe, compared, sets


def compare(base: str, candidates: dict[str, Any], as_json: bool = False, **given: Any) -> None:
    """Run the flow `ablate` and print what it found. `candidates`, `given`: its parameters."""
    recipe, *_ = _checked(base, candidates, given.get("clean"), given.get("judge", []), given.get("tasks"))

    def decide() -> "DecisionReport":
        from gristmill.flows.decisions.ablate import ablate

        return ablate(recipe, **candidates, **given)

    report = in_flow("ablate", recipe.name, decide)
    if as_json:
        print_json(report.as_json())
        return
    from gristmill.flows.cli.render_results import print_decision

    print_decision(report, settings(), console())


def _numbers(given: str) -> list[int]:
    try:
        return [int(number) for number in given.split(",") if number.strip()]
    except ValueError:
        raise ValueError(f"--pairs {given} is no list of whole numbers: write 3,6,12") from None


@app.command("proxy-noise", rich_help_panel=DECIDE)
def proxy_noise(
    proxy: Annotated[Path, typer.Argument(metavar="FILE", help="a proxy's YAML file", exists=True, dir_okay=False)],
    runs: Annotated[str, typer.Option(metavar="TEXT", help="which runs these were; kept with the numbers")],
) -> None:
    """How much runs of a proxy differ, by those in the home: written to FILE with the ending .json. By it a decision
    says which effect it would see before it trains anything."""
    from gristmill.flows.decisions.noise import fit_noise, write_noise
    from gristmill.flows.recipe.proxy import load_proxy

    found = fit_noise(settings().home, load_proxy(proxy), runs)
    written = proxy.with_suffix(".json")
    write_noise(found, written)
    print_texts([f"{written}: {found.tokens:,} tokens a run, {found.documents} documents, {found.degrees} degrees"])
