"""A recipe's text as YAML: the values, and the line of every key. An error is one line with the place in the file."""

from collections.abc import Iterator
from typing import Any

import yaml

from gristmill.flows.recipe.errors import Finding, Origin, Path, RecipeError

MOST_BYTES = 1 << 20
# An alias stands for a whole tree: a few lines of aliases of aliases are billions of values.
MOST_ALIASES = 16
MOST_DEPTH = 32


def parse(data: bytes, name: str) -> tuple[Any, Origin]:
    """The values of a recipe's file and where each stands. Raises RecipeError with one finding."""
    if len(data) > MOST_BYTES:
        raise _error(name, None, f"has {len(data):,} bytes, where a recipe has at most {MOST_BYTES:,}; name a recipe")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _error(name, None, f"is no text in UTF-8 (byte {error.start}); name a recipe in YAML") from error
    try:
        _check_aliases(text, name)
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
        raise _error(name, error.problem_mark or error.context_mark, f"is not YAML: {what}; {_remedy(what)}") from error
    except yaml.reader.ReaderError as error:
        raise _error(
            name, None, f"is not YAML: character {error.character!r} at {error.position}; remove it"
        ) from error
    except ValueError as error:  # of a value, as the date 2024-13-45
        raise _error(name, None, f"has a value that cannot be read: {error}; put it in quotes") from error


def _remedy(problem: str) -> str:
    if "\\t" in problem:
        return "indent with spaces"
    if "mapping values are not allowed" in problem:
        return "indent the keys of a mapping alike, and put a value with a colon in quotes"
    if "expected" in problem:
        return "close every bracket and quote before this place, and indent alike"
    return "correct this line or the one before it"


def _error(name: str, mark: Any, message: str) -> RecipeError:
    where = name if mark is None else f"{name}:{mark.line + 1}:{mark.column + 1}"
    return RecipeError([Finding(where, "", message)])


def _check_aliases(text: str, name: str) -> None:
    aliases = depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MOST_DEPTH:
            raise _error(name, event.start_mark, f"is nested more than {MOST_DEPTH} deep; write it flatter")
        aliases += isinstance(event, yaml.AliasEvent)
        if aliases > MOST_ALIASES:
            raise _error(name, event.start_mark, f"has more than {MOST_ALIASES} aliases (*name); write the values out")


def _lines(node: yaml.Node, path: Path, name: str, above: tuple[yaml.Node, ...] = ()) -> Iterator[tuple[Path, int]]:
    """Every path with its line, from 1."""
    if any(node is one for one in above):
        raise _error(name, node.start_mark, "holds itself through an alias (*name); write the values out")
    yield path, node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen and isinstance(key, yaml.ScalarNode):
                raise _error(name, key.start_mark, f"has the key `{key.value}` twice; remove one")
            if isinstance(key, yaml.ScalarNode):
                seen.add(key.value)
                yield (*path, key.value), key.start_mark.line + 1
                for below, line in _lines(value, (*path, key.value), name, (*above, node)):
                    if below != (*path, key.value):
                        yield below, line
    elif isinstance(node, yaml.SequenceNode):
        for at, value in enumerate(node.value):
            yield from _lines(value, (*path, at), name, (*above, node))
