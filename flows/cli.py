"""The command line: `gristmill demo | run | harvest | status | show | lineage | rules | whatif | thresholds |
evidence | similar`.

A command imports what it needs when it runs: the flows alone, with Prefect, take seconds.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from flows.machine import MachineSettings

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    help="Web crawls in, a trained language model out, and a reason for every document that was dropped.\n\n"
    "Where things are kept and how many workers there are is set in the environment: GRISTMILL_HOME (default "
    ".gristmill), GRISTMILL_EXECUTOR (serial, threads, local, dask), GRISTMILL_WORKERS, GRISTMILL_DASK_ADDRESS, "
    "GRISTMILL_MLFLOW_URI, GRISTMILL_REDIS, GRISTMILL_TRAINING_PROCESSES; PREFECT_API_URL names a Prefect server.",
)
_SHOWN = 1500  # characters of a text

console = Console(width=None if sys.stdout.isatty() else 120)


@app.command()
def demo() -> None:
    """Harvest the documentation of the installed packages as WARC files and run the recipe `demo` on them."""
    from flows import pipeline

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
    from flows import pipeline
    from flows.recipe import load

    pipeline(load(name)).print(console)


@app.command()
def harvest(
    out: Annotated[Path | None, typer.Argument(help="folder to write; default: harvest in the home")] = None,
) -> None:
    """Write the documentation of the installed packages as WARC 1.1 files: a crawl that needs no network."""
    _harvest(out or Path(MachineSettings().local_folder) / "harvest")


@app.command()
def status() -> None:
    """The stages in the home: finished or not, documents, size of what was dropped."""
    from flows.reports import status

    table = Table("stage", "state", "documents in", "documents out", "top reasons for drops")
    for row in status.status(MachineSettings().home):
        table.add_row(*row)
    console.print(table)


@app.command()
def show(
    stage: Annotated[
        str, typer.Argument(help="a stage's name, or name-key as `status` prints it; or `dropped`, or `edits`")
    ],
    n: Annotated[int, typer.Option("-n", min=1, help="how many, of each stage")] = 5,
    rule: Annotated[
        str,
        typer.Option(help="by a step or a `step.rule`; `gopher.words` finds gopher_quality.words"),
    ] = "",
) -> None:
    """Some documents that a stage kept. With --rule, or as `dropped`, some that were dropped: why, and the text that
    the rule met, with the offending part in ⟦brackets⟧. As `edits`, what was cut out of texts."""
    from flows.reports import dropped, status

    home = MachineSettings().home
    if stage == "edits":
        for name, row in dropped.edits(home, rule, n):
            console.print(dropped.readable_cut(name, row), highlight=False, soft_wrap=True)
    elif rule or stage == "dropped":
        for found in dropped.dropped(home, stage, rule, n):
            console.print(dropped.readable(found, _SHOWN), highlight=False, soft_wrap=True)
    else:
        for document in status.show(home, stage, n, _SHOWN):
            console.print(document, markup=False, highlight=False, soft_wrap=True)


@app.command()
def lineage(
    document: Annotated[str, typer.Argument(metavar="DOC_ID", help="an id, or how it begins, as `show` prints it")],
    characters: Annotated[int, typer.Option("-n", min=0, help="of the raw page and of its text are shown")] = 2000,
) -> None:
    """Where a document comes from: its record, read again from the source's file by its range alone, the raw page,
    the extracted text, all scores, and what every stage decided. A dropped record has a lineage too."""
    from flows.reports import lineage as tracing

    settings = MachineSettings()
    for found in tracing.trace(settings.home, document, settings.remote_io):
        for line in tracing.readable(found, characters):
            console.print(line, markup=False, highlight=False, soft_wrap=True)


@app.command()
def whatif(
    name: Annotated[str, typer.Argument(metavar="RECIPE", help="as for `run`, which must have been through it")],
    settings: Annotated[
        list[str], typer.Option("--set", metavar="STEP.SETTING=VALUE", help="another threshold; may be repeated")
    ],
) -> None:
    """The funnel of a finished run under other thresholds: decisions replayed over stored signals, nothing computed
    again. Steps behind the replayed ones that look at all documents together are not replayed."""
    from flows.reports import whatif as replaying

    replay = replaying.whatif(name, replaying.parsed(settings))
    table = Table(*replaying.HEADER)
    for row in replaying.funnel(replay):
        table.add_row(*row)
    console.print(table)
    for line in replaying.remarks(replay):
        console.print(line, highlight=False)


@app.command()
def rules(
    step: Annotated[str, typer.Argument(help="of this step alone; default: of all")] = "",
) -> None:
    """The rules of all document steps: the signal that each measures, with unit and source, and its thresholds."""
    from flows.reports import rules

    for book in rules.books(step):
        table = Table(
            Column("signal", overflow="fold"),
            "unit",
            "thresholds",
            "what it counts",
            title=book.title,
            title_justify="left",
        )
        for row in book.rows:
            table.add_row(*map(escape, row))
        console.print(table)


@app.command()
def thresholds(
    name: Annotated[str, typer.Argument(metavar="RECIPE", help="as for `run`, which must have been through it")],
    reference: Annotated[str, typer.Option(help="the language whose thresholds are right: a code of `language`")],
    least: Annotated[int, typer.Option(min=1, help="documents that a language needs for a proposal")] = 1000,
) -> None:
    """Thresholds for languages, proposed from the stored signals of a finished run: those that drop the same share of a
    language's documents as the recipe's drop of the reference. Printed as a table, and as YAML for the recipe."""
    from flows.reports import thresholds as proposing

    found = proposing.propose(name, reference, least)
    table = Table(*proposing.HEADER)
    for row in proposing.rows(found):
        table.add_row(*row)
    console.print(table)
    for line in proposing.remarks(found, least):
        console.print(line, highlight=False)
    console.print(found.snippet(), markup=False, highlight=False)


@app.command()
def evidence(
    name: Annotated[str, typer.Argument(metavar="RECIPE", help="as for `run`, which must have been through `minhash`")],
) -> None:
    """Write one HTML page about a finished run's near-duplicates, and print its path: sizes of clusters, sample pairs
    side by side, measured recall against the S-curve."""
    from flows.reports import near_duplicates as showing

    console.print(showing.write(name), markup=False, highlight=False, soft_wrap=True)


@app.command()
def similar(
    document: Annotated[
        str, typer.Argument(metavar="DOC_ID|FILE", help="an id, or how it begins; or a text file in UTF-8")
    ],
    threshold: Annotated[float, typer.Option(min=0.01, max=1, help="least Jaccard similarity")] = 0.5,
    n: Annotated[int, typer.Option("-n", min=0, help="how many documents, the likest first")] = 10,
    bands: Annotated[
        int | None, typer.Option(min=2, help="default: those of the newest `candidates` made of the signatures")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="signature values of a band; default: likewise")] = None,
    redis: Annotated[
        str, typer.Option(help="redis://host:port/db that keeps the index; default: that of GRISTMILL_REDIS")
    ] = "",
) -> None:
    """Near-duplicates of a document or a text file among all documents that have signatures: exact Jaccard similarity,
    what became of them, and the first passage in which they differ.

    Without a Redis an index in memory is filled for this one look-up, shard by shard: about 12,000 documents a second
    and 5.5 kB for each of the largest shard. A Redis is filled once for each stage of signatures, with about 1,700
    documents a second and 6.5 kB for each; then the index answers in milliseconds, beside which the command itself has
    all documents' ids to read. Its keys begin with `gristmill:`.
    """
    from rich.progress import Progress

    from flows.reports import similar as looking

    settings = MachineSettings()
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("")

        def told(stage: str, done: int, total: int) -> None:
            bar.update(task, description=f"index of {stage}", completed=done, total=total)

        address = redis or settings.redis.get_secret_value()
        for looked in looking.look_up(settings.home, document, address, bands, rows, threshold, n, told):
            for text in looking.readable(looked):
                console.print(text, highlight=False, soft_wrap=True)


def _harvest(out: Path) -> None:
    from flows import demo as harvesting
    from flows.prefect_runner import progress

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
