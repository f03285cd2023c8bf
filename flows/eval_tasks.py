"""The tasks that a training is scored on while it goes on, if its recipe names a folder of them."""

from pathlib import Path

from flows.initial_weights import digest
from flows.machine import MachineSettings
from flows.recipe import Recipe


def tasks_folder(settings: MachineSettings, recipe: Recipe) -> Path | None:
    """The folder that `training.eval_tasks` names, absolute; None for a recipe without it. Raises as `tasks_at`."""
    given = recipe.training.eval_tasks
    return None if given is None else tasks_at(settings, given, "training.eval_tasks")


def tasks_at(settings: MachineSettings, given: str, what: str) -> Path:
    """A folder of tasks, absolute, given as `what`. Raises ValueError for an address, FileNotFoundError for a folder
    without tasks."""
    folder = settings.placed_folder(what, given)
    if not any(folder.glob("*.jsonl")):
        raise FileNotFoundError(
            f"{what} is {folder}, which has no *.jsonl file; name a folder with tasks, one file each"
        )
    return folder


def task_digests(settings: MachineSettings, folder: Path) -> dict[str, str]:
    """xxh3-128 of each file of tasks, by name."""
    return {path.name: digest(settings, path) for path in sorted(folder.glob("*.jsonl"))}
