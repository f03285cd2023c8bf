"""What is not wrong with a recipe, and is likely to be otherwise than its author thinks."""

from collections.abc import Iterator

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe
from gristmill.storage import files
from gristmill.tasks.models.classifier import classifier_file
from gristmill.tasks.models.quality.quality import MIN_SCORE, Quality


def remarks(recipe: Recipe, settings: MachineSettings) -> Iterator[str]:
    """A sentence each, with what to write."""
    for step in map(settings.placed, recipe.steps):
        if isinstance(step, Quality) and step.min_score is None and step.keep_top is None and _is_ours(step):
            yield (
                f"steps.quality has no cut of its own: at DCLM's {MIN_SCORE}, found for DCLM's own model, a classifier "
                "that learns here from as many good as bad examples drops next to nothing; give `keep_top: 10`, the "
                "percentage that is kept, or `min_score: 0` where nothing is to be dropped"
            )


def _is_ours(step: Quality) -> bool:
    """Whether the classifier is trained by the run, or by `gristmill train classifier`, and not somebody else's."""
    if step.model is None:
        return True
    description = classifier_file.description(step.model)
    return files.is_local(description) and files.exists(description)
