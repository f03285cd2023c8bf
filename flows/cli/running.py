"""Commands that run something: demo, run, corpus, tokens, pretrain, harvest."""

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gristmill.flows.cli.app import MAKE, Limit, app, console, recipe_to_run, settings
from gristmill.flows.cli.in_flow import in_flow
from gristmill.flows.machine.extras import require

if TYPE_CHECKING:
    from gristmill.flows.recipe.recipe import Recipe
    from gristmill.flows.reports.run import Report

_LINE_SECONDS = 10.0  # between two lines where no bar is shown

Remake = Annotated[
    list[str] | None,
    typer.Option(
        "--remake", metavar="STEP", help="make a step's stages again, or a stage; `all`: all of them; repeatable"
    ),
]
RecipeArgument = Annotated[str, typer.Argument(metavar="RECIPE", help="a YAML file, or the name of a shipped recipe")]


@app.command(rich_help_panel=MAKE)
def demo(
    ablate: Annotated[
        bool, typer.Option("--ablate", help="then train small models on it and on its raw extraction: which is better?")
    ] = False,
) -> None:
    """Harvest the documentation of the installed packages as WARC files and run the recipe `demo` on them."""
    _harvest(_default_folder())
    _run("pipeline", "demo")
    if ablate:
        from gristmill.flows.cli.ablating import compare

        compare("demo", {"raw": True}, judge=["reference"])


@app.command(rich_help_panel=MAKE)
def run(name: RecipeArgument, limit: Limit = None, remake: Remake = None) -> None:
    """Run a recipe from its sources to a trained model. What is finished already is reused."""
    _run("pipeline", name, limit, remake)


@app.command(rich_help_panel=MAKE)
def corpus(name: RecipeArgument, limit: Limit = None, remake: Remake = None) -> None:
    """Make a recipe's curated documents, and their export if it names one. It needs no mixture, model or training."""
    _run("corpus", name, limit, remake)


@app.command(rich_help_panel=MAKE)
def tokens(name: RecipeArgument, limit: Limit = None, remake: Remake = None) -> None:
    """Make a recipe's token shards and the plan of their mixture, and all that comes before them."""
    _run("tokens", name, limit, remake)


@app.command(rich_help_panel=MAKE)
def pretrain(name: RecipeArgument, limit: Limit = None, remake: Remake = None) -> None:
    """Train a recipe's model, and make all that comes before it."""
    _run("pretrain", name, limit, remake)


@app.command(rich_help_panel=MAKE)
def harvest(
    out: Annotated[Path | None, typer.Argument(help="folder to write; default: harvest in the home")] = None,
) -> None:
    """Write the documentation of the installed packages as WARC 1.1 files: a crawl that needs no network."""
    _harvest(out or _default_folder())


def _run(flow: str, name: str, limit: int | None = None, remake: list[str] | None = None) -> None:
    from gristmill.flows.machine import remaking

    with remaking.remake(remake or ()):
        run_flow(flow, recipe_to_run(name, limit), remake or ())


def run_flow(flow: str, recipe: "Recipe", remake: Sequence[str] = ()) -> None:
    """Run a flow, and print what it made. A recipe that it cannot use is an error before Prefect is imported, and a
    flow whose stages are all finished does without Prefect."""
    if flow != "corpus":
        recipe.training_mixture()
    if flow in ("pipeline", "pretrain"):
        require("train", "training a model")
    if recipe.export is not None:
        from gristmill.flows.reports.recorded import open_run
        from gristmill.flows.stages.export import check_target

        check_target(open_run(settings(), recipe)[0], recipe)

    from gristmill.flows.cli.render.run import print_report

    def run() -> "Report":
        from gristmill.flows import pipeline

        return getattr(pipeline, flow)(recipe)

    def find() -> "Report | None":
        from gristmill.flows.machine.runs import is_finished
        from gristmill.flows.run.prefect_env import is_server_named

        # to look up what was never finished would delay its start
        if remake or is_server_named() or not is_finished(settings().home, recipe.name, recipe.model_dump(mode="json")):
            return None
        from gristmill.flows.run.reuse import reuse

        report, lines = reuse(flow, recipe, settings()) or (None, ())
        for line in lines:
            typer.echo(line, err=True)
        return report

    print_report(in_flow(flow, recipe.name, run, find), console())


def _default_folder() -> Path:
    return Path(settings().local_folder) / "harvest"


def _harvest(out: Path) -> None:
    from gristmill.flows import demo as harvesting
    from gristmill.flows.run.phase_rates import duration
    from gristmill.flows.run.progress import progress_bar

    def say(line: str) -> None:
        typer.echo(f"harvest: {line}", err=True)

    say(f"the documentation of the installed packages as WARC files, into {out}")
    begun, ended, count = time.monotonic(), threading.Event(), ""

    def watch() -> None:
        while not ended.wait(_LINE_SECONDS):
            say(f"{duration(time.monotonic() - begun)} so far{count}")

    def progress(done: int, total: int) -> None:
        nonlocal count
        count = f", {done:,} of {total:,} modules" if done < total else ", the pages of all modules, now those of files"
        bar.update(task, completed=done, total=total)

    with progress_bar() as bar:
        task = bar.add_task("modules", total=None)
        lines = threading.Thread(target=watch, name="harvest lines", daemon=True)
        if bar.disable:
            lines.start()
        try:
            report = harvesting.harvest(out, progress=progress)
        finally:
            ended.set()
    console().print(f"harvest: {report.pages:,} pages in {out}", highlight=False, soft_wrap=True)
