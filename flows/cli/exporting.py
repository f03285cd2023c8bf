"""What is handed over: documents, models, and trainings on tokens of other makers."""

import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

import typer

from gristmill.flows.cli.app import (
    HAND_OVER,
    FinishedRecipe,
    Limit,
    ModelArgument,
    app,
    print_texts,
    recipe_to_run,
    settings,
)
from gristmill.flows.cli.running import RecipeArgument, run_flow
from gristmill.flows.machine.extras import require

TokenTrainer = Literal["olmo-core", "torchtitan", "megatron", "nanogpt", "nanochat", "litgpt", "mosaic"]

export = typer.Typer(no_args_is_help=True, help="Write what was made for others to read.")
app.add_typer(export, name="export", rich_help_panel=HAND_OVER)


@export.command()
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
    """Write a recipe's curated documents, with all signals and scores, as a folder that `datasets.load_dataset` reads.
    What of the corpus is not made yet is made first. With --where those alone for which an expression is true, of the
    columns that `gristmill columns` lists:

    gristmill export documents recipe.yaml --to physics --where "topic == 'science' and 'quantum' in title" """
    recipe = recipe_to_run(name, limit)
    given = {key: value for key, value in (("to", to), ("format", format), ("where", where)) if value}
    settings = (recipe.export.model_dump() if recipe.export else {}) | given
    if "to" not in settings:
        raise ValueError(
            f"nothing says where the documents of {recipe.name} go: add --to FOLDER, or `export: {{to: FOLDER}}` to the"
            " recipe"
        )

    from gristmill.flows.check.expressions import check_export
    from gristmill.tasks.documents.export import Export

    recipe = recipe.model_copy(update={"export": Export.model_validate(settings)})
    check_export(recipe)
    run_flow("corpus", recipe)


@export.command()
def model(
    name: ModelArgument,
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="an empty local folder")],
    dtype: Annotated[Literal["float32", "bfloat16"], typer.Option(help="type of the weights")] = "float32",
    average: Annotated[
        int, typer.Option(min=1, metavar="N", help="weights: the mean of the N newest kept checkpoints")
    ] = 1,
) -> None:
    """Write a trained model as one folder that Hugging Face's tools load: config, weights, tokenizer, model card."""
    require("train", "exporting a model")

    from gristmill.flows.models.evaluation import trained_model
    from gristmill.flows.stages.export import recipe_of_card
    from gristmill.training.hub.model_folder import write_model_folder

    found = trained_model(name)
    recipe = recipe_of_card(found.recipe) if found.recipe else ""
    written = write_model_folder(found.saved, to, found.name, recipe, dtype, average)
    print_texts([f"{'exported' if written else 'is exported already'}: {found.name} in {to}"])


@export.command()
def tokens(
    name: FinishedRecipe,
    trainer: Annotated[TokenTrainer, typer.Option("--for", help="who reads them")],
    to: Annotated[str, typer.Option("--to", metavar="DIR|s3://...", help="an empty folder")],
) -> None:
    """Write a recipe's tokens as one folder in another trainer's own format, with the mixture in its words.

    What a trainer follows by itself, shares and repeated sources, it gets as shards and a configuration (olmo-core,
    megatron). Phases and packed rows none follows: then, and where a trainer mixes nothing (nanogpt, litgpt, mosaic),
    it gets the samples of the run one after the other, in the order in which Gristmill's own training reads them.
    nanochat and torchtitan encode texts while they train: they get the documents, each where the sample is read in
    which it begins.

    README.md in the folder says what it holds and the command to begin with; SHA256SUMS is for `sha256sum --check`. A
    run that was stopped goes on with the file that is missing. The same command on a folder that is whole compares its
    files, and writes again what differs. docs/trainers.md has the trainers one by one, and how a trainer reads the
    samples from Python without any export.
    """
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from gristmill.flows.cli import terminal
    from gristmill.flows.models.token_export import token_export
    from gristmill.samples.formats.folder import write_export

    found = token_export(name, settings())
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=terminal.console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=None)
        done: Counter[str] = Counter()

        def progress(file: str, size: int) -> None:
            if file not in done and not sys.stderr.isatty():
                typer.echo(f"export: {file}", err=True)
            done[file] += size
            bar.update(task, description=file, completed=done.total())

        written = write_export(found, trainer, to, progress)
    source = found.source
    read = f"{len(source):,} samples of {source.seq_len:,} tokens"
    print_texts([f"{'exported' if written else 'is exported already'}: {found.name} for {trainer} in {to}, {read}"])


@app.command("train-tokens", rich_help_panel=HAND_OVER)
def train_tokens(
    given: Annotated[Path, typer.Argument(metavar="SETTINGS", help="a YAML file: files of tokens, model and training")],
    to: Annotated[
        Path, typer.Option(metavar="FOLDER", help="local folder of the model; a run that was stopped goes on")
    ],
) -> None:
    """Train on files of tokens that are there, those of nanoGPT and llm.c, in place of a recipe's."""
    require("train", "training a model")
    from gristmill.flows.models import token_training

    result = token_training.train_tokens(
        token_training.load(given), to, settings(), on_line=lambda line: print_texts([line])
    )
    print_texts(
        [f"held-out loss {result['heldout/loss']:.4f}, that of the tokens' frequencies {result['unigram/loss']:.4f}"]
    )
    print_texts([f"evaluate it: gristmill evaluate {to}"])


@app.command(rich_help_panel=HAND_OVER)
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
    """Train as one of several machines: on each but the first, where `run` trains. The recipe's tokens are finished.
    With a home in an object store the machines share nothing else: what this one needs is fetched from there."""
    require("train", "training a model")
    from gristmill.flows.models.joining import join as join_run

    # the ranks end after a checkpoint, as those of node 0 do
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    raise typer.Exit(join_run(settings(), run, wait, say=lambda line: typer.echo(line)))
