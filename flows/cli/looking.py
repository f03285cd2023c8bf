"""Commands that look at documents and stages: status, verify, show, columns, lineage, similar."""

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer
import wrapt
from rich.progress import Progress
from rich.text import Text
from rich.tree import Tree

from gristmill.flows.cli import documents as render
from gristmill.flows.cli.app import Json
from gristmill.flows.cli.terminal import console, print_each, print_result, print_texts
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.reports import status as stages
from gristmill.flows.reports.status import StageNode, StageStatus
from gristmill.flows.reports.tables import Table
from gristmill.storage.home import Verified

if TYPE_CHECKING:
    from gristmill.flows.explore.search import batches
    from gristmill.flows.reports import columns as described_columns
    from gristmill.flows.reports import dropped, finished, token_lineage
    from gristmill.flows.reports import lineage as record_lineage
    from gristmill.flows.reports import similar as near_duplicates
else:
    described_columns = wrapt.lazy_import("gristmill.flows.reports.columns")
    dropped = wrapt.lazy_import("gristmill.flows.reports.dropped")
    finished = wrapt.lazy_import("gristmill.flows.reports.finished")
    record_lineage = wrapt.lazy_import("gristmill.flows.reports.lineage")
    near_duplicates = wrapt.lazy_import("gristmill.flows.reports.similar")
    token_lineage = wrapt.lazy_import("gristmill.flows.reports.token_lineage")
    batches = wrapt.lazy_import("gristmill.flows.explore.search.batches")

SHOWN = 1500  # characters of a text
NARROW = 140  # columns: below this reasons stand in lines of their own, for a rule's name is what --rule takes


def status_lines(rows: Iterable[StageStatus]) -> list[str]:
    """A line for each stage, with tabs between the columns: for a pipe, nothing is cut off."""
    return ["\t".join(row) for row in stages.table(rows).texts()[1]]


def status_table(rows: Iterable[StageStatus], width: int) -> Table:
    """The table of stages, in so many columns of a terminal, at least 80."""
    table = stages.table(rows)
    if width >= NARROW:
        return table
    shown = [[row[:-1], *(("", f"  {reason}") for reason in row[-1].split(", ") if reason)] for row in table.rows]
    return Table(table.columns[:-1], [line for lines in shown for line in lines])


def stage_tree(recipe: str, nodes: Iterable[StageNode]) -> Tree:
    """A recipe's stages, each with the first 8 characters of its key, its documents and tokens."""
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
    """What was read of a stage or of a checkpoint, and what is wrong with it."""
    name = result.folder.rpartition("/stages/")[2]
    if not result.damages:
        return f"{name}: {result.files:,} files, {result.bytes:,} bytes, as they were written"
    wrong = [f"  {damage.path} {damage.trouble}" for damage in result.damages]
    what = "the checkpoint" if "/" in name else "the stage's folder"
    return "\n".join([f"{name}: damaged; remove {what} and run the recipe again", *wrong])


def status(
    tree: Annotated[
        bool, typer.Option("--tree", help="of each recipe the stages of its last run, and what each needed on the side")
    ] = False,
    as_json: Json = False,
) -> None:
    """In order of time: finished or not, the recipe whose last run had the stage, documents in and out, and what was
    dropped."""
    rows = stages.status(MachineSettings().home)
    trees, remarks = stages.trees(rows), [row.trouble for row in rows if row.trouble]
    if tree:
        parts: list[Any] = [stage_tree(recipe, nodes) for recipe, nodes in trees.items()]
    else:
        parts = [status_table(rows, console().width)] if sys.stdout.isatty() else status_lines(rows)
    print_result(trees if tree else rows, [*parts, *remarks], as_json)


def verify(
    target: Annotated[
        str,
        typer.Argument(metavar="RECIPE|STAGE", help="as for `run`; or a stage's name, or name-key of `home status`"),
    ],
    as_json: Json = False,
) -> None:
    """Compare every file with what was written, also those of checkpoints. Exits with 1 if a file is damaged or
    missing, or documents are not accounted for."""
    results = print_each(finished.verify_stages(target), verified_line, as_json)
    if any(verified.damages for verified in results):
        raise typer.Exit(1)


def show(
    stage: Annotated[
        str,
        typer.Argument(
            help="`documents`: curated ones; a stage's name, or name-key as `home status` prints it; `dropped`; `edits`"
        ),
    ],
    n: Annotated[int, typer.Option("-n", min=1, help="how many, of each stage")] = 5,
    rule: Annotated[
        str,
        typer.Option(help="by a step or a `step.rule`; `gopher.words` finds gopher_quality.words"),
    ] = "",
    where: Annotated[
        str,
        typer.Option(metavar="EXPR", help="those for which this is true, as `gristmill recipe columns` names columns"),
    ] = "",
) -> None:
    """As `documents` the curated ones, of each recipe that has run; `documents-KEY`, the stage's whole name, shows what
    was extracted, before any decision. With --rule, or as `dropped`, documents that were dropped: why, and the text,
    with the offending part in ⟦brackets⟧. As `edits`, what was cut out of texts.

    gristmill explain show documents --where "quality > 0.9 and host != 'a.example'" -n 20

    gristmill explain show dropped --where "rule = 'min_words' and host = 'a.example'"   what was known of it then"""
    home = MachineSettings().home
    if where and stage == "edits":
        raise typer.BadParameter("--where chooses among documents, not among edits: take `dropped`, or a stage")
    if stage == "edits":
        print_texts(render.edit(one) for one in dropped.edits(home, rule, n))
    elif rule or stage == "dropped":
        print_texts(render.dropped(one, SHOWN) for one in dropped.dropped(home, stage, rule, n, where))
    else:
        print_texts(line for kept in stages.show(home, stage, n, where) for line in render.kept(kept, SHOWN))


def columns(
    name: Annotated[str, typer.Argument(metavar="RECIPE", help="a YAML file, or the name of a shipped recipe")],
    at: Annotated[str, typer.Option(metavar="STEP", help="in the place of this step; default: behind all steps")] = "",
    as_json: Json = False,
) -> None:
    """Columns for the step `where`, for --where and for `mixture.by`: type, meaning, and the step that measures it.

    Where the recipe's run is finished, also the share of documents without a value, of numbers the 1%, 25%, 50%, 75%
    and 99% quantiles, and the most common texts. Texts of documents are not read.

    gristmill recipe columns recipe.yaml

    gristmill recipe columns recipe.yaml --at where   of the documents that arrive at the step `where`"""
    description = described_columns.columns(name, at, MachineSettings())
    print_result(description, render.column_lines(description), as_json)


def lineage(
    document: Annotated[
        str | None,
        typer.Argument(
            metavar="[DOC_ID|RECIPE]", help="an id, or how it begins, as `explain show` prints it; with --step a recipe"
        ),
    ] = None,
    shard: Annotated[
        str | None, typer.Option(help="a token shard: its path, or as `tokens-KEY/train-00000.bin` in the home")
    ] = None,
    token: Annotated[int | None, typer.Option(help="of that shard, counted from 0")] = None,
    step: Annotated[
        int | None, typer.Option(help="of the recipe's training, counted from 1: the documents of its batch")
    ] = None,
    characters: Annotated[int, typer.Option("-n", min=0, help="of the raw page and of its text are shown")] = 2000,
    as_json: Annotated[bool, typer.Option("--json", help="with --step: print JSON")] = False,
) -> None:
    """The record is read again from the source's file, by its range only: the raw page, the extracted text, all scores,
    and what every stage decided. A dropped record has a lineage, too.

    Of a token also whether the tokens of its document are the same when they are derived from the record again; exits
    with 1 if they are not.

    With --step what a step of a training read: `gristmill explain lineage RECIPE --step 1200` leads from a spike of the
    loss to the documents of its batch, those with the most tokens first.
    """
    machine = MachineSettings()
    if step is not None:
        _batch(document, step, as_json)
        return
    if document is not None and shard is None and token is None:
        result = record_lineage.trace(machine.home, document, machine.remote_io)
        print_texts(line for one in result for line in render.lineage(one, characters))
        return
    if document is not None or shard is None or token is None:
        raise typer.BadParameter("give a document's id, or a token by --shard and --token")

    traced = token_lineage.trace_token(machine.home, shard, token, machine.remote_io)
    print_texts(render.token_lineage(traced, characters))
    if not traced.derived.same(traced.place):
        raise typer.Exit(1)


def _batch(recipe: str | None, step: int, as_json: bool) -> None:
    if recipe is None:
        raise typer.BadParameter(
            "name the recipe whose training made the step: gristmill explain lineage RECIPE --step 1200"
        )

    contents = batches.batch_of(recipe, step, MachineSettings())
    print_result(contents, render.batch(contents), as_json)


def similar(
    document: Annotated[
        str, typer.Argument(metavar="DOC_ID|FILE", help="an id, or how it begins; or a text file in UTF-8")
    ],
    threshold: Annotated[float, typer.Option(min=0.01, max=1, help="least Jaccard similarity")] = 0.5,
    n: Annotated[int, typer.Option("-n", min=0, help="how many documents, the likest first")] = 10,
    bands: Annotated[
        int | None, typer.Option(min=2, help="default: those of the step that the signatures were made for")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="signature values of a band; default: likewise")] = None,
    redis: Annotated[
        str, typer.Option(help="redis://host:port/db that keeps the index; default: that of GRISTMILL_REDIS")
    ] = "",
) -> None:
    """Searches all documents that have signatures. Prints the exact Jaccard similarity, what became of each document,
    and the first passage in which they differ.

    Without a Redis an index in memory is filled for this one look-up, shard by shard: about 12,000 documents a second
    and 5.5 kB for each of the largest shard. A Redis is filled once for each stage of signatures, with about 1,700
    documents a second and 6.5 kB for each; then the index answers in milliseconds, beside which the command itself has
    all documents' ids to read. Its keys begin with `gristmill:`."""
    machine = MachineSettings()
    address = redis or machine.redis.get_secret_value()
    with Progress(console=console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("")

        def progress(stage: str, done: int, total: int) -> None:
            bar.update(task, description=f"index of {stage}", completed=done, total=total)

        matches = near_duplicates.look_up(machine.home, document, address, bands, rows, threshold, n, progress)
        print_texts(text for one in matches for text in render.look_up(one))
