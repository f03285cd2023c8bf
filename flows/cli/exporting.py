"""What is handed over: documents, models, and trainings on tokens of other makers."""

import signal
import sys
from collections import Counter
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
from gristmill.flows.experiments.models.options import ImportRequest
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.columns import check_export
from gristmill.flows.recipe.recipe import load
from gristmill.tasks.documents.export import Export
from gristmill.tasks.engine.extras import require

if TYPE_CHECKING:
    from gristmill.flows.experiments.models import evaluation, imported_run, joining, recipe_data, token_training
    from gristmill.flows.stages import export
    from gristmill.samples.formats import folder
    from gristmill.training.hub import model_folder
else:
    evaluation = wrapt.lazy_import("gristmill.flows.experiments.models.evaluation")
    joining = wrapt.lazy_import("gristmill.flows.experiments.models.joining")
    recipe_data = wrapt.lazy_import("gristmill.flows.experiments.models.recipe_data")
    token_training = wrapt.lazy_import("gristmill.flows.experiments.models.token_training")
    export = wrapt.lazy_import("gristmill.flows.stages.export")
    folder = wrapt.lazy_import("gristmill.samples.formats.folder")
    model_folder = wrapt.lazy_import("gristmill.training.hub.model_folder")
    imported_run = wrapt.lazy_import("gristmill.flows.experiments.models.imported_run")


@with_options
def import_run(recipe: FinishedRecipe, request: ImportRequest, as_json: Json = False) -> None:
    """The program trained on the recipe's tokens. The run goes to the recipe's experiment: its losses, and its model
    with the figures of the recipe's own model and the loss of each held-out document."""
    require("train", "importing a run")

    progress = console(stderr=True)
    result = imported_run.import_run(
        load(recipe), request, MachineSettings(), lambda line: progress.print(line, soft_wrap=True)
    )
    state = "was imported before" if result.there else "is imported"
    lines = [f"{request.name} {state}: {result.points:,} steps, MLflow run {result.run}"]
    lines += [f"{metric}  {value:.4f}" for metric, value in result.heldout.items()]
    if result.folder:
        lines.append(f"its model: {result.folder}\n  gristmill train evaluate {result.folder} --tasks FOLDER")
    print_result(result, lines, as_json)


TokenTrainer = Literal["olmo-core", "torchtitan", "megatron", "nanogpt", "nanochat", "litgpt", "mosaic"]


def documents(
    name: RecipeArgument,
    to: Annotated[
        str, typer.Option("--to", metavar="DIR|s3://...", help="an empty folder; default: the recipe's `export: to`")
    ] = "",
    format: Annotated[
        Literal["parquet", "jsonl"] | None,
        typer.Option(help="jsonl: lines of JSON in zstd; default: the recipe's, or parquet"),
    ] = None,
    where: Annotated[
        str,
        typer.Option(
            metavar="EXPR", help="those for which this is true; default: the recipe's `export: where`, or all"
        ),
    ] = "",
    limit: Limit = None,
) -> None:
    """With all signals and scores, for `datasets.load_dataset`. Missing parts of the corpus are made first. With
    --where only documents for which an expression is true, over the columns that `gristmill recipe columns` lists:

    gristmill export documents recipe.yaml --to physics --where "topic = 'science' and 'quantum' in title" """
    recipe = recipe_to_run(name, limit)
    options = {key: value for key, value in (("to", to), ("format", format), ("where", where)) if value}
    settings = (recipe.export.model_dump() if recipe.export else {}) | options
    if "to" not in settings:
        raise ValueError(
            f"nothing says where the documents of {recipe.name} go: add --to FOLDER, or `export: {{to: FOLDER}}` to the"
            " recipe"
        )

    recipe = recipe.model_copy(update={"export": Export.model_validate(settings)})
    check_export(recipe)
    run_flow("corpus", name, recipe)


def model(
    name: ModelArgument,
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="an empty local folder")],
    dtype: Annotated[Literal["float32", "bfloat16"], typer.Option(help="type of the weights")] = "float32",
    average: Annotated[
        int, typer.Option(min=1, metavar="N", help="weights: the mean of the N newest kept checkpoints")
    ] = 1,
) -> None:
    """Hugging Face's tools load the folder: config, weights, tokenizer, model card."""
    require("train", "exporting a model")

    result = evaluation.trained_model(name)
    recipe = export.recipe_of_card(result.recipe) if result.recipe else ""
    written = model_folder.write_model_folder(result.saved, to, result.name, recipe, dtype, average)
    print_texts([f"{'exported' if written else 'is exported already'}: {result.name} in {to}"])


def tokens(
    name: FinishedRecipe,
    trainer: Annotated[TokenTrainer, typer.Option("--for", help="who reads them")],
    to: Annotated[str, typer.Option("--to", metavar="DIR|s3://...", help="an empty folder")],
) -> None:
    """The mixture is written in the trainer's own words.

    What a trainer follows by itself, shares and repeated sources, it gets as shards and a configuration (olmo-core,
    megatron). Phases and packed rows none follows: then, and where a trainer mixes nothing (nanogpt, litgpt, mosaic),
    it gets the samples of the run one after the other, in the order in which Gristmill's own training reads them.
    nanochat and torchtitan encode texts while they train: they get the documents, each where the sample is read in
    which it begins.

    README.md in the folder says what it holds and the command to begin with; SHA256SUMS is for `sha256sum --check`. A
    run that was stopped goes on with the file that is missing. The same command on a folder that is whole compares its
    files, and writes again what differs. docs/guides/other-trainers.md has the trainers one by one, and how a trainer
    reads the samples from Python without any export.
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
    print_texts([f"{'exported' if written else 'is exported already'}: {contents.name} for {trainer} in {to}, {read}"])


def train_tokens(
    given: Annotated[Path, typer.Argument(metavar="SETTINGS", help="a YAML file: files of tokens, model and training")],
    to: Annotated[
        Path, typer.Option(metavar="FOLDER", help="local folder of the model; a run that was stopped goes on")
    ],
) -> None:
    """Instead of a recipe's tokens. The settings name the files, the model and the training."""
    require("train", "training a model")

    result = token_training.train_tokens(
        token_training.load(given), to, MachineSettings(), on_line=lambda line: print_texts([line])
    )
    losses = f"{result['heldout/loss']:.4f}, that of the tokens' frequencies {result['unigram/loss']:.4f}"
    print_texts([f"held-out loss {losses}", f"evaluate it: gristmill train evaluate {to}"])


def join(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE|RUN.JSON|s3://...",
            help="the recipe that node 0 trains, run.json in its model's folder, or the address that node 0 says",
        ),
    ],
    wait: Annotated[
        float, typer.Option(min=0.0, help="seconds to wait for node 0, which says what it trains when it begins to")
    ] = 600.0,
) -> None:
    """Run it on each machine but the first, where `gristmill run` trains. The recipe's tokens must be finished. With a
    home in an object store the machines share nothing else: this one fetches from there what it needs."""
    require("train", "training a model")

    # the ranks end after a checkpoint, as those of node 0 do
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    raise typer.Exit(joining.join(MachineSettings(), run, wait, say=lambda line: print_texts([line])))
