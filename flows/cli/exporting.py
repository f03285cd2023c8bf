"""Commands that write what was made for others to read: export documents, export model."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from flows.cli.app import Limit, ModelArgument, app, print_texts, recipe_to_run
from flows.cli.running import RecipeArgument, run_flow
from flows.extras import require

export = typer.Typer(no_args_is_help=True, help="Write what was made for others to read.")
app.add_typer(export, name="export")


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
    limit: Limit = None,
) -> None:
    """Write a recipe's curated documents, with all signals and scores, as a folder that `datasets.load_dataset` reads.
    What of the corpus is not made yet is made first."""
    recipe = recipe_to_run(name, limit)
    given = {key: value for key, value in (("to", to), ("format", format)) if value}
    settings = (recipe.export.model_dump() if recipe.export else {}) | given
    if "to" not in settings:
        raise ValueError(
            f"nothing says where the documents of {recipe.name} go: add --to FOLDER, or `export: {{to: FOLDER}}` to the"
            " recipe"
        )

    from tasks.documents.export import Export

    run_flow("corpus", recipe.model_copy(update={"export": Export.model_validate(settings)}))


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

    from flows.stages.export import recipe_of_card
    from flows.trained_models import trained_model
    from training.model_folder import write_model_folder

    found = trained_model(name)
    recipe = recipe_of_card(found.recipe) if found.recipe else ""
    written = write_model_folder(found.saved, to, found.name, recipe, dtype, average)
    print_texts([f"{'exported' if written else 'is exported already'}: {found.name} in {to}"])
