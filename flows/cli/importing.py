"""What comes back: trainings that other programs did on a recipe's tokens."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import wrapt

from gristmill.flows.cli.app import FinishedRecipe, Json
from gristmill.flows.cli.terminal import console, print_json
from gristmill.flows.machine.settings import MachineSettings, require
from gristmill.flows.recipe.recipe import load

if TYPE_CHECKING:
    from gristmill.flows.experiments.models import imported_run
else:
    imported_run = wrapt.lazy_import("gristmill.flows.experiments.models.imported_run")


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
    require("train", "importing a run")

    progress = console(stderr=True)
    given = imported_run.Given(name, trainer, losses, step, loss, model)
    found = imported_run.import_run(
        load(recipe), given, MachineSettings(), lambda line: progress.print(line, soft_wrap=True)
    )
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
