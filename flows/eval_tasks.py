"""The tasks that a training is scored on while it goes on, if its recipe names a folder of them."""

from pathlib import Path

from flows.initial_weights import digest
from flows.machine import MachineSettings
from flows.recipe import Recipe
from storage import files


def tasks_folder(settings: MachineSettings, recipe: Recipe) -> Path | None:
    """The folder that `training.eval_tasks` names, absolute; None for a recipe without it. Raises as `tasks_at`."""
    given = recipe.training.eval_tasks
    return None if given is None else tasks_at(settings, given, "training.eval_tasks")


def tasks_at(settings: MachineSettings, given: str, what: str) -> Path:
    """A folder of tasks, absolute, given as `what`. Raises ValueError for an address, FileNotFoundError for a folder
    without tasks."""
    for name, place in settings.places.items():
        given = given.replace(name, place)
    if not files.is_local(given):
        raise ValueError(f"{what} is {given}, which is no local folder; copy it to one")
    folder = Path(given).expanduser().resolve()
    if not any(folder.glob("*.jsonl")):
        raise FileNotFoundError(
            f"{what} is {folder}, which has no *.jsonl file; name a folder with tasks, one file each"
        )
    return folder


def task_digests(settings: MachineSettings, folder: Path) -> dict[str, str]:
    """xxh3-128 of each file of tasks, by name."""
    return {path.name: digest(settings, path) for path in sorted(folder.glob("*.jsonl"))}
