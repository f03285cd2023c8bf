"""Commands that look at documents and stages: status, verify, show, columns, lineage, similar."""

import sys
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
import wrapt
from rich.live import Live
from rich.progress import Progress
from rich.text import Text
from rich.tree import Tree

from gristmill.flows.cli import documents as render
from gristmill.flows.cli.app import Json, RecipeArgument
from gristmill.flows.cli.terminal import console, print_each, print_result, print_texts
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.reports import status as stages
from gristmill.flows.reports.status import StageNode, StageStatus
from gristmill.flows.reports.tables import Table
from gristmill.storage.home import Verified

if TYPE_CHECKING:
    from gristmill.flows.explore.search import batches, readings
    from gristmill.flows.machine import home_progress as run_progress
    from gristmill.flows.machine.home_progress import HomeProgress, SlurmProgress, StageProgress
    from gristmill.flows.reports import columns as described_columns
    from gristmill.flows.reports import dropped, finished, token_lineage
    from gristmill.flows.reports import lineage as record_lineage
    from gristmill.flows.reports import similar as near_duplicates
    from gristmill.tasks.engine.slurm.meeting import TaskState
else:
    described_columns = wrapt.lazy_import("gristmill.flows.reports.columns")
    dropped = wrapt.lazy_import("gristmill.flows.reports.dropped")
    finished = wrapt.lazy_import("gristmill.flows.reports.finished")
    record_lineage = wrapt.lazy_import("gristmill.flows.reports.lineage")
    run_progress = wrapt.lazy_import("gristmill.flows.machine.home_progress")
    near_duplicates = wrapt.lazy_import("gristmill.flows.reports.similar")
    token_lineage = wrapt.lazy_import("gristmill.flows.reports.token_lineage")
    batches = wrapt.lazy_import("gristmill.flows.explore.search.batches")
    readings = wrapt.lazy_import("gristmill.flows.explore.search.readings")

TEXT_CHARACTERS = 1500  # characters of a text
_WATCH_SECONDS = 5.0  # between two looks at unfinished runs
NARROW = 140  # columns: in a narrower terminal each reason has a line of its own, so that --rule can be copied


def status_lines(rows: Iterable[StageStatus]) -> list[str]:
    """Return a line for each stage, with tabs between the columns. Nothing is cut off."""
    return ["\t".join(row) for row in stages.table(rows).texts()[1]]


def status_table(rows: Iterable[StageStatus], width: int) -> Table:
    """Return the table of stages for a terminal of `width` columns, at least 80."""
    table = stages.table(rows)
    if width >= NARROW:
        return table
    blocks = [[row[:-1], *(("", f"  {reason}") for reason in row[-1].split(", ") if reason)] for row in table.rows]
    return Table(table.columns[:-1], [line for block in blocks for line in block])


def stage_tree(recipe: str, nodes: Iterable[StageNode]) -> Tree:
    """Return the stages of a recipe, each with the first 8 characters of its key, its documents and tokens."""
    tree = Tree(Text(recipe, style="bold"))
    for node in nodes:
        _grow(tree, node)
    return tree


def _grow(tree: Tree, node: StageNode) -> None:
    row = node.stage
    name, _, key = row.stage.rpartition("-")
    counts = [row.documents, f"{row.tokens:,} tokens" if row.tokens is not None else ""]
    if row.state != "finished":
        counts = [f"{row.state}, {row.jobs_done:,} jobs done" if row.state == "unfinished" else row.state]
    branch = tree.add(Text("  ".join([name, key[:8], *filter(None, counts)])))
    for other in node.aside:
        _grow(branch, other)


def verified_line(result: Verified) -> str:
    """Describe the files that were read of a stage or of a checkpoint, and their damages."""
    name = result.folder.rpartition("/stages/")[2]
    if not result.damages:
        return f"{name}: {result.files:,} files, {result.bytes:,} bytes, intact"
    wrong = [f"  {damage.path} {damage.trouble}" for damage in result.damages]
    what = "the checkpoint" if "/" in name else "the stage's folder"
    return "\n".join([f"{name}: damaged. Delete {what} and run the recipe again", *wrong])


def progress_tables(progress: "HomeProgress", now: float) -> list[Table | str]:
    """The progress as tables and lines. `now`: seconds since 1970; states of tasks show their age at this time."""
    if not progress.runs and not progress.slurm:
        return ["no run is in progress"]
    parts: list[Table | str] = []
    for run in progress.runs:
        parts += [f"{run.run}  {run.flow or 'run'}, began {run.began} UTC", _stages(run.stages)]
    for each in progress.slurm:
        parts += [_driver(each)]
        if each.tasks:
            parts.append(_tasks(each.tasks, now))
        parts += [f"  {_time(event.time)}  {event.text}" for event in each.events]
    return parts


def _stages(stages: "Sequence[StageProgress]") -> Table:
    rows = []
    for stage in stages:
        left = stage.seconds_left
        cells = (stage.documents, stage.jobs, stage.rate, "" if left is None else run_progress.clock(left))
        rows.append((stage.stage, stage.state, *cells, stage.basis))
    return Table(("stage", "state", "#documents", "#done", "#rate", "#left", "estimated from"), rows)


def _driver(each: "SlurmProgress") -> str:
    if each.scheduler is None:
        return f"SLURM {each.name}: no scheduler; workers wait for the next start of the run"
    place = each.scheduler
    restarts = f", restart {place.restarts}" if place.restarts else ""
    return f"SLURM {each.name}: last started on {place.host} at {_time(place.began)}{restarts}"


def _tasks(tasks: "Sequence[TaskState]", now: float) -> Table:
    rows = [
        (
            str(task.task),
            task.job,
            task.host,
            "lost" if run_progress.is_lost(task, now) else task.state,
            str(task.processes),
            str(task.restarts),
            f"{run_progress.clock(max(now - task.seen, 0.0))} ago",
        )
        for task in tasks
    ]
    return Table(("#task", "job", "host", "state", "#processes", "#restarts", "last seen"), rows)


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def watch_runs(reader: "run_progress.Reader", as_json: bool) -> None:
    """Show the progress of runs in a terminal until none is unfinished; print it once elsewhere, and as JSON."""
    progress, lines = reader.read(), console()
    if as_json or not sys.stdout.isatty():
        print_result(progress, progress_tables(progress, time.time()), as_json)
        return
    with Live(console=console(), auto_refresh=False, vertical_overflow="visible") as live:
        while True:
            with lines.capture() as capture:
                print_texts(progress_tables(progress, time.time()), lines)
            live.update(Text.from_ansi(capture.get().rstrip()), refresh=True)
            if not progress.runs:
                return
            time.sleep(_WATCH_SECONDS)
            progress = reader.read()


def status(
    tree: Annotated[bool, typer.Option("--tree", help="tree of the stages of each recipe's last run")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="progress of unfinished runs, until they end")] = False,
    as_json: Json = False,
) -> None:
    """Lists stages in order of time, with their state, the recipe whose last run used them, and the rules that dropped
    most documents. --watch needs only the home, on any machine.

    Examples:
        gristmill home status
        gristmill home status --watch
    """
    settings = MachineSettings()
    home = settings.home
    if watch:
        watch_runs(run_progress.Reader(home, settings.slurm.folder), as_json)
        return
    rows = stages.status(home)
    trees, remarks = stages.trees(rows), [row.trouble for row in rows if row.trouble]
    if not rows:
        remarks.append(f"no stages in {home}")
    for run in run_progress.slurm_progress(settings.slurm.folder):
        remarks.append(f"{_driver(run)}; {len(run.tasks)} task{'s' * (len(run.tasks) != 1)}, see --watch")
    if tree:
        parts: list[Any] = [stage_tree(recipe, nodes) for recipe, nodes in trees.items()]
    else:
        parts = [status_table(rows, console().width)] if sys.stdout.isatty() else status_lines(rows)
    print_result(trees if tree else rows, [*parts, *remarks], as_json)


def verify(
    target: Annotated[
        str,
        typer.Argument(metavar="RECIPE|STAGE", help="finished recipe; or stage, as name or name-key of `home status`"),
    ],
    as_json: Json = False,
) -> None:
    """Compares every file with its stored digest, also files of checkpoints. Exits with 1 if a file is damaged or
    missing, or if documents are not accounted for.

    Examples:
        gristmill home verify recipe.yaml
        gristmill home verify tokens
    """
    results = print_each(finished.verify_stages(target), verified_line, as_json)
    if any(verified.damages for verified in results):
        raise typer.Exit(1)


def show(
    stage: Annotated[
        str,
        typer.Argument(
            metavar="STAGE", help="documents, dropped, edits, or stage, as name or name-key of `home status`"
        ),
    ],
    n: Annotated[int, typer.Option("-n", min=1, help="documents to print of each stage")] = 5,
    rule: Annotated[
        str,
        typer.Option(metavar="STEP.RULE", help="rule, or step, that dropped the documents"),
    ] = "",
    where: Annotated[
        str,
        typer.Option(metavar="EXPR", help="condition on the columns that `gristmill recipe columns` lists"),
    ] = "",
) -> None:
    """`edits` are parts that steps cut out of texts. Of a dropped document, prints the reason and the text with the
    offending part in ⟦brackets⟧.

    Guide: docs/guides/why-dropped.md

    Examples:
        gristmill explain show dropped --rule gopher_quality.words
        gristmill explain show documents --where "quality > 0.9" -n 20
    """
    home = MachineSettings().home
    if where and stage == "edits":
        raise typer.BadParameter("--where selects documents, not edits. Use `dropped` or a stage instead of `edits`")
    if stage == "edits":
        print_texts(render.edit(one) for one in dropped.edits(home, rule, n))
    elif rule or stage == "dropped":
        print_texts(render.dropped(one, TEXT_CHARACTERS) for one in dropped.dropped(home, stage, rule, n, where))
    else:
        print_texts(line for kept in stages.show(home, stage, n, where) for line in render.kept(kept, TEXT_CHARACTERS))


def columns(
    name: RecipeArgument,
    step: Annotated[
        str, typer.Option("--at", metavar="STEP", help="step at whose place columns are listed; default: after all")
    ] = "",
    as_json: Json = False,
) -> None:
    """Prints type, meaning and step of each column; after a finished run also the share of missing values, quantiles
    and common values.

    Guide: docs/guides/expressions.md

    Examples:
        gristmill recipe columns recipe.yaml
        gristmill recipe columns recipe.yaml --at gopher_quality
    """
    description = described_columns.columns(name, step, MachineSettings())
    print_result(description, render.column_lines(description), as_json)


def lineage(
    document: Annotated[
        str | None,
        typer.Argument(metavar="DOC_ID|RECIPE", help="id of a document, or its beginning; with --step a recipe"),
    ] = None,
    shard: Annotated[
        str | None, typer.Option(metavar="FILE", help="token shard: path, or tokens-KEY/train-00000.bin of the home")
    ] = None,
    token: Annotated[int | None, typer.Option(metavar="N", help="number of a token in --shard, from 0")] = None,
    step: Annotated[int | None, typer.Option(metavar="N", help="number of a training step, from 1")] = None,
    losses: Annotated[
        bool, typer.Option("--losses", help="with --step: loss of each document, by the weights before the step")
    ] = False,
    trainings: Annotated[
        bool, typer.Option("--trainings", help="steps of each finished training that read the document")
    ] = False,
    characters: Annotated[int, typer.Option("-n", min=0, help="characters to print of page and text")] = 2000,
    as_json: Annotated[bool, typer.Option("--json", help="with --step or --trainings: JSON output")] = False,
) -> None:
    """Reads the record again and prints page, text, scores and every decision. With --step, prints the documents of the
    batch of a training step. Exits with 1 if a token cannot be derived again.

    Examples:
        gristmill explain lineage DOC_ID --trainings
        gristmill explain lineage recipe.yaml --step 12 --losses
    """
    machine = MachineSettings()
    if trainings:
        if document is None or step is not None or shard is not None or losses:
            raise typer.BadParameter("--trainings needs only a document: gristmill explain lineage DOC_ID --trainings")
        found = [*readings.readings(document, machine)]
        print_result(found, render.readings(found), as_json)
        return
    if step is not None:
        _batch(document, step, losses, as_json)
        return
    if losses:
        raise typer.BadParameter("--losses needs --step. Add the step: --step 1200 --losses")
    if document is not None and shard is None and token is None:
        result = record_lineage.trace(machine.home, document, machine.remote_io)
        print_texts(line for one in result for line in render.lineage(one, characters))
        return
    if document is not None or shard is None or token is None:
        raise typer.BadParameter("the document is missing. Give the id of a document, or --shard and --token")

    traced = token_lineage.trace_token(machine.home, shard, token, machine.remote_io)
    print_texts(render.token_lineage(traced, characters))
    if not traced.derived.same(traced.place):
        raise typer.Exit(1)


def _batch(recipe: str | None, step: int, losses: bool, as_json: bool) -> None:
    if recipe is None:
        raise typer.BadParameter(
            "the recipe is missing. Name the recipe that was trained: gristmill explain lineage RECIPE --step 1200"
        )

    say = console(stderr=True)
    contents = batches.batch_of(
        recipe, step, MachineSettings(), losses, lambda line: say.print(line, soft_wrap=True, highlight=False)
    )
    print_result(contents, render.batch(contents), as_json)


def similar(
    document: Annotated[
        str, typer.Argument(metavar="DOC_ID|FILE", help="id of a document, or its beginning; or UTF-8 text file")
    ],
    threshold: Annotated[float, typer.Option(min=0.01, max=1, help="minimum Jaccard similarity")] = 0.5,
    n: Annotated[int, typer.Option("-n", min=0, help="documents to print, most similar first")] = 10,
    bands: Annotated[
        int | None, typer.Option(min=2, help="bands of a signature; default: as in the recipe's step")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="rows of a band; default: as in the recipe's step")] = None,
    redis: Annotated[
        str, typer.Option(metavar="URL", help="redis://host:port/db for the index; default: GRISTMILL_REDIS")
    ] = "",
) -> None:
    """Prints the Jaccard similarity, the decision on each document, and the first passage that differs. Without Redis,
    each call builds an index in memory.

    Guide: docs/guides/remove-duplicates.md

    Examples:
        gristmill explain similar DOC_ID
        gristmill explain similar page.txt --threshold 0.7
    """
    machine = MachineSettings()
    address = redis or machine.redis.get_secret_value()
    with Progress(console=console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("")

        def progress(stage: str, done: int, total: int) -> None:
            bar.update(task, description=f"index of {stage}", completed=done, total=total)

        matches = near_duplicates.look_up(machine.home, document, address, bands, rows, threshold, n, progress)
        print_texts(text for one in matches for text in render.look_up(one))
