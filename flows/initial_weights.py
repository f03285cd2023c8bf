"""The weights that a training begins with, if its recipe names some: where they are, and their digests."""

from pathlib import Path

from flows.machine import MachineSettings
from flows.recipe import Recipe
from training.weight_files import TOKENIZERS, tokenizer_file, weight_files

__all__ = ["digest", "init_digests", "initial_folder", "tokenizer_file"]

JSON = TOKENIZERS[1]


def initial_folder(settings: MachineSettings, recipe: Recipe) -> Path | None:
    """The folder that `training.init_from` names, absolute; None for a recipe without it. Raises ValueError for an
    address, FileNotFoundError for a folder without a tokenizer."""
    given = recipe.training.init_from
    if given is None:
        return None
    folder = settings.placed_folder("training.init_from", given)
    if not folder.is_dir():
        raise FileNotFoundError(f"training.init_from is {folder}, which is no folder; correct it")
    tokenizer_file(folder)
    return folder


def init_digests(settings: MachineSettings, folder: Path) -> dict[str, str]:
    """xxh3-128 of each file of weights, by name, and of a tokenizer.json, of which a stage keeps a form of its own."""
    paths, tokenizer = weight_files(folder), tokenizer_file(folder)
    return {path.name: digest(settings, path) for path in (*paths, *([tokenizer] if tokenizer.name == JSON else []))}


def digest(settings: MachineSettings, path: Path) -> str:
    """xxh3-128 of a file, known again by its size and time."""
    from storage.fingerprint import fingerprint  # here, since a check does without a network library

    return fingerprint(str(path), f"{settings.local_folder}/fingerprints").rpartition(" ")[2]
