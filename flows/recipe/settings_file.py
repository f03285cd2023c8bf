"""Settings in a YAML file: of one that ships, by its name, or of a user's, by its path. Recipes and proxies."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from gristmill.flows.recipe import syntax
from gristmill.flows.recipe.errors import Finding, Origin, RecipeError, did_you_mean, findings_of
from gristmill.storage.address import FOLDER

M = TypeVar("M", bound=BaseModel)


def named_file(given: str | Path, shipped: Path, what: str) -> Path:
    """The file at a path, or that of the folder `shipped` by its name, with its suffix or without.

    `what`: a word for it. Raises FileNotFoundError, which lists what ships, and IsADirectoryError.
    """
    path = Path(given)
    ships = shipped / f"{path.name.removesuffix('.yaml')}.yaml"
    if not path.is_file() and str(path) == path.name and ships.is_file():
        return ships
    if path.is_dir():
        raise IsADirectoryError(f"{given} is a folder: name a {what} in it")
    if not path.is_file():
        known = sorted(one.stem for one in shipped.glob("*.yaml"))
        hint = f"{did_you_mean(given, known)} there are: {', '.join(known)}".strip()
        raise FileNotFoundError(f"no {what} file {given}, and none shipped by that name ({hint})")
    return path


def read(given: Any, shipped: Path, what: str) -> tuple[Any, Origin]:
    """The values that are given as a file's name or path, or as they are; not checked yet. Raises as `named_file`, and
    RecipeError for a file that is not YAML."""
    if not isinstance(given, str | Path):
        return given, Origin(what)
    path = named_file(given, shipped, what)
    with path.open("rb") as file:
        values, origin = syntax.parse(file.read(syntax.MOST_BYTES + 1), str(given))
    # ../a/recipe.yaml is the recipe of a run as /b/a/recipe.yaml: its sources have one name
    folder = path.parent.resolve() if ".." in path.parts else path.parent.absolute()
    return values, replace(origin, folder=None if path.parent == shipped else str(folder))


def validated(model: type[M], data: Any, origin: Origin, what: str, keys: str) -> M:
    """The settings with these values; `keys`: those that each has. Raises RecipeError with a line for all that is
    wrong."""
    if not isinstance(data, Mapping):
        found = "is empty" if data is None else f"is a {type(data).__name__}"
        raise RecipeError([Finding(origin.name, "", f"{found}; a {what} has the keys {keys}")])
    try:
        return model.model_validate(data, context={FOLDER: origin.folder})
    except ValidationError as error:
        raise RecipeError(findings_of(error, model, data, origin)) from None
