"""The check of a recipe: all that is wrong, and what it will take."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe import own_steps
from gristmill.flows.recipe.check import inputs
from gristmill.flows.recipe.check.columns import expressions, of_export, of_groups
from gristmill.flows.recipe.check.estimate import Estimate, estimate, largest_job
from gristmill.flows.recipe.errors import Finding, Origin, RecipeError
from gristmill.flows.recipe.recipe import Recipe, read, validated
from gristmill.flows.recipe.steps import BUILT_IN
from gristmill.storage import files
from gristmill.storage.address import FOLDER
from gristmill.storage.home import Home
from gristmill.tasks.documents.where import is_where
from gristmill.tasks.reading.formats.source import Inspection
from gristmill.tasks.reading.sources import Source

_SOURCE: TypeAdapter[Source] = TypeAdapter(Source)


@dataclass(frozen=True)
class Checked:
    """`findings`: all that is wrong; `estimate`: None for a recipe that cannot be read; `unseen`: what was not looked
    at, since a deep check alone does; `remarks`: what is not wrong, but may not be meant."""

    findings: tuple[Finding, ...]
    estimate: Estimate | None = None
    unseen: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def check(given: Any, settings: MachineSettings, deep: bool = False) -> Checked:
    """What can be known of a recipe, given as for `gristmill.flows.recipe.recipe.load`, before it runs.

    `deep`: remote files are asked for, and the modules of users' steps imported. Raises FileNotFoundError for a recipe
    that is not there.
    """
    try:
        data, origin = read(given)
    except RecipeError as error:
        return Checked(error.findings)
    own = {} if deep or isinstance(data, Recipe) else _own_steps(data)
    unseen = [f"the step {name} of your own" for name in own.values()]
    if own:  # the lines are those of the file with them
        data, origin = (
            {**data, "steps": [s for at, s in enumerate(data["steps"]) if at not in own]},
            replace(origin, lines=None),
        )
    try:
        recipe = data if isinstance(data, Recipe) else validated(data, origin)
    except RecipeError as error:
        found = [f for f in error.findings if not (own and f.key.endswith(".best"))]
        found += _of_files(origin, data, _sources_alone(data, origin), {}, settings, deep)[1]
        return Checked((*found, *_of_home(origin, settings)), unseen=tuple(unseen))
    known = _checked(recipe, data, origin, settings, deep, unseen)
    assert known.estimate is not None, "the recipe can be read"
    job = largest_job(recipe, known.estimate.documents, known.estimate.text_bytes)
    return replace(known, estimate=replace(known.estimate, largest_job=job))


def before_run(recipe: Recipe, settings: MachineSettings) -> None:
    """Raise RecipeError for what would fail later: files that are not there, a home that cannot be written."""
    found = _checked(recipe, recipe, Origin(recipe.name), settings, False, []).findings
    if found:
        raise RecipeError(found)


def _checked(
    recipe: Recipe, data: Any, origin: Origin, settings: MachineSettings, deep: bool, unseen: list[str]
) -> Checked:
    values = data if isinstance(data, Mapping) else recipe.model_dump(mode="json")
    named = dict(enumerate(recipe.sources)), dict(enumerate(recipe.steps))
    inspections, found = _of_files(origin, values, *named, settings, deep)
    troubles = [*inputs.takedowns(recipe, settings, deep), *inputs.evaluation(recipe, settings, deep)]
    troubles += inputs.training(recipe, settings)
    troubles += [*expressions(recipe.steps), *of_export(recipe), *of_groups(recipe)]
    found += [origin.finding(values, path, what) for path, what in troubles]
    needed = estimate(recipe, inspections, settings)
    found += _of_home(origin, settings) or _of_space(origin, needed, settings)
    unseen += [f"remote files of {each.source.name}" for each in inspections if not each.is_complete]
    remarks = tuple(remark for step in recipe.steps for remark in settings.placed(step).remarks())
    return Checked(tuple(found), needed, tuple(unseen), remarks)


def _own_steps(data: Any) -> dict[int, str]:
    """The steps of a recipe that are users', by their places: to know more of them, their code has to run."""
    given = data.get("steps") if isinstance(data, Mapping) else None
    if not isinstance(given, list):
        return {}
    names = {at: step.get("step") for at, step in enumerate(given) if isinstance(step, Mapping)}
    return {
        at: name
        for at, name in names.items()
        if isinstance(name, str) and name not in BUILT_IN and not is_where(name) and own_steps.may_be_known(name)
    }


def _sources_alone(data: Any, origin: Origin) -> dict[int, Source]:
    """The sources of a recipe that can be read, where the recipe cannot."""
    found: dict[int, Source] = {}
    given = data.get("sources") if isinstance(data, Mapping) else None
    for at, source in enumerate(given if isinstance(given, list) else []):
        try:
            found[at] = _SOURCE.validate_python(source, context={FOLDER: origin.folder})
        except ValidationError:
            continue  # which the findings of the recipe name
    return found


def _of_files(
    origin: Origin,
    data: Any,
    sources: Mapping[int, Source],
    steps: Mapping[int, Any],
    settings: MachineSettings,
    deep: bool,
) -> tuple[list[Inspection], list[Finding]]:
    inspections, problems = inputs.sources(sources, settings, deep)
    problems += inputs.steps(steps, settings, deep)
    return inspections, [origin.finding(data, path, what) for path, what in problems]


def _of_home(origin: Origin, settings: MachineSettings) -> list[Finding]:
    return [Finding(origin.name, "", what) for what in inputs.home(settings)]


def _of_space(origin: Origin, needed: Estimate, settings: MachineSettings) -> list[Finding]:
    """Whether the home's disk has room; what the home holds already may be a part of what is needed."""
    if not files.is_local(settings.home):
        return []
    free = shutil.disk_usage(inputs.existing(settings.home)).free
    least = needed.bytes[0]
    if least <= free:
        return []
    held = sum(stage.bytes for stage in Home(settings.home).stages())
    if least <= free + held:
        return []
    what = f"GRISTMILL_HOME is {settings.home}, with {free:,} bytes free, and the run needs at least {least:,}"
    return [Finding(origin.name, "", f"{what}; give a larger disk, or a `limit`")]
