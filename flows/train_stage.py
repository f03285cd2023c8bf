"""A model's stage, made within its MLflow run."""

from contextlib import ExitStack

from flows.context import RunContext
from flows.eval_tasks import tasks_folder
from flows.initial_weights import init_digests, initial_folder
from flows.mlflow_notes import note, noted
from flows.recipe import Recipe
from flows.stages.data import Data
from flows.stages.model import Trained, TrainingPlaces, model_spec
from flows.training_places import local_folder, local_mixture
from training import launch


def train(context: RunContext, recipe: Recipe, data: Data) -> Trained:
    """Train on the mixture, resuming from the newest checkpoint if there is one.

    With a home that is not on a local disk, each checkpoint is written to the local folder and copied to the home while
    training goes on; on another machine it goes on from the newest one that is there.
    """
    settings = context.settings
    unplaced = model_spec(settings, recipe, data)
    if (found := context.find(unplaced)) and (known := noted(settings, recipe.name, unplaced.key)):
        return Trained(context.build(unplaced), found.result["result"], known)

    from flows.mlflow_runs import ModelRun  # here, since MLflow takes seconds

    folder = unplaced.folder(settings.home)
    run = ModelRun(settings, recipe, data, unplaced.key, folder)
    with ExitStack() as stack:

        def places() -> TrainingPlaces:
            """Asked for by the process that makes the stage: it alone has a run to log to."""
            logged = stack.enter_context(run)
            processes = settings.training_processes or launch.default_processes()
            mixture = local_mixture(settings, data.mixture)
            out = local_folder(settings, folder)
            initial = initial_folder(settings, recipe)
            return TrainingPlaces(
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
            )

        model = context.build(model_spec(settings, recipe, data, places))
    tracked = run.finish(model)
    note(settings, recipe.name, unplaced.key, tracked)
    return Trained(model, model.result["result"], tracked)
