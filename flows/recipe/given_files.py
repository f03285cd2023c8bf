"""Files and folders that a recipe names: initial weights, tasks, a tokenizer."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import wrapt

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.recipe.trunk import is_branch, trunk_problem
from gristmill.tasks.documents.step import Problem
from gristmill.training.denoisers import missing_tokens
from gristmill.training.evaluate.tasks import read_tasks
from gristmill.training.hub.weight_files import TOKENIZERS, check_fits, tokenizer_file, weight_files
from gristmill.training.layout.limits import PARALLEL, few_micro_batches, undivided_vocabulary

if TYPE_CHECKING:
    from gristmill.storage import fingerprint as fingerprints
    from gristmill.tasks.tokens import trial as trials
else:
    fingerprints = wrapt.lazy_import("gristmill.storage.fingerprint")
    trials = wrapt.lazy_import("gristmill.tasks.tokens.trial")

__all__ = ["digest", "init_digests", "initial_folder", "tokenizer_file"]

JSON = TOKENIZERS[1]


def initial_folder(settings: MachineSettings, recipe: Recipe) -> Path | None:
    """The absolute folder of `training.init_from`; None without it, or if it is the checkpoint of a model. Raises
    ValueError for a remote address, FileNotFoundError for a folder without a tokenizer."""
    address = recipe.training.init_from
    if address is None or is_branch(settings, recipe):
        return None
    folder = settings.placed_folder("training.init_from", address)
    if not folder.is_dir():
        raise FileNotFoundError(
            f"training.init_from is {folder}, which is not a folder; give an existing folder, or a checkpoint as "
            "RECIPE@step-1200"
        )
    tokenizer_file(folder)
    return folder


def init_digests(settings: MachineSettings, folder: Path) -> dict[str, str]:
    """xxh3-128 of each file of weights, by name, and of tokenizer.json, which a stage stores in another format."""
    paths, tokenizer = weight_files(folder), tokenizer_file(folder)
    return {path.name: digest(settings, path) for path in (*paths, *([tokenizer] if tokenizer.name == JSON else []))}


def digest(settings: MachineSettings, path: Path) -> str:
    """xxh3-128 of a file, cached by its size and time."""
    return fingerprints.fingerprint(str(path), f"{settings.local_folder}/fingerprints").rpartition(" ")[2]


def tasks_folder(settings: MachineSettings, recipe: Recipe) -> Path | None:
    """The absolute folder of `training.eval_tasks`; None without it. Raises as `tasks_at`."""
    path = recipe.training.eval_tasks
    return None if path is None else tasks_at(settings, path, "training.eval_tasks")


def tasks_at(settings: MachineSettings, path: str, what: str) -> Path:
    """The absolute path of a folder of tasks. `what`: the name of the setting. Raises ValueError for a remote address,
    FileNotFoundError for a folder without tasks."""
    folder = settings.placed_folder(what, path)
    if not any(folder.glob("*.jsonl")):
        raise FileNotFoundError(f"{what} is {folder}, which has no *.jsonl file; give a folder with one file per task")
    return folder


def task_digests(settings: MachineSettings, folder: Path) -> dict[str, str]:
    """xxh3-128 of each file of tasks, by name."""
    return {path.name: digest(settings, path) for path in sorted(folder.glob("*.jsonl"))}


def tokenizer_path(settings: MachineSettings, recipe: Recipe) -> Path | None:
    """The absolute path of `tokenizer.path`; None without it. Raises as `tokenizer_at`."""
    path = recipe.tokenizer.path
    return None if path is None else tokenizer_at(settings, path, "tokenizer.path")


def tokenizer_at(settings: MachineSettings, address: str, what: str) -> Path:
    """The absolute path of a tokenizer file. `what`: the name of the setting. Raises ValueError for a remote address,
    FileNotFoundError for a missing file."""
    path = settings.placed_folder(what, address)
    if not path.is_file():
        raise FileNotFoundError(f"{what} is {path}, which does not exist; give an existing file")
    return path


def check_tokenizer_file(settings: MachineSettings, recipe: Recipe) -> int | None:
    """The vocabulary size of the recipe's tokenizer file; None without one. Raises as `tokenizer_path` and
    `vocabulary`."""
    path = tokenizer_path(settings, recipe)
    if path is None:
        return None
    names = tried(path, recipe.tokenizer.end_of_text).names
    if wrong := missing_tokens(recipe.training, recipe.model.seq_len, names):
        raise ValueError(wrong)
    return len(names)


def vocabulary(path: Path, end_of_text: str | None = None) -> int:
    """The vocabulary size of a tokenizer file. Raises ValueError for a file that is not a tokenizer, loses characters,
    or has no end-of-text token. `end_of_text`: the name of that token in tokenizer.json; None: a common one."""
    return len(tried(path, end_of_text).names)


def tried(path: Path, end_of_text: str | None) -> "trials.Tried":
    """The contents of a tokenizer file, tried on a few texts. Raises as `gristmill.tasks.tokens.trial.tried`."""
    return trials.tried(path.read_bytes(), f"{path}", end_of_text)


def training_problems(recipe: Recipe, settings: MachineSettings) -> Iterator[Problem]:
    """Problems with the tokenizer file, the initial weights, the tasks, and the division of the model among
    processes."""
    if processes := settings.training_processes * settings.nodes.count:
        try:
            recipe.training.parallel.shards(processes)
        except ValueError as error:
            yield PARALLEL, f"{error}".removeprefix("training.parallel")
        else:
            yield from few_micro_batches(recipe.training, processes)
    try:
        size = check_tokenizer_file(settings, recipe) or recipe.tokenizer.vocab_size
        yield from undivided_vocabulary(size, recipe.training.parallel)
    except (OSError, ValueError) as error:
        yield ("tokenizer", "path"), f"{error}".removeprefix("tokenizer.path ")
    if is_branch(settings, recipe) and (problem := trunk_problem(settings, recipe)):
        yield ("training", "init_from"), f"is {recipe.training.init_from}: {problem}"
    try:
        folder = initial_folder(settings, recipe)
        if folder is not None:
            check_fits(folder, recipe.model)
    except (OSError, ValueError, KeyError) as error:
        yield ("training", "init_from"), f"{error}".removeprefix("training.init_from ")
    try:
        tasks = tasks_folder(settings, recipe)
        if tasks is not None:
            read_tasks(tasks)
    except (OSError, ValueError) as error:
        yield ("training", "eval_tasks"), f"{error}".removeprefix("training.eval_tasks ")
