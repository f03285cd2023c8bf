"""The command line: `gristmill demo | run | harvest | status | show | lineage`."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flows import inspection, pipeline, recipe
from flows import lineage as tracing
from flows.runner import progress
from flows.settings import MachineSettings
from tasks import harvest as harvesting

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    help="Web crawls in, a trained language model out, and a reason for every document that was dropped.\n\n"
    "Where things are kept and how many workers there are is set in the environment: GRISTMILL_HOME (default "
    ".gristmill), GRISTMILL_EXECUTOR (serial, threads, local, dask), GRISTMILL_WORKERS, GRISTMILL_DASK_ADDRESS, "
    "GRISTMILL_MLFLOW_URI, GRISTMILL_TRAINING_PROCESSES; PREFECT_API_URL names a Prefect server.",
)
console = Console(width=None if sys.stdout.isatty() else 120)


@app.command()
def demo() -> None:
    """Harvest the documentation of the installed packages as WARC files and run the recipe `demo` on them."""
    settings = MachineSettings()
    _harvest(Path(settings.local_folder) / "harvest")
    pipeline("demo").print(console)


@app.command()
def run(
    name: Annotated[str, typer.Argument(metavar="RECIPE", help="a YAML file, or the name of a shipped recipe")],
) -> None:
    """Run a recipe from its WARC files to a trained model. What is finished already is reused.

    The files of a recipe's sources may be paths, globs, https:// or s3:// addresses, or lists such as Common
    Crawl's warc.paths.gz.
    """
    pipeline(recipe.load(name)).print(console)


@app.command()
def harvest(
    out: Annotated[Path | None, typer.Argument(help="folder to write; default: harvest in the home")] = None,
) -> None:
    """Write the documentation of the installed packages as WARC 1.1 files: a crawl that needs no network."""
    _harvest(out or Path(MachineSettings().local_folder) / "harvest")


@app.command()
def status() -> None:
    """The stages in the home: finished or not, documents, size of what was dropped."""
    table = Table("stage", "state", "documents in", "documents out", "top reasons for drops")
    for row in inspection.status(MachineSettings().home):
        table.add_row(*row)
    console.print(table)


@app.command()
def show(
    stage: Annotated[str, typer.Argument(help="a stage's name, or name-key as `status` prints it")],
    n: Annotated[int, typer.Option("-n", min=1, help="how many")] = 5,
    rule: Annotated[str, typer.Option(help="dropped ones instead: by this step, or this `step.rule`")] = "",
) -> None:
    """Some documents that a stage kept, or some that a rule of it dropped, with their texts and the reason."""
    for document in inspection.show(MachineSettings().home, stage, n, rule):
        console.print(document, markup=False, highlight=False)


@app.command()
def lineage(
    document: Annotated[str, typer.Argument(metavar="DOC_ID", help="an id, or how it begins, as `show` prints it")],
    characters: Annotated[int, typer.Option("-n", min=0, help="of the raw page and of its text are shown")] = 2000,
) -> None:
    """Where a document comes from: its record, read again from the source's file by its range alone, the raw page,
    the extracted text, all scores, and what every stage decided. A dropped record has a lineage too."""
    settings = MachineSettings()
    for found in tracing.trace(settings.home, document, settings.transfer):
        for line in tracing.readable(found, characters):
            console.print(line, markup=False, highlight=False, soft_wrap=True)


def _harvest(out: Path) -> None:
    with progress() as bar:
        task = bar.add_task(f"harvesting the installed documentation into {out}", total=None)
        report = harvesting.harvest(out, progress=lambda done, total: bar.update(task, completed=done, total=total))
    console.print(f"harvest: {report.pages:,} pages in {out}", highlight=False)


def main() -> None:
    """The entry point: what went wrong in one line, where the log above has the rest."""
    try:
        app()
    except (OSError, ValueError, LookupError, RuntimeError) as error:
        notes = "".join(f"\n  ({note})" for note in getattr(error, "__notes__", ()))
        Console(stderr=True).print(
            f"[bold red]gristmill:[/] {escape(f'{error}{notes}')}", highlight=False, soft_wrap=True
        )
        sys.exit(1)
