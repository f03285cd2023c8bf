"""A recipe with other thresholds: those settings of a finished run that can be replayed over its stored signals."""

from collections.abc import Iterable, Mapping
from typing import Any

import yaml
from pydantic import ValidationError

from flows.recipe import Recipe
from flows.steps import thresholds_of
from tasks.documents.step import DocumentStep


def parsed(settings: Iterable[str]) -> dict[str, Any]:
    """`step.setting=value` as a mapping, values read as YAML. Raises ValueError for one of another form."""
    changes = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise ValueError(f"{setting}: write step.setting=value, as in gopher_quality.min_words=80")
        try:
            changes[name.strip()] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise ValueError(f"{setting}: the value is no YAML: {error}") from error
    return changes


def changed(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """The recipe with other thresholds, named `step.setting` or, within a setting, `step.setting.key`.

    Raises ValueError, which lists what there is, or gives the reason why the setting cannot be replayed.
    """
    steps = {step.step: step for step in recipe.steps}
    for name, value in changes.items():
        step_name, *path = name.split(".")
        if step_name not in steps:
            raise ValueError(f"{name}: no step {step_name} in the recipe {recipe.name}; there are {', '.join(steps)}")
        step = steps[step_name]
        known = [field for field in type(step).model_fields if field != "step"]
        if not path or path[0] not in known:
            raise ValueError(f"{name}: {step_name} has no such setting; there are {', '.join(known)}")
        if reason := _not_a_threshold(recipe, step, path[0]):
            raise ValueError(f"{name} cannot be replayed: {reason}. Change it in the recipe, and `gristmill run` it")
        steps[step_name] = _with(step, name, path, value)
    return Recipe.model_validate(dict(recipe) | {"steps": tuple(steps.values())})


def _not_a_threshold(recipe: Recipe, step: Any, setting: str) -> str:
    if step.step not in {later.step for later in recipe.after}:
        return f"{step.step} decides while documents are made, and what it drops is not stored"
    if setting in thresholds_of(step):
        return ""
    if isinstance(step, DocumentStep):
        return "it changes what is measured, or the text, and not only what is decided"
    return f"{step.step} looks at all documents together"


def _with(step: Any, name: str, path: list[str], value: Any) -> Any:
    settings = step.model_dump()
    inner = settings
    for key in path[:-1]:
        inner = inner.setdefault(key, {}) if isinstance(inner, dict) else None
    if not isinstance(inner, dict):
        raise ValueError(f"{name}: {'.'.join(path[:-1])} of {step.step} has no settings within")
    inner[path[-1]] = value
    try:
        return type(step).model_validate(settings)
    except ValidationError as error:
        found = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise ValueError(f"{name}={value}: {found}") from error
