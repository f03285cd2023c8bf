"""The tokenizer's file that a recipe names."""

from pathlib import Path

from flows.machine import MachineSettings
from flows.recipe import Recipe


def tokenizer_path(settings: MachineSettings, recipe: Recipe) -> Path | None:
    """The file that `tokenizer.path` names, absolute; None for a recipe without it. Raises ValueError for an address,
    FileNotFoundError where there is no such file."""
    given = recipe.tokenizer.path
    if given is None:
        return None
    path = settings.placed_folder("tokenizer.path", given)
    if not path.is_file():
        raise FileNotFoundError(f"tokenizer.path is {path}, where there is no file; correct it")
    return path


def check_tokenizer_file(settings: MachineSettings, recipe: Recipe) -> int | None:
    """The size of the vocabulary of the recipe's file; None for a recipe without one. Raises as `tokenizer_path`, and
    ValueError for a file that is no tokenizer, loses characters or ends no text."""
    path = tokenizer_path(settings, recipe)
    if path is None:
        return None

    # here, since most recipes do without these libraries
    from storage.text_tokens import read_tokenizer
    from tasks.tokens.tokenizer_work import given_tokenizer

    data, name = given_tokenizer(path.read_bytes(), f"{path}", recipe.tokenizer.end_of_text)
    return read_tokenizer(data, name).vocab_size
