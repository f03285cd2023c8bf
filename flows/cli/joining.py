"""The command join."""

import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.app import app, settings

if TYPE_CHECKING:
    from flows.machine import MachineSettings

_LOOK_SECONDS = 2.0


@app.command()
def join(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE|RUN.JSON", help="the recipe that node 0 trains, or run.json in its model's folder"
        ),
    ],
    wait: Annotated[
        float, typer.Option(min=0.0, help="seconds to wait for node 0, which writes run.json when it begins to train")
    ] = 600.0,
) -> None:
    """Train as one of several machines: on each but the first, where `run` trains. The recipe's tokens are finished."""
    from training.launch import default_processes, launch

    machine = settings()
    if not machine.training_node:
        raise ValueError("GRISTMILL_TRAINING_NODE is 0: there use `run`; on the others set it to 1, 2, ...")
    written = Path(run) if run.endswith(".json") else _run_json(machine, run)
    end = time.monotonic() + wait
    while not written.exists():
        if time.monotonic() > end:
            raise ValueError(f"{written} is not there; begin the run on node 0, with a home that all nodes see")
        time.sleep(_LOOK_SECONDS)
    # the ranks end after a checkpoint, as those of node 0 do
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    log = written.with_name(f"training-{machine.training_node}.log")
    processes = machine.training_processes or default_processes()
    raise typer.Exit(launch(written, processes, log, nodes=machine.nodes, on_line=lambda line: typer.echo(line)))


def _run_json(machine: "MachineSettings", name: str) -> Path:
    """Where node 0 writes what it trains. Raises NotFinishedError unless the recipe's tokens are finished."""
    from flows.recipe import load
    from flows.reports.finished import finished
    from flows.stages.model import model_spec
    from flows.training_places import local_folder
    from tasks.engine.make import NotFinishedError

    recipe = load(name)
    report = finished(recipe, machine)
    if report.data is None:
        raise NotFinishedError(f"the tokens of {recipe.name} are not finished: `gristmill tokens {name}` first")
    folder = model_spec(machine, recipe, report.data).folder(machine.home)
    return Path(local_folder(machine, folder)) / "run.json"
