"""Commands that run something: demo, run, harvest."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.app import Limit, app, console, recipe_to_run, settings


@app.command()
def demo() -> None:
    """Harvest the documentation of the installed packages as WARC files and run the recipe `demo` on them."""
    _harvest(_default_folder())
    _run("demo", None)


@app.command()
def run(
    name: Annotated[str, typer.Argument(metavar="RECIPE", help="a YAML file, or the name of a shipped recipe")],
    limit: Limit = None,
) -> None:
    """Run a recipe from its WARC files to a trained model. What is finished already is reused.

    The files of a recipe's sources may be paths, globs, https:// or s3:// addresses, or lists such as Common
    Crawl's warc.paths.gz.
    """
    _run(name, limit)


@app.command()
def harvest(
    out: Annotated[Path | None, typer.Argument(help="folder to write; default: harvest in the home")] = None,
) -> None:
    """Write the documentation of the installed packages as WARC 1.1 files: a crawl that needs no network."""
    _harvest(out or _default_folder())


def _run(name: str, limit: int | None) -> None:
    recipe = recipe_to_run(name, limit)  # a wrong recipe is an error before Prefect starts

    from flows.cli.render_run import print_report
    from flows.prefect_env import EMBEDDED

    if EMBEDDED:  # the server starts while Prefect is imported here
        from flows import prefect_server

        prefect_server.start(Path(settings().prefect_home))

    from flows.pipeline import pipeline

    try:
        report = pipeline(recipe)
    except (KeyboardInterrupt, SystemExit):
        typer.echo("gristmill: stopped; what is finished is kept, and the same command goes on from there", err=True)
        raise
    print_report(report, console())


def _default_folder() -> Path:
    return Path(settings().local_folder) / "harvest"


def _harvest(out: Path) -> None:
    from flows import demo as harvesting
    from flows.progress_bar import progress_bar

    with progress_bar() as bar:
        task = bar.add_task(f"harvesting the installed documentation into {out}", total=None)
        report = harvesting.harvest(out, progress=lambda done, total: bar.update(task, completed=done, total=total))
    console().print(f"harvest: {report.pages:,} pages in {out}", highlight=False)
