"""The command that measures a trained model: evaluate."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.app import Json, ModelArgument, app, console, print_json, print_texts
from flows.extras import require


@app.command()
def evaluate(
    name: ModelArgument,
    tasks: Annotated[
        Path | None,
        typer.Option(
            help="a folder of tasks, one *.jsonl file each, with `context`, `choices`, `answer` or `context`, `target`"
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Bits per byte of a model on the held-out text of each source, and its accuracy on tasks of multiple choice or of
    a last word. Written beside the model as JSON, and logged to the recipe's MLflow run."""
    require("train", "evaluating a model")

    from flows import evaluation
    from flows.cli import render_evaluation as render
    from flows.progress_bar import progress_bar

    with progress_bar() as bar:
        task = bar.add_task("batches", total=None)
        found = evaluation.evaluate(
            name, tasks, progress=lambda done, total: bar.update(task, completed=done, total=total)
        )
    if as_json:
        print_json(asdict(found))
        return
    if found.heldout:
        console().print(render.heldout_table(found))
    if found.tasks:
        console().print(render.tasks_table(found))
    print_texts(render.remarks(found))
