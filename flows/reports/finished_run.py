"""Looking up the stages of a recipe's finished run, as a run would find them, without making any."""

from flows.context import RunContext, StageResult, StageSpec
from flows.machine import MachineSettings
from flows.recipe import Recipe
from storage import layout


class NotFinishedError(LookupError):
    """A stage that is looked for in the home is not there, or not finished."""


def lookup(settings: MachineSettings, recipe: Recipe) -> RunContext:
    """A context that makes nothing: a stage that is not finished raises NotFinishedError, which names the remedy."""

    def find(made: StageSpec) -> StageResult:
        folder = made.stage.folder(settings.home)
        manifest = layout.manifest(folder)
        if manifest is None:
            raise NotFinishedError(
                f"{folder} is not finished: `gristmill run` the recipe {recipe.name} first (a stage is made anew when "
                "its sources, its settings or the code behind it have changed)"
            )
        return StageResult(made.stage, folder, manifest, reused=True)

    return RunContext(settings, find)
