"""What another threshold would have done: the decisions of a finished run replayed over its stored signals.

Exact for the run of document steps, or the cut by scores, that the setting belongs to. Steps behind it that look at
all documents together (near-duplicates, models, percentiles) may decide otherwise about other documents: what they did
holds only where the documents that reach them are the same.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import yaml
from pydantic import ValidationError

from flows.context import RunContext, StageResult, StageSpec, step_counts, summed
from flows.curation import Passed, curate
from flows.machine import MachineSettings
from flows.recipe import Recipe, load
from flows.stages import all_stages as stages_of
from flows.steps import thresholds_of
from storage import layout, ledger, parquet
from storage.remote import retry
from storage.schema import LEDGER
from tasks.documents.decisions import Decisions, decide, wanted
from tasks.documents.selection import gather
from tasks.documents.step import DocumentStep, work_of


class NotFinishedError(LookupError):
    """A stage that is looked for in the home is not there, or not finished."""


@dataclass(frozen=True)
class Verdict:
    """What the decisions make of one shard: the ids that stay, in order, and the ledger's rows of the others."""

    kept: pa.ChunkedArray
    dropped: pa.Table
    steps: list[dict]


@dataclass(frozen=True)
class Replay:
    """`signals`: the parts that each shard is judged by; one without passes, as a model's reference does.

    `before`, `recorded`, `after`: counts of the steps as the run has them (`storage.ledger.count`), those ahead of
    the replayed ones, the replayed ones, and those behind, as far as the run is finished. `behind` names the last.
    """

    passed: Passed
    signals: dict[int, tuple[str, ...]]
    decisions: Decisions
    before: list[dict]
    recorded: list[dict]
    behind: tuple[str, ...]
    after: list[dict]

    def shard(self, number: int) -> Verdict:
        """Decide anew on one shard. Holds the columns of it that the decisions read."""
        kept = self.passed.arriving.kept.part(number)
        if number in self.signals:
            table = gather(self.signals[number], kept, wanted(self.decisions))
            drops = decide(table, self.decisions)
        else:
            table = parquet.read_table(kept, ["id"])
            drops = [(step, LEDGER.empty_table()) for step, _ in self.decisions]
        alive, counts = len(table), []
        for step, dropped in drops:
            counts.append(ledger.count(step, alive, None, dropped, None))
            alive -= len(dropped)
        gone = pa.concat_tables([LEDGER.empty_table(), *(dropped for _, dropped in drops)])
        ids = table["id"].filter(pc.invert(pc.is_in(table["id"], gone["id"].combine_chunks())))
        return Verdict(ids, gone, counts)

    @cached_property
    def counted(self) -> list[tuple[list[dict], bool]]:
        """Of each shard the counts of the replayed steps, and whether the same documents stay as in the run."""

        def replay(number: int) -> tuple[list[dict], bool]:
            found = self.shard(number)
            part = self.passed.left.kept.part(number)
            same = len(found.kept) == parquet.rows(part) and found.kept.equals(parquet.read_table(part, ["id"])["id"])
            return found.steps, same

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(replay, self.passed.arriving.shards()))

    @property
    def replayed(self) -> list[dict]:
        """Counts of the replayed steps over all shards, in the order of `recorded`."""
        return summed(steps for steps, _ in self.counted)

    @property
    def unchanged(self) -> bool:
        """Whether the same documents stay, so that all that lies behind holds as recorded."""
        return all(same for _, same in self.counted)


def whatif(recipe: Any, changes: Mapping[str, Any], settings: MachineSettings | None = None) -> Replay:
    """The decisions of a recipe's finished run under other thresholds, given as `{"step.setting": value}`.

    Only looks stages up; the replay itself runs when its counts are asked for. Raises NotFinishedError, which says
    what to run; ValueError for a setting that is not there, has a wrong value, or is no threshold.
    """
    if not changes:
        raise ValueError("nothing to replay: name at least one setting")
    old = load(recipe)
    new = changed(old, changes)
    settings = settings or MachineSettings()
    retry.configure(settings.remote_io)
    shop = lookup(settings, old)
    names = {change.partition(".")[0] for change in changes}
    passes = curate(shop, old)
    before: list[dict] = []
    for passed in passes:
        if touched := names & {step.step for step in passed.steps}:
            break
        before += _counts(passed)
    if behind := names - touched:
        raise ValueError(
            f"between {', '.join(sorted(touched))} and {', '.join(sorted(behind))} there is a step that looks at all "
            "documents together: replay their settings one at a time"
        )
    pinned = {step.step: step for step in stages_of.pinned(shop, new.after)}
    steps = tuple(pinned[step.step] for step in passed.steps)
    last = max(i for i, step in enumerate(old.after) if step.step in {step.step for step in steps})
    behind = tuple(step.step for step in old.after[last + 1 :])
    return Replay(passed, *_judged(passed, steps), before, step_counts(passed.left.kept), behind, _after(passes))


def _judged(passed: Passed, steps: tuple) -> tuple[dict[int, tuple[str, ...]], Decisions]:
    """By which stored signals the steps decide, and how."""
    arriving = passed.arriving
    if passed.on_documents:
        return {i: arriving.signals(i) for i in arriving.shards()}, [(step.step, step.decisions()) for step in steps]
    [step] = steps
    *_, scores, _ = passed.left.stages
    signals = {i: (scores.part(i),) for i in arriving.shards(without=step.reference)}
    scored = [part for (part,) in signals.values()]
    return signals, [(step.step, work_of(step).bounds(step.decision_settings(), scored))]


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


def lookup(settings: MachineSettings, recipe: Recipe) -> RunContext:
    """A context that makes nothing: a stage that is not finished raises NotFinishedError."""

    def find(made: StageSpec) -> StageResult:
        folder = made.stage.folder(settings.home)
        manifest = layout.manifest(folder)
        if manifest is None:
            raise NotFinishedError(
                f"{folder} is not finished: `gristmill run` the recipe {recipe.name} first (a stage is made anew when "
                "its sources, its settings or the code behind it have changed)"
            )
        return StageResult(made.stage, folder, manifest, reused=True)

    return RunContext(settings, find)


def changed(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """The recipe with other thresholds, named `step.setting` or, within a setting, `step.setting.key`.

    Raises ValueError, which lists what there is, or says why the setting cannot be replayed.
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
        if trouble := _not_a_threshold(recipe, step, path[0]):
            raise ValueError(f"{name} cannot be replayed: {trouble}. Change it in the recipe, and `gristmill run` it")
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
        told = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise ValueError(f"{name}={value}: {told}") from error


def _counts(passed: Passed) -> list[dict]:
    """What the stages of a part of the way did to the documents."""
    if not passed.steps:
        return [count for built in passed.left.stages for count in step_counts(built)]
    return step_counts(passed.left.kept)


def _after(passes: Iterator[Passed]) -> list[dict]:
    counts: list[dict] = []
    with suppress(NotFinishedError):
        for passed in passes:
            counts += _counts(passed)
    return counts


def funnel(replay: Replay) -> list[tuple[str, ...]]:
    """The new funnel beside the recorded one, for a person: rows of HEADER, a step each, and of replayed steps the
    rules with the documents that they drop."""
    rows = [(count["step"], *_flow(count), *_SAME) for count in replay.before]
    for old, new in zip(replay.recorded, replay.replayed, strict=True):
        rows.append((new["step"], *_flow(old), *_flow(new), f"{new['rows_out'] - old['rows_out']:+,}"))
        for rule in old["drops"] | new["drops"]:
            was, now = (count["drops"].get(rule, 0) for count in (old, new))
            rows.append((f"  {rule}", f"dropped {was:,}", "", f"dropped {now:,}", "", f"{now - was:+,}"))
    known = {count["step"]: _flow(count) for count in replay.after}
    rest = _SAME if replay.unchanged else ("not replayed", "", "")
    return rows + [(step, *known.get(step, ("not run", "")), *rest) for step in replay.behind]


def remarks(replay: Replay) -> list[str]:
    """What the funnel does not cover, in sentences."""
    if replay.unchanged:
        return ["The same documents stay, so all that lies behind is as recorded."]
    if not replay.behind:
        return []
    return [
        f"Not replayed: {', '.join(replay.behind)}. A step that looks at all documents together may decide otherwise "
        "even about those that stay: run the changed recipe to know."
    ]


HEADER = ("step", "documents, as run", "kept", "what if", "kept", "difference")
_SAME = ("the same", "", "")


def _flow(count: dict) -> tuple[str, str]:
    kept = f"{count['rows_out'] / count['rows_in']:.2%}" if count["rows_in"] else "-"
    return f"{count['rows_in']:,} → {count['rows_out']:,}", kept
