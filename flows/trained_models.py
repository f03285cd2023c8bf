"""A trained model by what a user calls it: a recipe, a folder, or a checkpoint."""

from dataclasses import dataclass
from pathlib import Path

from flows.machine import MachineSettings
from flows.recipe import Recipe, load
from flows.reports.finished import finished
from flows.reports.run import Report
from flows.training_places import local_folder, local_mixture
from storage import files
from tasks.engine.make import NotFinishedError, StageResult
from training.saved_model import RESULT, RUN, SavedModel, open_model
from training.weight_files import CONFIG, WEIGHTS


@dataclass(frozen=True)
class TrainedModel:
    """`name`: for a person; `folder`: where its report is written, perhaps an address; `report`: what was made of the
    recipe, None for a folder."""

    name: str
    folder: str
    saved: SavedModel
    report: Report | None = None

    @property
    def recipe(self) -> Recipe | None:
        return self.report.recipe if self.report else None


def trained_model(target: str, settings: MachineSettings | None = None) -> TrainedModel:
    """The model of a recipe whose training is finished, or the one in a local folder (`training.saved_model`).

    Raises NotFinishedError, which names the remedy, and what `open_model` and `load` raise.
    """
    if Path(target).is_dir():
        saved = open_model(Path(target))
        return TrainedModel(saved.folder.name, str(saved.out), saved)
    settings = settings or MachineSettings()
    recipe = load(target)
    recipe.training_mixture()
    report = finished(recipe, settings)
    if report.data is None or report.trained is None:
        raise NotFinishedError(f"the training of {recipe.name} is not finished: `gristmill run {target}` first")
    folder = _local(settings, report.trained.model)
    saved = open_model(folder, local_mixture(settings, report.data.mixture))
    return TrainedModel(recipe.name, report.trained.model.folder, saved, report)


def _local(settings: MachineSettings, model: StageResult) -> Path:
    """The model's folder on a local path, its files compared with their digests."""
    folder = Path(local_folder(settings, model.folder))
    for name in (RUN, RESULT, CONFIG, WEIGHTS):
        copy = model.file(name).local()
        if not files.is_local(model.folder):
            files.copy(copy, str(folder / name))
    return folder
