"""Settings in a YAML file: of one that ships, by its name, or of a user's, by its path. Recipes and proxies."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from gristmill.flows.recipe import syntax
from gristmill.flows.recipe.errors import Finding, Origin, RecipeError, did_you_mean, findings_of
from gristmill.storage.address import FOLDER

Value = str | int | float | bool | None | Mapping[str, int]


def edited(text: str, section: str, values: Mapping[str, Value]) -> str:
    """The YAML `text` with these values of a section that is a mapping, as `training`.

    A value that is there is replaced where it stands; a key that is not there is added behind the section's last one. A
    section that is missing is added at the end. Raises ValueError for a text that is no mapping, or whose section is
    none.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        raise ValueError("the recipe is no mapping of keys in lines of their own; write its `training` by hand")
    found = next((value for key, value in root.value if key.value == section), None)
    if found is None or (isinstance(found, yaml.ScalarNode) and not found.value):
        if found is not None:
            raise ValueError(f"`{section}` is empty; take the line out, and it is written anew")
        lines = "".join(f"  {key}: {_written(value)}\n" for key, value in values.items())
        return f"{text.rstrip()}\n\n{section}:\n{lines}"
    if not isinstance(found, yaml.MappingNode) or not found.value:
        raise ValueError(f"`{section}` is no mapping with keys; write it by hand")
    there = {key.value: value for key, value in found.value}
    changes = []
    for key, value in values.items():
        if key in there:
            node = there[key]
            if isinstance(node, yaml.CollectionNode) and not node.flow_style:
                raise ValueError(f"`{section}.{key}` has lines of its own; write it by hand")
            changes.append((node.start_mark.index, node.end_mark.index, _written(value)))
    new = {key: value for key, value in values.items() if key not in there}
    if new:
        last = found.value[-1][1].end_mark.index
        if found.flow_style:
            added = "".join(f", {key}: {_written(value)}" for key, value in new.items())
            changes.append((last, last, added))
        else:
            column = found.value[0][0].start_mark.column
            # behind the comment that the last value's line may end with
            end = text.find("\n", last) if "\n" not in text[last - 1 : last] else last - 1
            end = len(text) if end < 0 else end
            added = "".join(f"\n{' ' * column}{key}: {_written(value)}" for key, value in new.items())
            changes.append((end, end, added))
    for start, stop, put in sorted(changes, reverse=True):
        text = text[:start] + put + text[stop:]
    whole = yaml.safe_load(text)[section]
    if any(whole.get(key) != value for key, value in values.items()):
        raise ValueError(f"`{section}` cannot be changed in place; write it by hand")
    return text


def _written(value: Value) -> str:
    if value is None:
        return "null"
    return value if isinstance(value, str) and value.isidentifier() else json.dumps(value)


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
