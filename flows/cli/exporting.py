"""Commands that exchange data with others: export, from-tokens, join, import and takedown."""

import signal
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
import wrapt
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from gristmill.flows.cli.app import FinishedRecipe, Json, Limit, ModelArgument, RecipeArgument
from gristmill.flows.cli.in_flow import recipe_to_run
from gristmill.flows.cli.options import with_options
from gristmill.flows.cli.running import run_flow
from gristmill.flows.cli.terminal import console, print_result, print_texts
from gristmill.flows.experiments.options import ImportRequest
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.columns import check_export
from gristmill.flows.recipe.recipe import load
from gristmill.tasks.documents.export import Export
from gristmill.tasks.engine.extras import require

if TYPE_CHECKING:
    from gristmill.flows.experiments.models import evaluation, imported_run, joining, recipe_data, token_training
    from gristmill.flows.explore.dependents import erasure, receipt
    from gristmill.flows.explore.dependents import lines as dependents_lines
    from gristmill.flows.explore.dependents import takedown as takedowns
    from gristmill.flows.explore.search import reading_order as reading_orders
    from gristmill.flows.reports import finished
    from gristmill.flows.reports.dependents import graph as home_graph
    from gristmill.flows.reports.provenance import folder as provenance_papers
    from gristmill.flows.stages import export
    from gristmill.samples.formats import folder
    from gristmill.training.hub import model_folder
else:
    erasure = wrapt.lazy_import("gristmill.flows.explore.dependents.erasure")
    receipt = wrapt.lazy_import("gristmill.flows.explore.dependents.receipt")
    dependents_lines = wrapt.lazy_import("gristmill.flows.explore.dependents.lines")
    takedowns = wrapt.lazy_import("gristmill.flows.explore.dependents.takedown")
    reading_orders = wrapt.lazy_import("gristmill.flows.explore.search.reading_order")
    home_graph = wrapt.lazy_import("gristmill.flows.reports.dependents.graph")
    evaluation = wrapt.lazy_import("gristmill.flows.experiments.models.evaluation")
    joining = wrapt.lazy_import("gristmill.flows.experiments.models.joining")
    recipe_data = wrapt.lazy_import("gristmill.flows.experiments.models.recipe_data")
    token_training = wrapt.lazy_import("gristmill.flows.experiments.models.token_training")
    export = wrapt.lazy_import("gristmill.flows.stages.export")
    finished = wrapt.lazy_import("gristmill.flows.reports.finished")
    provenance_papers = wrapt.lazy_import("gristmill.flows.reports.provenance.folder")
    folder = wrapt.lazy_import("gristmill.samples.formats.folder")
    model_folder = wrapt.lazy_import("gristmill.training.hub.model_folder")
    imported_run = wrapt.lazy_import("gristmill.flows.experiments.models.imported_run")


@with_options
def import_run(recipe: FinishedRecipe, request: ImportRequest, as_json: Json = False) -> None:
    """The run must use the recipe's tokens. Logs losses and model to the recipe's experiment, and evaluates the model
    like the recipe's own.

    Guide: docs/guides/other-trainers.md

    Examples:
        gristmill train import recipe.yaml --name olmo-7b --trainer olmo-core --losses metrics.jsonl
        gristmill train import recipe.yaml --name a --trainer nanogpt --losses a.csv --model hf
    """
    require("train", "importing a run")

    progress = console(stderr=True)
    result = imported_run.import_run(
        load(recipe), request, MachineSettings(), lambda line: progress.print(line, soft_wrap=True)
    )
    state = "was imported already" if result.there else "imported"
    lines = [f"{request.name}: {state}, {result.points:,} steps, MLflow run {result.run}"]
    lines += [f"{metric}  {value:.4f}" for metric, value in result.heldout.items()]
    if result.folder:
        lines.append(f"model: {result.folder}. Evaluate it:\n  gristmill train evaluate {result.folder} --tasks FOLDER")
    print_result(result, lines, as_json)


TokenTrainer = Literal["olmo-core", "torchtitan", "megatron", "nanogpt", "nanochat", "litgpt", "mosaic"]


def documents(
    name: RecipeArgument,
    to: Annotated[
        str, typer.Option("--to", metavar="DIR|s3://...", help="empty folder; default: `export: to` of the recipe")
    ] = "",
    format: Annotated[
        Literal["parquet", "jsonl"] | None,
        typer.Option(help="file format; jsonl is compressed with zstd; default: as in the recipe, or parquet"),
    ] = None,
    where: Annotated[
        str,
        typer.Option(metavar="EXPR", help="condition on columns; default: `export: where` of the recipe"),
    ] = "",
    limit: Limit = None,
) -> None:
    """Includes all signals and scores. Runs missing stages first. `gristmill recipe columns` lists the columns for
    --where.

    Guide: docs/guides/export-documents.md

    Examples:
        gristmill export documents recipe.yaml --to documents
        gristmill export documents recipe.yaml --to good --where "quality > 0.9"
    """
    recipe = recipe_to_run(name, limit)
    options = {key: value for key, value in (("to", to), ("format", format), ("where", where)) if value}
    settings = (recipe.export.model_dump() if recipe.export else {}) | options
    if "to" not in settings:
        raise ValueError(
            f"the export of {recipe.name} has no folder. Add --to FOLDER, or `export: {{to: FOLDER}}` to the recipe"
        )

    recipe = recipe.model_copy(update={"export": Export.model_validate(settings)})
    check_export(recipe)
    run_flow("corpus", name, recipe)


def model(
    name: ModelArgument,
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="empty local folder")],
    dtype: Annotated[Literal["float32", "bfloat16"], typer.Option(help="type of the weights")] = "float32",
    average: Annotated[int, typer.Option(min=1, metavar="N", help="number of newest checkpoints to average")] = 1,
) -> None:
    """Writes config, weights, tokenizer and model card, which Hugging Face libraries load.

    Guide: docs/guides/other-trainers.md

    Examples:
        gristmill export model recipe.yaml --to model
        gristmill export model recipe.yaml --to model-bf16 --dtype bfloat16
    """
    require("train", "exporting a model")

    result = evaluation.trained_model(name)
    recipe = export.recipe_of_card(result.recipe) if result.recipe else ""
    written = model_folder.write_model_folder(result.saved, to, result.name, recipe, dtype, average)
    print_texts([f"{'exported' if written else 'already exported'}: {result.name} in {to}"])


def tokens(
    name: FinishedRecipe,
    trainer: Annotated[TokenTrainer, typer.Option("--for", help="trainer that reads the tokens")],
    to: Annotated[str, typer.Option("--to", metavar="DIR|s3://...", help="empty folder")],
) -> None:
    """README.md in the folder describes the files and the first command. The same command resumes a stopped export, and
    rewrites files that differ.

    Guide: docs/guides/other-trainers.md

    Examples:
        gristmill export tokens recipe.yaml --for megatron --to tokens-megatron
        gristmill export tokens recipe.yaml --for nanogpt --to tokens-nanogpt
    """
    contents = recipe_data.token_export(name, MachineSettings())
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=None)
        done: Counter[str] = Counter()

        def progress(file: str, size: int) -> None:
            if file not in done and not sys.stderr.isatty():
                typer.echo(f"export: {file}", err=True)
            done[file] += size
            bar.update(task, description=file, completed=done.total())

        written = folder.write_export(contents, trainer, to, progress)
    source = contents.source
    read = f"{len(source):,} samples of {source.seq_len:,} tokens"
    print_texts([f"{'exported' if written else 'already exported'}: {contents.name} for {trainer} in {to}, {read}"])


def provenance(
    recipe: FinishedRecipe,
    to: Annotated[
        str, typer.Option("--to", metavar="DIR|s3://...", help="empty folder, or one with papers of this run")
    ],
    as_json: Json = False,
) -> None:
    """Includes summaries for the EU and California, Croissant metadata, and a table of all records. Prints the query of
    each number. Reads only the home.

    Guide: docs/guides/provenance.md

    Examples:
        gristmill export provenance recipe.yaml --to papers
        gristmill export provenance recipe.yaml --to s3://bucket/papers --json
    """
    run = finished.finished(recipe, MachineSettings())
    progress = console(stderr=True)
    papers = provenance_papers.write_papers(run, to, lambda line: progress.print(f"provenance: {line}", soft_wrap=True))
    of_model = " and its trained model" if papers.model else ""
    line = (
        f"wrote {papers.figures} figures and {papers.annotations:,} annotations of {run.recipe.name}{of_model} to {to}"
    )
    print_result(papers, [line], as_json)


def reading_order(
    recipe: FinishedRecipe,
    to: Annotated[
        str, typer.Option("--to", metavar="DIR|s3://...", help="empty folder, or one with this export, which continues")
    ],
    as_json: Json = False,
) -> None:
    """Writes Parquet files with a row for each piece of a document in each sample: step, sample, place, document, and
    where its tokens are. Reads no texts.

    Guide: docs/guides/search.md

    Examples:
        gristmill export reading-order recipe.yaml --to order
        gristmill export reading-order recipe.yaml --to s3://bucket/order --json
    """
    require("train", "computing what a training read")

    progress = console(stderr=True)
    order = reading_orders.write_reading_order(
        recipe, to, MachineSettings(), lambda line: progress.print(f"reading order: {line}", soft_wrap=True)
    )
    first, last = order.steps
    print_result(
        order, [f"wrote {order.rows:,} rows for the steps {first:,} to {last:,} of {order.model} to {to}"], as_json
    )


def train_tokens(
    settings: Annotated[
        Path, typer.Argument(metavar="SETTINGS", help="YAML file with token files, model and training")
    ],
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="local folder of the model")],
) -> None:
    """Trains without a recipe. The same command resumes a stopped run.

    Guide: docs/explanation/training.md

    Examples:
        gristmill train from-tokens settings.yaml --to model
    """
    require("train", "training a model")

    result = token_training.train_tokens(
        token_training.load(settings), to, MachineSettings(), on_line=lambda line: print_texts([line])
    )
    losses = f"{result['heldout/loss']:.4f}, unigram model {result['unigram/loss']:.4f}"
    print_texts([f"held-out loss: {losses}", f"evaluate the model: gristmill train evaluate {to}"])


def join(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE|RUN.JSON|s3://...",
            help="recipe that node 0 trains; run.json in its model's folder; or address that node 0 prints",
        ),
    ],
    wait: Annotated[
        float, typer.Option(min=0.0, metavar="SECONDS", help="seconds to wait for the start of node 0")
    ] = 600.0,
) -> None:
    """Runs on every machine except the first, which runs `gristmill run`. The recipe's tokens must be finished.

    Guide: docs/guides/several-machines.md

    Examples:
        gristmill train join recipe.yaml
        gristmill train join recipe.yaml --wait 3600
    """
    require("train", "training a model")

    # the ranks end after a checkpoint, as those of node 0 do
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    raise typer.Exit(joining.join(MachineSettings(), run, wait, say=lambda line: print_texts([line])))


def takedown(
    name: Annotated[
        str, typer.Argument(metavar="[RECIPE]", help="YAML file with a takedown list that can be written")
    ] = "",
    entry: Annotated[
        list[str] | None, typer.Option("--entry", metavar="ENTRY", help="id, URL, folder/* or host; repeatable")
    ] = None,
    lists: Annotated[
        list[Path] | None, typer.Option("--list", metavar="FILE", help="file of entries; repeatable")
    ] = None,
    text_like: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="UTF-8 text; documents like it; repeatable")
    ] = None,
    exports: Annotated[
        list[str] | None, typer.Option("--export", metavar="FOLDER", help="export to search; repeatable")
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="entries in the list, run, removal, receipt")] = False,
    check: Annotated[str, typer.Option(metavar="ID", help="receipt for which home and exports are searched")] = "",
    as_json: Json = False,
) -> None:
    """Also finds near-duplicates. Without --write, prints what would be done. Exits with 1 if a file still has a part
    of the documents.

    Guide: docs/guides/take-down.md

    Examples:
        gristmill home takedown recipe.yaml --entry https://example.com/page
        gristmill home takedown recipe.yaml --text-like page.txt --write
    """
    settings = MachineSettings()
    if check:
        _search(settings, receipt.read(settings.home, check), exports or (), as_json)
        return
    if not name:
        raise typer.BadParameter("the recipe is missing: gristmill home takedown RECIPE --entry ENTRY")
    request = erasure.Request(
        tuple(entry or ()), tuple(map(str, lists or ())), tuple(str(path) for path in text_like or ())
    )
    recipe = recipe_to_run(name, None)
    made = takedowns.plan(settings, recipe, request, exports or ())
    if not write:
        lines = [*dependents_lines.parts(made.report), *takedowns.plan_lines(made)]
        value = {"documents": made.targets, "lines": made.lines, "work": made.work, "affected": made.report}
        print_result(value, [*lines, "nothing was changed. Add --write to take the documents down"], as_json)
        return
    begun = takedowns.write(settings, made)
    typer.echo(f"receipt: {begun.path}", err=True)
    changed = recipe_to_run(name, None).model_copy(update={"export": None})  # an export needs a new folder
    run_flow("corpus" if changed.mixture is None else "tokens", name, changed)
    for label in takedowns.remove_released(settings, begun, changed.name):
        typer.echo(f"removed: {label}", err=True)
    _search(settings, begun, exports or (), as_json)


def _search(settings: MachineSettings, begun: "receipt.Receipt", exports: Sequence[str], as_json: bool) -> None:
    """Search for what is left, and print the receipt. Exits with 1 unless nothing is."""
    with Progress(TextColumn("{task.description}"), console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        graph = home_graph.graph_of(settings.home)
        found = receipt.search(
            settings, graph, begun, exports, lambda path: bar.update(task, description=f"searching {path}")
        )
    print_result({"id": found.id, "clean": found.is_clean, **found.value}, receipt.lines(found), as_json)
    if not found.is_clean:
        raise typer.Exit(1)
