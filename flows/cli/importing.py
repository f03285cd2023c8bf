"""What comes back: trainings that other programs did on a recipe's tokens."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from gristmill.flows.cli.app import HAND_OVER, FinishedRecipe, Json, app, console, print_json, settings
from gristmill.flows.machine.extras import require

imports = typer.Typer(no_args_is_help=True, help="Read what others have made.")
app.add_typer(imports, name="import", rich_help_panel=HAND_OVER)


@imports.command()
def run(
    recipe: FinishedRecipe,
    losses: Annotated[Path, typer.Option(help="the trainer's metrics: JSON lines, or CSV with a head")],
    name: Annotated[str, typer.Option(help="of the run in MLflow, and of the model's folder")],
    trainer: Annotated[str, typer.Option(help="the program, as olmo-core or torchtitan: its metrics have this before")],
    model: Annotated[
        Path | None,
        typer.Option(
            help="the trained model as Hugging Face lays it out (Llama, Qwen3), by the trainer's own converter; it is "
            "evaluated on the recipe's held-out text",
        ),
    ] = None,
    step: Annotated[str | None, typer.Option(metavar="COLUMN", help="of the step; default: by its usual names")] = None,
    loss: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="of the loss in nats a token; default: by its usual names")
    ] = None,
    as_json: Json = False,
) -> None:
    """A training that another program did on a recipe's tokens, as a run of the recipe's experiment in MLflow: its
    losses, and its model by the figures of the recipe's own, with the loss of each held-out document."""
    require("train", "importing a run")

    from gristmill.flows.cli import terminal
    from gristmill.flows.imported.run import Given, import_run
    from gristmill.flows.recipe.recipe import load

    progress = terminal.console(stderr=True)
    given = Given(name, trainer, losses, step, loss, model)
    found = import_run(load(recipe), given, settings(), lambda line: progress.print(line, soft_wrap=True))
    if as_json:
        print_json(asdict(found))
        return
    state = "was imported before" if found.there else "is imported"
    out = console()
    out.print(f"{name} {state}: {found.points:,} steps, MLflow run {found.run}", soft_wrap=True, highlight=False)
    for metric, value in found.heldout.items():
        out.print(f"{metric}  {value:.4f}", highlight=False)
    if found.folder:
        out.print(f"its model: {found.folder}\n  gristmill evaluate {found.folder} --tasks FOLDER", soft_wrap=True)
