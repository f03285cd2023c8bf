"""Open recorded runs for reading: the stages in the home, even if the current recipe, code or sources would produce
others. If these have changed since a stage was made, the log has one line with the differences. `would_make` predicts
which stages a run would make."""

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
    """A context that makes nothing and returns the stages of the newest run of a recipe, and the recipe of that run.

    Several recipes may have the same name: the newest run of exactly this recipe is read, or if there is none, the
    newest run of the name, with the differences in the log. A newest run that differs only in `limit` is a run of this
    recipe. Raises NotFinishedError for a stage that no run of the recipe has and that is not finished in the home, and
    for a recipe whose name has only runs on other sources.
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
    """The recipe of a run; `given` itself if it is the same."""
    assert run.recipe is not None, "it was recorded"
    differing = changes(run.recipe, given)
    if not differing:
        return given
    if _is_elsewhere(run.recipe, given):
        raise NotFinishedError(
            f"no run of the recipe {given.name} with these sources is finished; the newest run of that name reads "
            "others. Run `gristmill corpus RECIPE` with it, or give one of the two recipes another name"
        )
    changed = {name.partition(".")[0].partition("[")[0] for name, _, _ in differing}
    # unchanged keys are taken from the given recipe, whose addresses include credentials
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
    lines = [f"{name} was {_short(was)}, is {_short(is_)}" for name, was, is_ in differing[:_MAX_CHANGES]]
    lines += [f"and {len(differing) - _MAX_CHANGES} more"] if len(differing) > _MAX_CHANGES else []
    _warn(
        f"the recipe {given.name} has changed since its run of {run.ended or run.began}; using the recipe of "
        "that run. Changes: " + "; ".join(lines)
    )
    return recorded


def _is_elsewhere(recorded: Mapping[str, Any], given: Recipe) -> bool:
    """Whether a recorded recipe shares no input with another recipe of its name, whatever the options of sources."""
    was, now = (_read_by(sources) for sources in (recorded["sources"], given.model_dump(mode="json")["sources"]))
    return not any(not list(differences(one, other)) for one in was for other in now)


def _read_by(sources: Iterable[Mapping[str, Any]]) -> list[Any]:
    """The inputs of sources: each file, pattern, list or snapshot."""
    inputs = []
    for source in sources:
        key = next(key for key in BY_KEY if key in source)
        read = redacted(source["files" if key == "reader" else key])  # `reader` names a function
        inputs += read if isinstance(read, list) else [read]
    return inputs


def is_same_but(keys: Collection[str], recorded: Mapping[str, Any] | None, given: Recipe) -> bool:
    """Whether a recipe equals a recorded one except for some top-level keys; true if none was recorded."""
    return recorded is None or {name.partition(".")[0] for name, _, _ in changes(recorded, given)} <= {*keys}


def is_same_but_defaults(keys: Collection[str], run: RecordedRun, given: Recipe) -> bool:
    """Like `is_same_but` for the recipe of a run, ignoring defaults that changed since the release that ran it."""
    if run.recipe is None:
        return True
    names = [name for name, _, _ in changes(run.recipe, given) if name.partition(".")[0] not in keys]
    return not names or (run.release != release() and not any(_is_set(given, name) for name in names))


def _is_set(value: Any, name: str) -> bool:
    """Whether a recipe sets a key, named as in `differences`, explicitly."""
    for part in re.findall(r"[^.\[\]]+", name):
        if isinstance(value, BaseModel):
            if part not in value.model_fields_set:
                return False
            value = getattr(value, part)
        else:
            value = value[int(part)] if isinstance(value, Sequence) else value.get(part)
    return True


def changes(recorded: Mapping[str, Any], given: Recipe) -> list[tuple[str, Any, Any]]:
    """The differences between a recipe and a recorded one (`differences`). These are not changes: the same files named
    from another folder, a key of a later release with its default, and `export`, which does not change documents."""
    try:
        recorded = redacted(Recipe.model_validate(recorded).model_dump(mode="json"))
    except ValidationError:
        pass  # it is no longer valid, so compare it unchanged
    now = redacted(given.model_dump(mode="json"))
    return [each for each in differences(recorded, now) if each[0].partition(".")[0] != "export"]


_MAX_CHANGES = 8  # listed in a warning, since a release may change dozens of defaults
_warnings = set[str]()


def _warn(line: str) -> None:
    """Log a warning once per process, since a command may open a run several times."""
    if line not in _warnings:
        _warnings.add(line)
        log.warning("%s", line)


class RecordedStages:
    """The stages of runs of a recipe, newest run first. A stage is found by its key, or else by its position among the
    stages of its name, since every run requests them in the same order. `quiet`: do not log differences."""

    def __init__(self, home: str, recipe: Recipe, runs: list[RecordedRun], quiet: bool = False) -> None:
        self._home, self._recipe, self._runs, self._quiet = home, recipe, runs, quiet
        self._requested: dict[str, list[str]] = {}

    def build(self, spec: StageSpec) -> StageResult:
        """Return the recorded stage. Raises NotFinishedError."""
        if (found := self.find(spec)) is None:
            command = "corpus" if self._recipe.mixture is None else "run"
            raise NotFinishedError(
                f"{spec.name} of the recipe {self._recipe.name} is not finished in {redact_url(self._home)}: "
                f"run `gristmill {command} RECIPE` with it"
            )
        return found

    def find(self, spec: StageSpec) -> StageResult | None:
        """The recorded stage; None if no run has finished it."""
        requested = self._requested.setdefault(spec.name, [])
        if spec.key not in requested:
            requested.append(spec.key)
        if (found := make.find(self._home, spec)) is not None and not found.is_collected:
            return found
        return None if spec.at else next(self._by_position(spec, requested.index(spec.key)), None)

    def _by_position(self, spec: StageSpec, position: int) -> Iterator[StageResult]:
        for run in self._runs:
            labels = [label for label in run.stages if label.rpartition("-")[0] == spec.name]
            if position >= len(labels):
                continue
            folder = files.join(self._home, "stages", labels[position])
            manifest = layout.manifest(folder)
            if manifest is not None and not manifest.get(layout.COLLECTED):
                key = labels[position].rpartition("-")[2]
                self._log_reasons(labels[position], spec, manifest)
                yield StageResult(spec.name, key, folder, manifest, reused=True, code=spec.code)

    def _log_reasons(self, label: str, spec: StageSpec, manifest: Mapping[str, Any]) -> None:
        if not self._quiet:
            _warn(f"{label} is read unchanged: {'; '.join(reasons(spec, manifest)) or 'its key has changed'}")


def reasons(spec: StageSpec, manifest: Mapping[str, Any]) -> list[str]:
    """The reasons why a stage with this manifest has another key than it would have now, in a few words each."""
    now, texts = spec.identity, []
    for name, was, is_ in differences(
        {"version": manifest["version"], **manifest["versions"]}, {"version": now["version"], **now["versions"]}
    ):
        texts.append(f"its {'version' if name == 'version' else f'step {name}'} was {_short(was)}, is {_short(is_)}")
    for part, what in (("libraries", "the release of {}"), ("data", "{}"), ("record", "the setting {}")):
        for name, was, is_ in differences(manifest[part], now[part]):
            texts.append(f"{what.format(name)} was {_short(was)}, is {_short(is_)}")
    if manifest["unicode"] != now["unicode"]:
        texts.append(f"Unicode of Python was {manifest['unicode']}, is {now['unicode']}")
    texts += [f"{name} has different contents" for name, _, _ in differences(manifest["inputs"], now["inputs"])]
    return texts


def differences(was: Any, now: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Differences between two JSON values: (path, the value before, the value now)."""
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for key in [*was, *(key for key in now if key not in was)]:
            yield from differences(was.get(key), now.get(key), f"{path}.{key}" if path else str(key))
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for number, (one, other) in enumerate(zip(was, now, strict=True)):
            yield from differences(one, other, f"{path}[{number}]")
    elif was != now and not is_one_name(was, now):
        yield path, was, now


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


@dataclass(frozen=True)
class ToMake:
    """A stage that a run would make. `label`: its folder; `why`: the reason; `cpu_seconds`: that it took the last time,
    None if it was never made."""

    label: str
    why: str
    cpu_seconds: float | None


@dataclass
class WouldMake:
    """`reused`: number of finished stages; `certain`: stages that are certainly made; `perhaps`: labels of later
    stages, which are made if the contents of their inputs change; `open_end`: whether more stages follow that were
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
        """The prediction as text, one line each."""
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
    """Predict what a run would make. Stages that read a stage to be made are looked up as if it had the contents of the
    newest run; if no run had it, nothing about them is known."""
    remakes.forget(settings.home)
    runs = [run for run in runs_of(settings.home, recipe.name) if run.flow in FLOWS]
    recorded = RecordedStages(settings.home, recipe, runs, quiet=True)
    prediction, stages = WouldMake(), dict[str, StageResult]()
    unsure = set[str]()  # labels of the stages that are made, and of stages that read them

    def build(spec: StageSpec) -> StageResult:
        if spec.key in stages:
            return stages[spec.key]
        stage = make.find(settings.home, spec)
        if stage is None:
            stage = recorded.find(spec)
            why = "it was never made" if stage is None else "; ".join(reasons(spec, stage.manifest))
            cost = None if stage is None else stage.cpu_seconds
            prediction.certain.append(ToMake(spec.label(settings.home), why or "its key has changed", cost))
            if stage is None:
                raise NotFinishedError(spec.name)
            unsure.add(stage.label)
        elif unsure & {*spec.read.values()}:
            unsure.add(stage.label)
            prediction.perhaps.append(stage.label)
        else:
            prediction.reused += 1
        stages[spec.key] = stage
        return stage

    seen = Seen(settings.home, recipe.name)
    context = RunContext(
        settings, build, outside=lambda given, look: _looked(seen, given, look), look_up=build, is_reader=True
    )
    try:
        Outputs(context, recipe).make()
    except NotFinishedError:
        prediction.open_end = True
    except NothingLeftError:
        pass
    return prediction


def _looked(seen: Seen, given: Any, look: Callable[[], Any]) -> Any:
    """The current state of files outside the home; if they are gone, as the last run saw them."""
    try:
        return look()
    except (OSError, ValueError):
        if (noted := seen.noted(given)) is None:
            raise
        return noted
