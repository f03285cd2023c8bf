"""Settings of a recipe or a proxy in a YAML file: a shipped one by name, or a user's by path.

`parse_yaml` returns the values and the line of every key. An error is one line with its place in the file.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from gristmill.flows.machine.wrong_values import did_you_mean
from gristmill.flows.recipe.errors import Finding, KeyPath, Origin, RecipeError, findings_of
from gristmill.storage.settings import FOLDER

MAX_BYTES = 1 << 20
# An alias stands for a whole tree, so a few lines of nested aliases can be billions of values.
MAX_ALIASES = 16
MAX_DEPTH = 32
MAX_VALUES = 50_000  # keys, values and brackets: a recipe with 5,000 sources has 40,000
# Tags of values that a recipe may have. Others are bytes, sets, or pairs.
_TAGS = frozenset(
    f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "timestamp", "map", "seq", "merge")
)
# Numbers in base 8 and 60 ("Integer Language-Independent Type for YAML Version 1.1"), which are usually unintended.
_ODD_NUMBER = re.compile(r"[-+]?(0[0-9_]+|[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?)")


def parse_yaml(data: bytes, name: str) -> tuple[Any, Origin]:
    """The values of a recipe's file, and the line of each. Raises RecipeError with one finding."""
    if len(data) > MAX_BYTES:
        raise _yaml_error(
            name, None, f"has {len(data):,} bytes, where a recipe has at most {MAX_BYTES:,}; name a recipe"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _yaml_error(name, None, f"is not UTF-8 text (byte {error.start}); give a YAML recipe") from error
    try:
        _check_size(text, name)
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            lines = dict(_lines(node, (), name)) if node is not None else {}
            return (loader.construct_document(node) if node is not None else None), Origin(name, lines)
        finally:
            loader.dispose()
    except RecipeError:
        raise
    except yaml.MarkedYAMLError as error:
        what = " ".join(part for part in (error.context, error.problem) if part)
        raise _yaml_error(
            name, error.problem_mark or error.context_mark, f"is not YAML: {what}; {_remedy(what)}"
        ) from error
    except yaml.reader.ReaderError as error:
        raise _yaml_error(
            name, None, f"is not YAML: character {error.character!r} at {error.position}; remove it"
        ) from error
    except ValueError as error:  # of a value, as the date 2024-13-45
        raise _yaml_error(name, None, f"has a value that cannot be read: {error}; put it in quotes") from error


def _remedy(problem: str) -> str:
    if "\\t" in problem:
        return "indent with spaces"
    if "mapping values are not allowed" in problem:
        return "indent the keys of a mapping alike, and put a value with a colon in quotes"
    if "expected" in problem:
        return "close every bracket and quote before this position, and indent lines equally"
    return "correct this line or the one before it"


def _yaml_error(name: str, mark: Any, message: str) -> RecipeError:
    where = name if mark is None else f"{name}:{mark.line + 1}:{mark.column + 1}"
    return RecipeError([Finding(where, "", message)])


def _check_size(text: str, name: str) -> None:
    aliases = depth = values = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        values += isinstance(event, yaml.NodeEvent | yaml.CollectionEndEvent)
        if values > MAX_VALUES:
            raise _yaml_error(
                name, event.start_mark, f"has more than {MAX_VALUES:,} keys and values; divide it into several recipes"
            )
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise _yaml_error(
                name, event.start_mark, f"is nested more than {MAX_DEPTH} levels deep; reduce the nesting"
            )
        aliases += isinstance(event, yaml.AliasEvent)
        if aliases > MAX_ALIASES:
            raise _yaml_error(
                name, event.start_mark, f"has more than {MAX_ALIASES} aliases (*name); write the values out"
            )


def _lines(
    node: yaml.Node, path: KeyPath, name: str, above: tuple[yaml.Node, ...] = ()
) -> Iterator[tuple[KeyPath, int]]:
    """Every path with its line, from 1. Raises RecipeError for a repeated key, and for a number that YAML 1.1 reads as
    another one."""
    if any(node is one for one in above):
        raise _yaml_error(name, node.start_mark, "contains itself through an alias (*name); write the values out")
    if node.tag not in _TAGS:
        shown = node.tag.replace("tag:yaml.org,2002:", "!!")
        raise _yaml_error(
            name, node.start_mark, f"has a value of the type {shown}; write text, a number, a list or a mapping"
        )
    yield path, node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen and isinstance(key, yaml.ScalarNode):
                raise _yaml_error(name, key.start_mark, f"has the key `{key.value}` twice; remove one")
            if isinstance(key, yaml.ScalarNode):
                seen.add(key.value)
                yield (*path, key.value), key.start_mark.line + 1
                for below, line in _lines(value, (*path, key.value), name, (*above, node)):
                    if below != (*path, key.value):
                        yield below, line
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _lines(value, (*path, index), name, (*above, node))
    elif isinstance(node, yaml.ScalarNode) and node.style is None and _ODD_NUMBER.fullmatch(node.value):
        meaning = yaml.safe_load(node.value)
        if not isinstance(meaning, str):
            message = f"has {node.value}, which YAML reads as {meaning}; write {meaning}, or {node.value} in quotes"
            raise _yaml_error(name, node.start_mark, message)


Value = str | int | float | bool | None | Mapping[str, int]


def edited(text: str, section: str, values: Mapping[str, Value]) -> str:
    """Set values of a section in the YAML `text`. The section is a mapping, such as `training`.

    Existing values are replaced in place, new keys are added after the section's last key, and a missing section is
    added at the end. Raises ValueError if the text or the section is not a mapping.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        raise ValueError("the recipe is not a mapping with one key per line; edit its `training` by hand")
    section_node = next((value for key, value in root.value if key.value == section), None)
    if section_node is None or (isinstance(section_node, yaml.ScalarNode) and not section_node.value):
        if section_node is not None:
            raise ValueError(f"`{section}` is empty; delete the line, and it is written again")
        lines = "".join(f"  {key}: {_written(value)}\n" for key, value in values.items())
        return f"{text.rstrip()}\n\n{section}:\n{lines}"
    if not isinstance(section_node, yaml.MappingNode) or not section_node.value:
        raise ValueError(f"`{section}` is not a mapping; edit it by hand")
    there = {key.value: value for key, value in section_node.value}
    changes = []
    for key, value in values.items():
        if key in there:
            node = there[key]
            if isinstance(node, yaml.CollectionNode) and not node.flow_style:
                raise ValueError(f"`{section}.{key}` spans several lines; edit it by hand")
            changes.append((node.start_mark.index, node.end_mark.index, _written(value)))
    new = {key: value for key, value in values.items() if key not in there}
    if new:
        last = section_node.value[-1][1].end_mark.index
        if section_node.flow_style:
            added = "".join(f", {key}: {_written(value)}" for key, value in new.items())
            changes.append((last, last, added))
        else:
            column = section_node.value[0][0].start_mark.column
            # behind the comment that the last value's line may end with
            end = text.find("\n", last) if "\n" not in text[last - 1 : last] else last - 1
            end = len(text) if end < 0 else end
            added = "".join(f"\n{' ' * column}{key}: {_written(value)}" for key, value in new.items())
            changes.append((end, end, added))
    for start, stop, put in sorted(changes, reverse=True):
        text = text[:start] + put + text[stop:]
    whole = yaml.safe_load(text)[section]
    if any(whole.get(key) != value for key, value in values.items()):
        raise ValueError(f"`{section}` cannot be edited automatically; edit it by hand")
    return text


def _written(value: Value) -> str:
    if value is None:
        return "null"
    return value if isinstance(value, str) and value.isidentifier() else json.dumps(value)


M = TypeVar("M", bound=BaseModel)


def named_file(name: str | Path, shipped: Path, what: str) -> Path:
    """The file at a path, or in the folder `shipped` by name, with or without its suffix.

    `what`: for messages. Raises FileNotFoundError, which lists the shipped files, and IsADirectoryError.
    """
    path = Path(name)
    ships = shipped / f"{path.name.removesuffix('.yaml')}.yaml"
    if not path.is_file() and str(path) == path.name and ships.is_file():
        return ships
    if path.is_dir():
        raise IsADirectoryError(f"{name} is a folder: name a {what} in it")
    if not path.is_file():
        names = sorted(one.stem for one in shipped.glob("*.yaml"))
        hint = f"{did_you_mean(name, names)} shipped: {', '.join(names)}".strip()
        raise FileNotFoundError(f"no {what} file {name}, and no shipped one with this name ({hint})")
    return path


def read(source: Any, shipped: Path, what: str) -> tuple[Any, Origin]:
    """The values of a file, given by name or path, or the given values; not validated. Raises as `named_file`, and
    RecipeError for a file that is not YAML."""
    if not isinstance(source, str | Path):
        return source, Origin(what)
    path = named_file(source, shipped, what)
    with path.open("rb") as file:
        values, origin = parse_yaml(file.read(MAX_BYTES + 1), str(source))
    # ../a/recipe.yaml is the recipe of a run as /b/a/recipe.yaml: its sources have one name
    folder = path.parent.resolve() if ".." in path.parts else path.parent.absolute()
    return values, replace(origin, folder=None if path.parent == shipped else str(folder))


def validated(model: type[M], data: Any, origin: Origin, what: str, keys: str) -> M:
    """Validate values as settings. `keys`: the valid keys of each. Raises RecipeError with a line per problem."""
    if not isinstance(data, Mapping):
        description = "is empty" if data is None else f"is a {type(data).__name__}"
        raise RecipeError([Finding(origin.name, "", f"{description}; a {what} has the keys {keys}")])
    try:
        return model.model_validate(data, context={FOLDER: origin.folder})
    except ValidationError as error:
        raise RecipeError(findings_of(error, model, data, origin)) from None
