"""Variants of a recipe, such as the candidates of a comparison, and the differences between two recipes."""

import os
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any

import yaml

from gristmill.flows.machine.wrong_values import did_you_mean, shown
from gristmill.flows.recipe.errors import Finding, Origin, RecipeError
from gristmill.flows.recipe.recipe import Recipe, validated
from gristmill.tasks.documents.step import named_kind
from gristmill.tasks.documents.where import EXPRESSIONS

_JSONL = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".json", ".json.gz", ".json.zst")


@dataclass(frozen=True)
class Variant:
    """`label`: the difference, for people."""

    label: str
    recipe: Recipe


def changed(recipe: Recipe, settings: Sequence[str]) -> Recipe:
    """The recipe with these values, in the form of `variant`, and raises as it does."""
    return variant(recipe, *settings).recipe if settings else recipe


def variant(recipe: Recipe, *settings: str) -> Variant:
    """The recipe with other values, each given as `minhash.threshold=0.9`: a step's setting, or a key of the recipe.

    The value is YAML, except that an expression is used as it is. Steps and sources have their names, as in error
    messages: `steps.minhash.threshold`, `sources.web.warc`. Raises RecipeError for an unknown key or an invalid result.
    """
    data, whole = _values(recipe), recipe.model_dump(mode="json")
    for setting in settings:
        _set(data, whole, setting)
    label = ", ".join(settings)
    return Variant(label, validated(data, Origin(label)))


def without(recipe: Recipe, step: str) -> Variant:
    """The recipe without a step. Raises RecipeError if it has no such step, or if another step depends on it."""
    names = [one.step for one in recipe.steps]
    label = f"without {step}"
    if step not in names:
        hint = did_you_mean(step, names) or f"the steps are {', '.join(names)}"
        raise RecipeError([Finding(label, "steps", f"there is no step `{step}` in the recipe {recipe.name}; {hint}")])
    data = _values(recipe)
    del data["steps"][names.index(step)]
    return Variant(label, validated(data, Origin(label)))


def raw(recipe: Recipe) -> Variant:
    """The recipe with only the steps that make documents: `url`, `extract` (optional for recipes of texts) and
    `normalize`."""
    return Variant("raw", validated(_without_later_steps(recipe), Origin("raw")))


def unfiltered(recipe: Recipe) -> Recipe:
    """The recipe with only `extract` and `normalize`: every document of its sources, unfiltered. It has no mixture,
    because a mixture may read signals of later steps."""
    data = _without_later_steps(recipe)
    data["steps"] = data["steps"][len(recipe.before) :]
    data.pop("mixture", None)
    return validated(data, Origin("unfiltered"))


def _without_later_steps(recipe: Recipe) -> dict[str, Any]:
    data = _values(recipe)
    data["steps"] = data["steps"][: len(recipe.steps) - len(recipe.after)]
    if recipe.extract not in recipe.steps:
        data["steps"].insert(len(recipe.before), {"step": "extract"})
    return data


def difference(base: Recipe, other: Recipe) -> list[str]:
    """The differences between two recipes, as lines of a unified diff: `@@ steps.minhash @@`, then `-threshold: 0.8`
    and `+threshold: 0.9`. The names of the recipes are ignored.

    Steps and sources are compared by name: first their list with one neighbor, if it differs, then the differing
    settings of those in both, including defaults. A step or source that only one recipe has is shown with its settings
    that are not the default.
    """
    before, now = (recipe.model_dump(mode="json", exclude={"name"}) for recipe in (base, other))
    lines: list[str] = []
    for key in before:
        if key not in _ENTRIES:
            lines += _hunk(key, before[key], now[key])
            continue
        ours, theirs = ({entry[_ENTRIES[key]]: entry for entry in values[key]} for values in (before, now))
        alone = {*ours} ^ {*theirs}
        lines += _diff(key, _listed(base, key, alone), _listed(other, key, alone), context=1)
        for name in ours:
            if name not in alone:
                lines += _hunk(f"{key}.{name}", ours[name], theirs[name])
    return lines


_ENTRIES = {"sources": "name", "steps": "step"}  # lists of a recipe, and what names an entry
_WIDTH = 100  # characters of a line, above which a list has a line for each entry


def _listed(recipe: Recipe, key: str, whole: set[str]) -> list[str]:
    """The names of steps or sources. Those in `whole` have their settings that are not the default."""
    named = _ENTRIES[key]
    lines = []
    for entry in getattr(recipe, key):
        name = getattr(entry, named)
        lines.append(f"{named}: {name}")
        if name in whole:
            values = entry.model_dump(mode="json", exclude_unset=True, exclude_defaults=True, exclude={named})
            lines += [f"  {line}" for line in _lines(values)]
    return lines


def _hunk(name: str, before: Any, now: Any) -> list[str]:
    """The differing settings of a step, source or block that both recipes have. `name`: its path."""

    def lines(value: Any) -> list[str]:
        return list(_lines(value if isinstance(value, dict) else {name.rpartition(".")[2]: value}))

    return [] if before == now else _diff(name, lines(before), lines(now), context=0)


def _diff(name: str, before: list[str], now: list[str], context: int) -> list[str]:
    """The lines of the hunks under one header with their path."""
    _, _, *lines = [*unified_diff(before, now, n=context, lineterm="")] or ["", ""]
    return [f"@@ {name} @@", *(line for line in lines if not line.startswith("@@"))] if lines else []


def _lines(values: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """A line per setting, by path."""
    for key, value in values.items():
        name = f"{path}{key}"
        if isinstance(value, dict) and value:
            yield from _lines(value, f"{name}.")
            continue
        line = f"{name}: {_flow(value)}"
        if isinstance(value, list) and len(line) > _WIDTH:
            yield from (f"{name}: - {_flow(entry)}" for entry in value)
        else:
            yield line


def _flow(value: Any) -> str:
    """A value as YAML on one line."""
    written = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=float("inf"), sort_keys=False)
    return written.removesuffix("\n").removesuffix("\n...")


def texts_alone(recipe: Recipe, texts: Mapping[str, str]) -> Recipe:
    """A recipe that reads only separate texts, and normalizes them as the given recipe does.

    `texts`: paths or addresses by name: JSON Lines with `text` and optionally `url`, Parquet with a column `text`, a
    .txt file, or a folder of these.
    """
    steps: list = [
        {"step": "extract", "engine": "plain"},
        *([recipe.normalize.everywhere()] if recipe.normalize else []),
    ]
    sources = [{"name": name, **_files(address)} for name, address in texts.items()]
    return Recipe.model_validate({"name": recipe.name, "sources": sources, "steps": steps})


def _files(address: str) -> dict[str, Any]:
    """The files of a text set as the keys of a source. Raises FileNotFoundError for a file without end, as
    /dev/zero."""
    if os.path.exists(address) and not (os.path.isfile(address) or os.path.isdir(address)):
        raise FileNotFoundError(
            f"the text set {address} is a pipe or a device: write its texts to a file, and give that file"
        )
    if address.endswith(_JSONL):
        return {"jsonl": [address], "url_column": "url"}
    if address.endswith(".parquet"):
        return {"parquet": [address]}
    if address.endswith((".txt", ".txt.gz", ".txt.zst")):
        return {"text": [address]}
    return {"text": [f"{address.rstrip('/')}/**/*.txt"]}


def _values(recipe: Recipe) -> dict[str, Any]:
    """The values of a recipe without defaults, so that errors can propose missing keys."""
    data = recipe.model_dump(mode="json", exclude_unset=True)
    for step, values in zip(recipe.steps, data["steps"], strict=True):
        values.setdefault("step", step.step)
    return data


def _set(data: dict[str, Any], whole: dict[str, Any], setting: str) -> None:
    """Set a value in the values of a recipe, and in `whole`, the values with all defaults."""
    name, equals, value = setting.partition("=")
    keys = name.strip().split(".")
    if not equals or not all(keys):
        raise RecipeError(
            [Finding(setting, "", "is not a setting; write step.setting=value, such as minhash.threshold=0.9")]
        )
    try:
        parsed = given_value(name, value)
    except yaml.YAMLError as error:
        what = " ".join(str(error).split())
        raise RecipeError(
            [Finding(setting, "", f"has a value that is not valid YAML: {what}; put it in quotes")]
        ) from error
    steps = [step["step"] for step in data["steps"]]
    if keys[0] in steps:
        keys = ["steps", *keys]
    if keys[0] not in Recipe.model_fields:
        names = [*steps, *Recipe.model_fields]
        hint = did_you_mean(keys[0], names) or f"known names: {', '.join(names)}"
        raise RecipeError([Finding(setting, keys[0], f"is neither a step nor a key of the recipe; {hint}")])
    given_at, node = data, whole
    for depth, key in enumerate(keys[:-1]):
        given_at, node = _below(given_at, node, key, ".".join(keys[:depth]), setting)
    if not isinstance(node, dict):
        raise _no_keys(node, ".".join(keys[:-1]), setting)
    for other in replaced(name, parsed):
        given_at[other] = node[other] = None
    given_at[keys[-1]] = node[keys[-1]] = parsed


def given_value(name: str, value: str) -> Any:
    """The value of a setting on the command line: YAML, except that an expression is used as it is, with its quotes,
    colons and `#`. Raises YAMLError."""
    if not _is_expression(name):
        return yaml.safe_load(value)
    text = value.strip()
    try:
        quoted = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    # in quotes of YAML as a whole, as in a recipe; one text in quotes is no expression
    return quoted if quoted is None or (isinstance(quoted, str) and text[:1] in "'\"" and quoted != text) else text


def replaced(name: str, value: Any) -> tuple[str, ...]:
    """The settings of the same step that a setting on the command line replaces: `drop` for `keep`."""
    setting = name.rpartition(".")[2].strip()
    return tuple(each for each in EXPRESSIONS if each != setting) if _is_expression(name) and value is not None else ()


def _is_expression(name: str) -> bool:
    step, _, setting = name.strip().removeprefix("steps.").rpartition(".")
    return named_kind(step) == "where" and setting in EXPRESSIONS


def _below(given_at: Any, node: Any, key: str, path: str, setting: str) -> tuple[Any, Any]:
    """The value of a key, or of a named entry, in the given values and in those with all defaults."""
    if isinstance(node, list):
        names = [entry.get("step") or entry.get("name") for entry in node]
        if key not in names:
            hint = did_you_mean(key, names) or f"known entries: {', '.join(names)}"
            raise RecipeError([Finding(setting, path, f"has no entry {key}; {hint}")])
        return given_at[names.index(key)], node[names.index(key)]
    if not isinstance(node, dict):
        raise _no_keys(node, path, setting)
    if node.get(key) is None:
        node[key] = {}
    # a mapping that the recipe leaves at its default keeps what else is in it
    return given_at.setdefault(key, deepcopy(node[key])), node[key]


def _no_keys(value: Any, path: str, setting: str) -> RecipeError:
    return RecipeError([Finding(setting, path, f"is {shown(value)}, which has no nested keys; set the whole value")])
