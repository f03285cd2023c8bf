"""Commands that run something: demo, run, corpus."""

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import wrapt

from gristmill.flows.cli.app import Limit, RecipeArgument
from gristmill.flows.cli.in_flow import in_flow, recipe_to_run, warn_of_unread_urls
from gristmill.flows.cli.options import with_options
from gristmill.flows.cli.results import run_parts
from gristmill.flows.cli.terminal import print_texts
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.options import Changes
from gristmill.tasks.engine.extras import EXTRAS, require, require_all

if TYPE_CHECKING:
    from gristmill.flows import demo as harvesting
    from gristmill.flows import pipeline
    from gristmill.flows.cli import ablating
    from gristmill.flows.experiments import options as experiment_options
    from gristmill.flows.machine import remaking, runs
    from gristmill.flows.recipe.recipe import Recipe
    from gristmill.flows.reports import recorded
    from gristmill.flows.reports.run import Run
    from gristmill.flows.run import progress as progress_bars
    from gristmill.flows.run import reuse, server
    from gristmill.flows.stages import export
else:
    harvesting = wrapt.lazy_import("gristmill.flows.demo")
    ablating = wrapt.lazy_import("gristmill.flows.cli.ablating")
    experiment_options = wrapt.lazy_import("gristmill.flows.experiments.options")
    remaking = wrapt.lazy_import("gristmill.flows.machine.remaking")
    pipeline = wrapt.lazy_import("gristmill.flows.pipeline")
    recorded = wrapt.lazy_import("gristmill.flows.reports.recorded")
    progress_bars = wrapt.lazy_import("gristmill.flows.run.progress")
    export = wrapt.lazy_import("gristmill.flows.stages.export")
    runs = wrapt.lazy_import("gristmill.flows.machine.runs")
    server = wrapt.lazy_import("gristmill.flows.run.server")
    reuse = wrapt.lazy_import("gristmill.flows.run.reuse")

_LINE_SECONDS = 10.0  # between two lines where no bar is shown

Remake = Annotated[
    list[str] | None,
    typer.Option("--remake", metavar="STEP", help="step or stage to make again, or `all`; repeatable"),
]


def demo(
    ablate: Annotated[
        bool, typer.Option("--ablate", help="also a comparison with raw extraction, by small models")
    ] = False,
    crawl_only: Annotated[bool, typer.Option("--crawl-only", help="only the crawl, without a run")] = False,
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="with --crawl-only: folder of the crawl")] = None,
) -> None:
    """The crawl is the documentation of the installed Python packages as WARC files, so the demo needs no network.

    Guide: docs/tutorials/first-corpus.md

    Examples:
        gristmill demo
        gristmill demo --crawl-only --out crawl
    """
    if crawl_only and ablate:
        raise ValueError("--crawl-only and --ablate exclude each other. Remove one of them")
    if out is not None and not crawl_only:
        raise ValueError("--out needs --crawl-only, because `demo` reads the crawl in the home. Add --crawl-only")
    if crawl_only:
        require_all("the demo's crawl", EXTRAS["demo"])
    else:
        require("demo", "the demo")
    _harvest(out or _default_folder())
    if crawl_only:
        return
    _run("pipeline", "demo")
    if ablate:
        ablating.compare("demo", experiment_options.DecisionOptions(raw=True, judge=["reference"]))


@with_options
def run(
    name: RecipeArgument,
    changes: Changes,
    tokens_only: Annotated[
        bool, typer.Option("--tokens-only", help="only the token shards and their mixture, without a model")
    ] = False,
    limit: Limit = None,
    remake: Remake = None,
) -> None:
    """Finished stages are reused, so the same command resumes a stopped run. `report` and `browse` with the same --set
    open a run with --set.

    Guide: docs/tutorials/first-model.md

    Examples:
        gristmill run recipe.yaml --limit 1000
        gristmill run recipe.yaml --set training.batch=32
    """
    _run("tokens" if tokens_only else "pipeline", name, limit, remake, changes)


@with_options
def corpus(name: RecipeArgument, changes: Changes, limit: Limit = None, remake: Remake = None) -> None:
    """Also writes the recipe's export, if it has one. The recipe needs no mixture, model or training.

    Guide: docs/tutorials/first-corpus.md

    Examples:
        gristmill corpus recipe.yaml
        gristmill corpus recipe.yaml --limit 1000
    """
    _run("corpus", name, limit, remake, changes)


@with_options
def pretrain(name: RecipeArgument, changes: Changes, limit: Limit = None, remake: Remake = None) -> None:
    _run("pretrain", name, limit, remake, changes)


def _run(
    flow: str,
    name: str,
    limit: int | None = None,
    remake: list[str] | None = None,
    changes: Changes = Changes(),  # noqa: B008
) -> None:
    recipe = recipe_to_run(name, limit, changes.settings)
    warn_of_unread_urls(name, recipe)
    with remaking.remake(remake or ()):
        run_flow(flow, name, recipe, remake or (), changes.settings)


def run_flow(flow: str, name: str, recipe: "Recipe", remake: Sequence[str] = (), settings: Sequence[str] = ()) -> None:
    """Run a flow, and print the summary of its run.

    `name`, `settings`: the argument and `--set` of the command, for the commands that are printed as next steps. A
    recipe that the flow cannot use raises ValueError before Prefect is imported. A flow whose stages are all finished
    runs without Prefect."""
    if flow != "corpus":
        recipe.training_mixture()
    if flow in ("pipeline", "pretrain"):
        require("train", "training a model")
    if recipe.export is not None:
        export.check_target(recorded.open_run(MachineSettings(), recipe)[0], recipe)

    def find() -> "Run | None":
        # looking up stages of an unfinished run would delay its start
        whole = recipe.model_dump(mode="json")
        if remake or server.named() or not runs.is_finished(MachineSettings().home, recipe.name, whole):
            return None
        report, lines = reuse.reuse(flow, recipe, MachineSettings()) or (None, ())
        for line in lines:
            typer.echo(line, err=True)
        return report

    report = in_flow(flow, recipe.name, lambda: getattr(pipeline, flow)(recipe), find)
    print_texts(run_parts(report, name, settings))


def _default_folder() -> Path:
    return Path(MachineSettings().local_folder) / "harvest"


def _harvest(out: Path) -> None:
    def say(line: str) -> None:
        typer.echo(f"harvest: {line}", err=True)

    say(f"writing the documentation of the installed packages as WARC files to {out}")
    start, ended, count = time.monotonic(), threading.Event(), ""

    def watch() -> None:
        while not ended.wait(_LINE_SECONDS):
            say(f"{progress_bars.duration(time.monotonic() - start)} elapsed{count}")

    def progress(done: int, total: int) -> None:
        nonlocal count
        count = f", {done:,} of {total:,} modules" if done < total else ", all modules; writing the pages of files"
        bar.update(task, completed=done, total=total)

    with progress_bars.progress_bar() as bar:
        task = bar.add_task("modules", total=None)
        lines = threading.Thread(target=watch, name="harvest lines", daemon=True)
        if bar.disable:
            lines.start()
        try:
            report = harvesting.harvest(out, progress=progress)
        finally:
            ended.set()
    print_texts([f"harvest: {report.pages:,} pages in {out}"])
