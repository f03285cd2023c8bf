"""Readers open recorded runs: the stages that the home has, and not those that today's recipe, code and sources would
give. Where these differ from what made a stage, one line in the log names the difference. `would_make` says what a run
would make beyond them."""

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ValidationError

from gristmill.flows.curation import Outputs
from gristmill.flows.machine.context import RunContext
from gristmill.flows.machine.runs import FLOWS, RecordedRun, Seen, redacted, runs_of
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.corpus import NothingLeftError
from gristmill.storage import files, layout
from gristmill.storage.printable import redact_url
from gristmill.storage.settings import is_one_name
from gristmill.tasks.engine import make, remakes
from gristmill.tasks.engine.code_version import release
from gristmill.tasks.engine.make import NotFinishedError, StageResult
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.reading.sources import BY_KEY

log = logging.getLogger(__name__)


def open_run(settings: MachineSettings, recipe: Recipe) -> tuple[RunContext, Recipe]:
    """A context that makes nothing and gives the stages of the newest run of a recipe, and the recipe of that run.

    Two recipes may have one name: the newest run of exactly this recipe is read, or if there is none, the newest of the
    name, and a line of the log has each difference. A newest run that differs only in `limit` is a run of this recipe.
    A stage that no run of the recipe has, and that is not finished in the home, either, raises NotFinishedError, as
    does a recipe whose name has only runs on other sources.
    """
    remakes.forget(settings.home)
    runs = [run for run in runs_of(settings.home, recipe.name) if run.flow in FLOWS]
    if runs and not is_same_but({"limit"}, runs[0].recipe, recipe):
        runs = [run for run in runs if run.recipe and not changes(run.recipe, recipe)] or runs
    read = recipe
    if runs and runs[0].recipe is not None:
        read = _recipe_of(runs[0], recipe)
        runs = [run for run in runs if run.recipe in (None, runs[0].recipe)]
    stages = RecordedStages(settings.home, read, runs)
    outside = Seen(settings.home, recipe.name).outside
    context = RunContext(settings, stages.build, outside=outside, look_up=stages.find, is_reader=True)
    return context, read


def _recipe_of(run: RecordedRun, given: Recipe) -> Recipe:
    """The recipe of a run: the given one, if it is the same."""
    assert run.recipe is not None, "it was recorded"
    found = changes(run.recipe, given)
    if not found:
        return given
    if _is_elsewhere(run.recipe, given):
        raise NotFinishedError(
            f"no run of the recipe {given.name} with these sources is finished; the newest run of that name reads "
            "others. Run `gristmill corpus RECIPE` with it, or give one of the two recipes another name"
        )
    changed = {name.partition(".")[0].partition("[")[0] for name, _, _ in found}
    # what has not changed is taken from the given recipe, whose addresses have what lets a reader in
    kept = {name: getattr(given, name) for name in type(given).model_fields if name not in changed}
    try:
        recorded = Recipe.model_validate({**run.recipe, **kept})
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"]))
        _warn(
            f"the recipe of the run {run.label} cannot be read any more ({where}: "
            f"{problem['msg']}): using yours instead"
        )
        return given
    lines = [f"{name} was {_short(was)}, is {_short(is_)}" for name, was, is_ in found[:_CHANGES]]
    lines += [f"and {len(found) - _CHANGES} more"] if len(found) > _CHANGES else []
    _warn(
        f"the recipe {given.name} has changed since its run of {run.ended or run.began}; using the recipe of "
        "that run. Changes: " + "; ".join(lines)
    )
    return recorded


def _is_elsewhere(recorded: Mapping[str, Any], given: Recipe) -> bool:
    """Whether a recorded recipe reads nothing that another one of its name reads, whatever the options of sources."""
    was, now = (_read_by(sources) for sources in (recorded["sources"], given.model_dump(mode="json")["sources"]))
    return not any(not list(differences(one, other)) for one in was for other in now)


def _read_by(sources: Iterable[Mapping[str, Any]]) -> list[Any]:
    """What sources read: each file, pattern, list or snapshot."""
    found = []
    for source in sources:
        key = next(key for key in BY_KEY if key in source)
        read = redacted(source["files" if key == "reader" else key])  # `reader` names a function
        found += read if isinstance(read, list) else [read]
    return found


def is_same_but(keys: Collection[str], recorded: Mapping[str, Any] | None, given: Recipe) -> bool:
    """Whether a recipe is a recorded one, but for some of its top-level keys; so is one that was not recorded."""
    return recorded is None or {name.partition(".")[0] for name, _, _ in changes(recorded, given)} <= {*keys}


def is_same_but_defaults(keys: Collection[str], run: RecordedRun, given: Recipe) -> bool:
    """As `is_same_but` for the recipe of a run, where defaults of the release that ran it are no difference either."""
    if run.recipe is None:
        return True
    names = [name for name, _, _ in changes(run.recipe, given) if name.partition(".")[0] not in keys]
    return not names or (run.release != release() and not any(_is_set(given, name) for name in names))


def _is_set(value: Any, name: str) -> bool:
    """Whether a recipe has a key, named as in `differences`, and not its default."""
    for part in re.findall(r"[^.\[\]]+", name):
        if isinstance(value, BaseModel):
            if part not in value.model_fields_set:
                return False
            value = getattr(value, part)
        else:
            value = value[int(part)] if isinstance(value, Sequence) else value.get(part)
    return True


def changes(recorded: Mapping[str, Any], given: Recipe) -> list[tuple[str, Any, Any]]:
    """Where a recipe differs from a recorded one, as `differences` gives it. None of these are changes: the same files
    named from another folder, a key that came with a later release and has its default, and `export`, which changes no
    document."""
    try:
        recorded = redacted(Recipe.model_validate(recorded).model_dump(mode="json"))
    except ValidationError:
        pass  # it cannot be read any more: what it has is compared unchanged
    now = redacted(given.model_dump(mode="json"))
    return [each for each in differences(recorded, now) if each[0].partition(".")[0] != "export"]


_CHANGES = 8  # of a recipe that the warning lists: a release may change dozens of defaults
_said = set[str]()


def _warn(line: str) -> None:
    """Write a warning, once in this process: a command may open a run several times."""
    if line not in _said:
        _said.add(line)
        log.warning("%s", line)


class RecordedStages:
    """The stages of runs of a recipe, the newest first. A stage is found by its key, or else by its place among the
    stages of its name, in which every run asks for them. `quiet`: differences are not logged."""

    def __init__(self, home: str, recipe: Recipe, runs: list[RecordedRun], quiet: bool = False) -> None:
        self._home, self._recipe, self._runs, self._quiet = home, recipe, runs, quiet
        self._asked: dict[str, list[str]] = {}

    def build(self, spec: StageSpec) -> StageResult:
        """The stage. Raises NotFinishedError."""
        if (found := self.find(spec)) is None:
            command = "corpus" if self._recipe.mixture is None else "run"
            raise NotFinishedError(
                f"{spec.name} of the recipe {self._recipe.name} is not finished in {redact_url(self._home)}: "
                f"run `gristmill {command} RECIPE` with it"
            )
        return found

    def find(self, spec: StageSpec) -> StageResult | None:
        """The stage; None where no run has finished it."""
        asked = self._asked.setdefault(spec.name, [])
        if spec.key not in asked:
            asked.append(spec.key)
        if (found := make.find(self._home, spec)) is not None and not found.is_collected:
            return found
        return None if spec.at else next(self._by_place(spec, asked.index(spec.key)), None)

    def _by_place(self, spec: StageSpec, place: int) -> Iterator[StageResult]:
        for run in self._runs:
            labels = [label for label in run.stages if label.rpartition("-")[0] == spec.name]
            if place >= len(labels):
                continue
            folder = files.join(self._home, "stages", labels[place])
            manifest = layout.manifest(folder)
            if manifest is not None and not manifest.get(layout.COLLECTED):
                key = labels[place].rpartition("-")[2]
                self._say(labels[place], spec, manifest)
                yield StageResult(spec.name, key, folder, manifest, reused=True, code=spec.code)

    def _say(self, label: str, spec: StageSpec, manifest: Mapping[str, Any]) -> None:
        if not self._quiet:
            _warn(f"{label} is read unchanged: {'; '.join(reasons(spec, manifest)) or 'its key has changed'}")


def reasons(spec: StageSpec, manifest: Mapping[str, Any]) -> list[str]:
    """Why a stage with this manifest has another key than it would have now, each in a few words."""
    now, found = spec.identity, []
    for name, was, is_ in differences(
        {"version": manifest["version"], **manifest["versions"]}, {"version": now["version"], **now["versions"]}
    ):
        found.append(f"its {'version' if name == 'version' else f'step {name}'} was {_short(was)}, is {_short(is_)}")
    for part, what in (("libraries", "the release of {}"), ("data", "{}"), ("record", "the setting {}")):
        for name, was, is_ in differences(manifest[part], now[part]):
            found.append(f"{what.format(name)} was {_short(was)}, is {_short(is_)}")
    if manifest["unicode"] != now["unicode"]:
        found.append(f"Unicode of Python was {manifest['unicode']}, is {now['unicode']}")
    found += [f"{name} has different contents" for name, _, _ in differences(manifest["inputs"], now["inputs"])]
    return found


def differences(was: Any, now: Any, at: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(where, the value before, the value now) of all in which two values of JSON's types differ."""
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for key in [*was, *(key for key in now if key not in was)]:
            yield from differences(was.get(key), now.get(key), f"{at}.{key}" if at else str(key))
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for number, (one, other) in enumerate(zip(was, now, strict=True)):
            yield from differences(one, other, f"{at}[{number}]")
    elif was != now and not is_one_name(was, now):
        yield at, was, now


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


@dataclass(frozen=True)
class ToMake:
    """A stage that a run would make: `label`, the folder that it would be in; `why`; `cpu_seconds` that it took when it
    was last made, None if it was not."""

    label: str
    why: str
    cpu_seconds: float | None


@dataclass
class WouldMake:
    """`reused`: stages that are finished; `certain`: those that are made for certain; `perhaps`: those after them, by
    label, which are made if their inputs come out with other contents; `open_end`: whether more stages follow that were
    never made."""

    reused: int = 0
    certain: list[ToMake] = field(default_factory=list)
    perhaps: list[str] = field(default_factory=list)
    open_end: bool = False

    @property
    def makes_something(self) -> bool:
        """Whether a run would make something."""
        return bool(self.certain) or self.open_end

    def sentences(self) -> list[str]:
        """What is said of it, a line each."""
        if not self.makes_something:
            return [f"all {self.reused} stages are finished, so a run would make nothing"]
        if not self.certain:
            return [f"a run would reuse {self.reused} stages and make others"]
        lines = [
            f"a run would reuse {self.reused} stage{'s' * (self.reused != 1)} and make at least {len(self.certain)}:"
        ]
        for one in self.certain:
            cost = "" if one.cpu_seconds is None else f" ({one.cpu_seconds:,.1f} CPU s the last time it was made)"
            lines.append(f"  {one.label}: {one.why}{cost}")
        if self.open_end:
            lines.append("  and all later stages, which were never made")
        elif self.perhaps:
            lines.append(f"and up to {len(self.perhaps)} more if contents differ: {', '.join(self.perhaps)}")
        return lines


def would_make(recipe: Recipe, settings: MachineSettings) -> WouldMake:
    """What a run would make, as far as this can be known before it. Stages that read a stage to be made are looked up
    as if it had the contents of the newest run; if no run had it, nothing about them is known."""
    remakes.forget(settings.home)
    runs = [run for run in runs_of(settings.home, recipe.name) if run.flow in FLOWS]
    recorded = RecordedStages(settings.home, recipe, runs, quiet=True)
    found, asked = WouldMake(), dict[str, StageResult]()
    unsure = set[str]()  # labels of the stages that are made, and of those after them

    def build(spec: StageSpec) -> StageResult:
        if spec.key in asked:
            return asked[spec.key]
        stage = make.find(settings.home, spec)
        if stage is None:
            stage = recorded.find(spec)
            why = "it was never made" if stage is None else "; ".join(reasons(spec, stage.manifest))
            cost = None if stage is None else stage.cpu_seconds
            found.certain.append(ToMake(spec.label(settings.home), why or "its key has changed", cost))
            if stage is None:
                raise NotFinishedError(spec.name)
            unsure.add(stage.label)
        elif unsure & {*spec.read.values()}:
            unsure.add(stage.label)
            found.perhaps.append(stage.label)
        else:
            found.reused += 1
        asked[spec.key] = stage
        return stage

    seen = Seen(settings.home, recipe.name)
    context = RunContext(
        settings, build, outside=lambda given, look: _looked(seen, given, look), look_up=build, is_reader=True
    )
    try:
        Outputs(context, recipe).make()
    except NotFinishedError:
        found.open_end = True
    except NothingLeftError:
        pass
    return found


def _looked(seen: Seen, given: Any, look: Callable[[], Any]) -> Any:
    """What files outside of the home are now; where they are gone, as the last run saw them."""
    try:
        return look()
    except (OSError, ValueError):
        if (noted := seen.noted(given)) is None:
            raise
        return noted
