"""Trains a model with its record in MLflow, and keeps notes of the models that MLflow has.

    <local folder>/mlflow-runs/<digest of server, experiment and model>    the id of the model's run

With the note, a run that reuses its model does not load MLflow. If the folder is removed, MLflow is asked again, and
missing models are recorded again.
"""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import wrapt

from gristmill.flows.curation import Outputs
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.given_files import init_digests, initial_folder, tasks_folder
from gristmill.flows.stages.model import ModelPlaces, Trained, local_folder, local_mixture
from gristmill.flows.stages.starts import beginning
from gristmill.storage import files
from gristmill.training.run.environment import default_processes

if TYPE_CHECKING:
    from gristmill.flows.run import model_run
else:
    model_run = wrapt.lazy_import("gristmill.flows.run.model_run")


def noted_run(settings: MachineSettings, experiment: str, key: str) -> str:
    """The noted id of the run of the model with a key; empty if there is no note."""
    uri = settings.tracking_uri
    note = _note(settings, experiment, key)
    is_gone = uri.startswith(_SQLITE) and not Path(uri.removeprefix(_SQLITE)).exists()
    return note.read_text() if note.exists() and not is_gone else ""


def note_run(settings: MachineSettings, experiment: str, key: str, run: str) -> None:
    """Note that a run has the model with all metrics."""
    files.write_bytes(str(_note(settings, experiment, key)), run.encode())


def _note(settings: MachineSettings, experiment: str, key: str) -> Path:
    name = files.digest("\n".join([settings.tracking_uri, experiment, key]).encode())
    return Path(settings.local_folder) / "mlflow-runs" / name


_SQLITE = "sqlite:///"


def train(outputs: Outputs) -> Trained:
    """Train on the mixture, resuming from the newest checkpoint if there is one.

    If the home is not on a local disk, each checkpoint is written to the local folder and copied to the home while
    training continues. Another machine resumes from the newest one in the home.
    """
    context, recipe, data, unplaced = outputs.context, outputs.recipe, outputs.data, outputs.model_spec
    settings = context.settings
    context.begin(unplaced)
    key = unplaced.label(settings.home).removeprefix(f"{unplaced.name}-")
    if (stage := context.find(unplaced)) and (run_id := noted_run(settings, recipe.name, key)):
        return Trained(context.build(unplaced), stage.result["result"], run_id)

    folder = unplaced.folder(settings.home)
    run = model_run.ModelRun(settings, recipe, data, outputs.stages, key, folder)
    with ExitStack() as stack:

        def places() -> ModelPlaces:
            """Called by the process that makes the stage, because only it has a run to log to."""
            logged = stack.enter_context(run)
            processes = settings.training_processes or default_processes()
            mixture = local_mixture(settings, data.mixture.folder)
            out = local_folder(settings, folder)
            initial = initial_folder(settings, recipe)
            begins = beginning(settings, recipe, data, unplaced)
            return ModelPlaces(
                mixture=str(mixture),
                out=out,
                folder=folder,
                processes=processes,
                nodes=settings.nodes,
                tracking_uri=settings.tracking_uri,
                run_id=logged,
                init_from=str(initial or ""),
                init_digests=init_digests(settings, initial) if initial else {},
                eval_tasks=str(tasks_folder(settings, recipe) or ""),
                max_rollbacks=recipe.training.guard.max_rollbacks,
                parallel=recipe.training.parallel.model_dump(exclude_none=True),
                restarts=settings.training_restarts,
                limits=settings.training_limits,
                start=begins.start,
                lines=begins.lines,
                note=begins.note,
            )

        model = context.build(replace(unplaced, places=places))
    tracked = run.finish(model)
    note_run(settings, recipe.name, key, tracked)
    return Trained(model, model.result["result"], tracked)
