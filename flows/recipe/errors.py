"""Problems of a recipe, each as a sentence with the key, its value, and the fix."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from gristmill.flows.machine.wrong_values import choices, did_you_mean, listed, shown, wanted
from gristmill.tasks.documents.step import FORM, base_name_of, named_kind

KeyPath = tuple[int | str, ...]


@dataclass(frozen=True)
class Finding:
    """A problem. `where`: the file, with the line if known. `key`: such as `steps.minhash.bands`, "" for the whole
    recipe."""

    where: str
    key: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.where, self.key, self.message) if part)


MAX_FINDINGS = 50  # that are looked for and listed: a wrong recipe of a program may have one for each of its lines


def limited(findings: Sequence[Finding], more: int = 0) -> tuple[Finding, ...]:
    """The first MAX_FINDINGS findings, and one with the number of the others plus `more`."""
    more += max(0, len(findings) - MAX_FINDINGS)
    if not more:
        return tuple(findings)
    name = re.sub(r":\d+$", "", findings[0].where)
    return (*findings[:MAX_FINDINGS], Finding(name, "", f"{more:,} more problems; correct these first"))


class RecipeError(ValueError):
    """A recipe cannot be run. The message has a line for each finding."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(map(str, self.findings)))


class ContradictionError(ValueError):
    """Settings exclude each other. `found`: for each the path below the model, and a sentence."""

    def __init__(self, problems: Sequence[tuple[KeyPath, str]]) -> None:
        self.found = tuple(problems)
        super().__init__("; ".join(sentence for _, sentence in problems))


@dataclass(frozen=True)
class Origin:
    """The origin of a recipe: the name of its file, the line of each key, and the folder of its relative paths; None if
    it is not a user's file."""

    name: str = "recipe"
    lines: Mapping[KeyPath, int] | None = None
    folder: str | None = None

    def finding(self, data: Any, path: KeyPath, message: str) -> Finding:
        """A finding for a key of the recipe `data`."""
        prefix = path
        while self.lines and prefix and prefix not in self.lines:
            prefix = prefix[:-1]
        line = (self.lines or {}).get(prefix)
        return Finding(f"{self.name}:{line}" if line else self.name, key_of(data, path), message)


def key_of(data: Any, path: KeyPath) -> str:
    """A path as users write it, with steps and sources by name: `steps.minhash.bands`, `sources.web.warc[0]`."""
    key = ""
    for part in path:
        data = _below(data, part)
        name = (data.get("step") or data.get("name")) if isinstance(data, Mapping) else None
        if isinstance(part, str):
            key += f".{part}"
        else:
            key += f".{name}" if isinstance(name, str) and re.fullmatch(r"[\w-]+", name) else f"[{part}]"
    return key.removeprefix(".")


def _below(data: Any, part: int | str) -> Any:
    if isinstance(data, Mapping):
        return data.get(part)
    if isinstance(data, list | tuple) and isinstance(part, int) and part < len(data):
        return data[part]
    return None


def findings_of(error: ValidationError, model: type[BaseModel], data: Any, origin: Origin) -> list[Finding]:
    """The findings of a failed validation of `data`, in the order of the model's fields, limited."""
    findings: list[Finding] = []
    every = error.errors(include_url=False)
    errors, more = every[:MAX_FINDINGS], len(every) - MAX_FINDINGS
    for each in errors:
        depth = len(each["loc"])
        if each["type"] == "too_short" and any(
            other["loc"][:depth] == each["loc"] and len(other["loc"]) > depth for other in errors
        ):
            continue  # pydantic does not count entries that are wrong themselves
        path = _path(each["loc"], data)
        cause = each.get("ctx", {}).get("error")
        if isinstance(cause, ContradictionError):
            findings += [origin.finding(data, path + below, sentence) for below, sentence in cause.found]
        else:
            findings.append(origin.finding(data, path, _sentence(each, model, data, path)))
    return [*limited(findings, max(0, more))]


def _path(loc: KeyPath, data: Any) -> KeyPath:
    """A location of a pydantic error without the names of classes after the number of a step or source, and without the
    forms of values."""
    loc = tuple(part for part in loc if not str(part).startswith(FORM))
    if len(loc) > 2 and loc[0] in ("steps", "sources") and isinstance(loc[2], str):
        entry = _below(_below(data, loc[0]), loc[1])
        if loc[0] == "sources" or (isinstance(entry, Mapping) and _is_step(entry.get("step"), loc[2])):
            return (*loc[:2], *loc[3:])
    return loc


def _sentence(error: Mapping[str, Any], model: type[BaseModel], data: Any, path: KeyPath) -> str:
    kind, value, context = error["type"], error.get("input"), error.get("ctx", {})
    described = _description(model, data, path)
    if kind == "extra_forbidden":
        return _unknown_key(model, data, path)
    if kind == "missing":
        return f"is missing; add it{f' ({described})' if described else ''}"
    if kind == "value_error":
        return str(context["error"])
    if kind == "union_tag_invalid":
        steps = re.findall(r"'(\w+)'", context["expected_tags"])
        hint = did_you_mean(context["tag"], steps) or (
            f"known steps: {', '.join(steps)}. For your own step, set GRISTMILL_STEPS to its module"
        )
        return f"there is no step {shown(context['tag'])}; {hint}"
    if kind == "union_tag_not_found":
        return f"is {shown(value)}, which has no key `step`; write `- step: NAME`"
    if kind == "source":
        return _no_source(value, error["msg"])
    if kind == "literal_error":
        return f"is {shown(value)}; {choices(value, context['expected'])}"
    sentence = f"is {shown(value)}; give {wanted(kind, context, error['msg'])}"
    return f"{sentence} ({described})" if described else sentence


def _unknown_key(model: type[BaseModel], data: Any, path: KeyPath) -> str:
    keys = [name for one in _models(model, data, path[:-1]) for name in one.model_fields]
    beside = data
    for part in path[:-1]:
        beside = _below(beside, part)
    free = [key for key in keys if not (isinstance(beside, Mapping) and key in beside)]
    hint = _elsewhere(model, path) or did_you_mean(path[-1], free) or f"remove it; the keys here are {', '.join(keys)}"
    return f"is an unknown key, with the value {shown(_below(beside, path[-1]))}; {hint}"


# The fixes for keys of earlier releases.
_ENGINE = "remove it: `training.parallel` now divides a model without OLMo-core, and reads the same checkpoints"
_REMOVED: dict[KeyPath, str] = {("training", "engine"): _ENGINE}


def _elsewhere(model: type[BaseModel], path: KeyPath) -> str:
    """The fix for a removed key, or for a key at the top that belongs into a block, or the other way around; "" for
    other keys."""
    key = path[-1]
    if path in _REMOVED:
        return _REMOVED[path]
    if len(path) == 2 and key in model.model_fields:
        return f"it is a separate key: move it out of `{path[0]}`"
    if len(path) == 1:
        blocks = [name for name, field in model.model_fields.items() if key in _block_keys(field.annotation)]
        if blocks:
            return f"write {' or '.join(f'`{block}.{key}`' for block in blocks)}: the key belongs to that block"
    return ""


def _block_keys(annotation: Any) -> set[str]:
    """The keys of an optional block of settings; none for a list of entries."""
    blocks = [
        one for one in (annotation, *get_args(annotation)) if isinstance(one, type) and issubclass(one, BaseModel)
    ]
    is_block = get_origin(annotation) in (None, Union, UnionType)
    return {name for block in blocks for name in block.model_fields} if is_block else set()


def _no_source(value: Any, message: str) -> str:
    if not isinstance(value, Mapping):
        return f'is {shown(value)}; give a mapping with `name` and the files, as {{name: web, warc: ["*.warc.gz"]}}'
    kinds = re.findall(r"\w+", message.partition("keys ")[2])
    named = [key for key in value if key in kinds]
    if named:
        return f"has the keys {', '.join(named)} at the same time; give exactly one of {', '.join(kinds)}"
    for key in value:
        if hint := did_you_mean(key, kinds):
            return f"has the unknown key `{key}`; {hint}"
    return f"has the keys {listed(map(str, value))}; give exactly one of {', '.join(kinds)} with its files"


def _models(model: type[BaseModel], data: Any, path: KeyPath) -> list[type[BaseModel]]:
    """The models that may validate the value at a path."""
    models = [model]
    for part in path:
        data = _below(data, part)
        if isinstance(part, str):
            fields = [one.model_fields[part].annotation for one in models if part in one.model_fields]
            # else a key of a mapping of entries, which `models` has already
            models = [inner for annotation in fields for inner in _within(annotation)] if fields else models
        if isinstance(data, Mapping):
            models = [one for one in models if _named(one, data)] or models
    return models


def _named(model: type[BaseModel], data: Mapping[str, Any]) -> bool:
    """Whether the entry of a list is for a model, judged by its step, or by the required files of a source."""
    step = model.model_fields.get("step")
    if step is not None:
        return _is_step(data.get("step"), step.default)
    return all(name in data for name, field in model.model_fields.items() if field.is_required() and name != "name")


def _is_step(name: Any, kind: Any) -> bool:
    """Whether a step's name in a recipe is of a kind."""
    base = base_name_of(name) if isinstance(name, str) else name
    return base == kind or named_kind(name) == kind


def _within(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _within(inner)]


def _description(model: type[BaseModel], data: Any, path: KeyPath) -> str:
    """The description of a key, from its field."""
    names = [index for index, part in enumerate(path) if isinstance(part, str)]
    if not names:
        return ""
    last = names[-1]
    for one in _models(model, data, path[:last]):
        field = one.model_fields.get(str(path[last]))
        if field is not None and field.description:
            return field.description.removesuffix(".")
    return ""
