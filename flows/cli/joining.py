"""The command join."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.app import app, settings


@app.command()
def join(
    run: Annotated[Path, typer.Argument(help="run.json in the folder of the model, which node 0 has written")],
) -> None:
    """Train as one of several machines: on each but the first, whose `run` has begun to train."""
    from training.launch import default_processes, launch

    machine = settings()
    if not machine.training_node:
        raise ValueError("GRISTMILL_TRAINING_NODE is 0: there use `run`; on the others set it to 1, 2, ...")
    if not run.exists():
        raise ValueError(f"{run} is not there; begin the run on node 0, with a home that all nodes see")
    log = run.with_name(f"training-{machine.training_node}.log")
    processes = machine.training_processes or default_processes()
    raise typer.Exit(launch(run, processes, log, nodes=machine.nodes, on_line=lambda line: typer.echo(line)))
