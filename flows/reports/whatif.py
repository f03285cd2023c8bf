"""The recorded decisions of a finished run, and their replay over its stored signals with other thresholds.

A replay is exact for the pass of document steps, or the cut by scores, that the setting belongs to. Later steps that
compare all documents (near-duplicates, models, percentiles) may decide differently, so their recorded decisions hold
only if the same documents reach them.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import yaml
from pydantic import ValidationError

from gristmill.flows.curation import Passed, curate
from gristmill.flows.machine.context import job_options
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe, load
from gristmill.flows.recipe.steps import thresholds_of
from gristmill.flows.recipe.variants import given_value, replaced
from gristmill.flows.reports.funnel import FunnelRow, funnel_row
from gristmill.flows.reports.recorded import open_run
from gristmill.flows.reports.tables import Table
from gristmill.flows.stages.corpus import EXEMPT, Corpus, NothingLeftError, pinned
from gristmill.flows.stages.signals import RuleDecisions, exempt_of
from gristmill.storage import ledger, parquet
from gristmill.storage.contents import sum_counts
from gristmill.storage.schema import LEDGER
from gristmill.tasks.documents.decisions import NO_EXEMPT, Decisions, Exempt, decide, gathered, of_source
from gristmill.tasks.documents.scope import SCOPE
from gristmill.tasks.documents.step import DocumentStep, EditStep, Step, work_of
from gristmill.tasks.engine import options
from gristmill.tasks.engine.make import NotFinishedError, StageResult
from gristmill.tasks.models.filter import bounds_by


def decisions_of(stage: StageResult) -> Decisions | None:
    """The decisions of a stage, None if it has none: `rules` has them in its record, the cut of a learned filter in its
    result, since it derives them from the scores."""
    for where in (stage.manifest["record"], stage.result):
        if "decisions" in where:
            return RuleDecisions.model_validate({"decisions": where["decisions"]}).decisions
    return None


def exempt_from(stage: StageResult) -> Exempt:
    """The exempt sources of each step: sources that it does not apply to, and the reference of a learned filter."""
    record, result = stage.manifest["record"], stage.result
    if "decisions" not in result:
        return record.get("exempt", {})
    passed = [*record.get("reference", ()), *filter(None, stage.manifest["inputs"].get(EXEMPT, "").split(", "))]
    return {step: passed for step, _ in result["decisions"]}


def decisions_about(stage: StageResult, decisions: Decisions, source: str) -> Decisions:
    """The decisions of a stage about documents of a source; a step that does not decide about it has no rules."""
    return tuple((step, tuple(rules)) for step, rules in of_source(decisions, exempt_from(stage), source))


def inputs_of(corpus: Corpus, stage: StageResult, decisions: Decisions) -> tuple[StageResult, list[StageResult]]:
    """The inputs of a stage's decisions: the stage with the arriving documents, and the stages with signals."""
    stages = {each.contents: each for each in corpus.stages} | {each.key: each for each in corpus.stages}
    inputs = stage.manifest["inputs"]
    names = [name for name in inputs if name.startswith("measured ")]
    names.sort(key=lambda name: int(name.removeprefix("measured ")))
    names = names or [step for step, _ in decisions]  # of a learned filter: its scores
    return stages[inputs["kept"]], [stages[inputs[name]] for name in names]


def arriving_documents(
    kept: StageResult, measured: Sequence[StageResult], shard: int, decisions: Decisions
) -> pa.Table:
    """The documents of a shard that arrived at a stage, with `id` and the columns that the decisions read."""
    return gathered(tuple(each.part(shard) for each in measured), kept.part(shard), decisions)


def parsed(settings: Iterable[str]) -> dict[str, Any]:
    """Parse `step.setting=value` to a mapping, values as in `given_value`. Raises ValueError for another format."""
    changes = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise ValueError(f"{setting}: write step.setting=value, as in gopher_quality.min_words=80")
        try:
            changes[name.strip()] = given_value(name, value)
        except yaml.YAMLError as error:
            raise ValueError(f"{setting}: the value is not valid YAML: {error}") from error
    return changes


def changed(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """The recipe with other thresholds, named `step.setting` or, within a setting, `step.setting.key`.

    Raises ValueError, which lists the settings, or explains why the setting cannot be replayed.
    """
    steps = {step.step: step for step in recipe.steps}
    for name, value in changes.items():
        step_name, *path = name.split(".")
        if step_name not in steps:
            raise ValueError(
                f"{name}: no step {step_name} in the recipe {recipe.name}; its steps are {', '.join(steps)}"
            )
        step = steps[step_name]
        known = [field for field in type(step).model_fields if field not in ("step", *SCOPE)] + [*SCOPE]
        if not path or path[0] not in known:
            raise ValueError(f"{name}: {step_name} has no such setting; its settings are {', '.join(known)}")
        reason = _not_a_threshold(recipe, step, path[0])
        if not reason:
            steps[step_name] = _with(step, name, path, value)
            reason = _not_measured(recipe, step, steps[step_name])
        if reason:
            raise ValueError(f"{name} cannot be replayed: {reason}. Change it in the recipe, and run the recipe")
    try:
        return Recipe.model_validate(dict(recipe) | {"steps": tuple(steps.values())})
    except ValidationError as error:
        raise ValueError(f"{', '.join(changes)}: {_sentences(error)}") from error


def _not_a_threshold(recipe: Recipe, step: Any, setting: str) -> str:
    if step.step not in {later.step for later in recipe.after}:
        return f"{step.step} decides while documents are extracted, and what it drops is not stored"
    if step.step in {chooses.step for chooses in recipe.choosing}:
        return f"the engine union chooses the texts of pages by {step.step}, and other texts are not stored"
    if setting in thresholds_of(step) or (setting in SCOPE and isinstance(step, DocumentStep)):
        return ""
    if isinstance(step, DocumentStep):
        return "it changes measurements or the text, not only decisions"
    return f"{step.step} looks at all documents together"


def _not_measured(recipe: Recipe, before: Step, after: Step) -> str:
    """Why a step cannot be replayed for the sources that it would apply to."""
    names = [source.name for source in recipe.sources]
    if before.exempt(names) == after.exempt(names):
        return ""
    if isinstance(before, EditStep):
        return f"{before.step} cuts texts, and other texts are not stored"
    added = [name for name in names if after.applies_to(name) and not before.applies_to(name)]
    return f"{before.step} has not measured the documents of {', '.join(added)}" if added and before.signals else ""


def _with(step: Any, name: str, path: list[str], value: Any) -> Any:
    settings = step.model_dump()
    inner = settings
    for key in path[:-1]:
        inner = inner.setdefault(key, {}) if isinstance(inner, dict) else None
    if not isinstance(inner, dict):
        raise ValueError(f"{name}: {'.'.join(path[:-1])} of {step.step} has no nested settings")
    inner.update(dict.fromkeys(replaced(name, value)))
    inner[path[-1]] = value
    try:
        return type(step).model_validate(settings)
    except ValidationError as error:
        raise ValueError(f"{name}={value}: {_sentences(error)}") from error


def _sentences(error: ValidationError) -> str:
    found = [(".".join(map(str, each["loc"])), each["msg"].removeprefix("Value error, ")) for each in error.errors()]
    return "; ".join(f"{where}: {what}" if where else what for where, what in found)


Position = Literal["ahead", "replayed", "behind"]


@dataclass(frozen=True)
class ShardReplay:
    """The result of the decisions for one shard: the kept ids, in order, and the ledger's rows of the others."""

    kept: pa.ChunkedArray
    dropped: pa.Table
    steps: list[dict]


@dataclass(frozen=True)
class ComparedStep:
    """A step as it was run and as it was replayed.

    `position`: `ahead` (before the replayed steps, where nothing changes), `replayed`, or `behind` (after them).
    `recorded`: None if the run has not reached the step; `replayed`: None if other documents reach the step and its
    decisions cannot be replayed.
    """

    step: str
    position: Position
    recorded: FunnelRow | None
    replayed: FunnelRow | None

    @property
    def rules(self) -> dict[str, tuple[int, int]]:
        """The documents that each rule of a replayed step drops, in the run and in the replay."""
        if self.position != "replayed" or self.recorded is None or self.replayed is None:
            return {}
        old, new = self.recorded.drops, self.replayed.drops
        return {rule: (old.get(rule, 0), new.get(rule, 0)) for rule in old | new}


def table(steps: Iterable[ComparedStep]) -> Table:
    """A row for each step, and for replayed steps a row for each rule that drops documents."""
    rows: list[tuple[Any, ...]] = []
    for step in steps:
        was, now = step.recorded, step.replayed
        recorded = (was.flow, was.kept) if was else ("not run", None)
        if step.position == "replayed" and was and now:
            rows.append((step.step, *recorded, now.flow, now.kept, now.documents_out - was.documents_out))
        else:
            rows.append((step.step, *recorded, "the same" if step.position == "ahead" or now else "not replayed"))
        for rule, (before, after) in step.rules.items():
            rows.append((f"  {rule}", f"dropped {before:,}", None, f"dropped {after:,}", None, after - before))
    return Table(("step", "as run", "kept|.2%", "what if", "kept|.2%", "change|+,"), rows)


@dataclass(frozen=True)
class Replay:
    """`signals`: the parts with the signals of each shard; a shard without any is kept, such as a model's reference.

    `before`, `recorded`, `after`: counts that the run recorded (`gristmill.storage.ledger.count`) of the steps before
    the replayed ones, of the replayed ones, and of later ones, as far as the run is finished. `behind`: the names of
    the later ones. `exempt`: the exempt sources of each step.
    """

    passed: Passed
    signals: dict[int, tuple[str, ...]]
    decisions: Decisions
    exempt: Exempt
    before: list[dict]
    recorded: list[dict]
    behind: tuple[str, ...]
    after: list[dict]

    @property
    def remarks(self) -> list[str]:
        """What the funnel does not cover."""
        if self.unchanged:
            return ["The same documents are kept, so all later results are as recorded."]
        if not self.behind:
            return []
        first, *later = self.behind
        after = f", and the steps after it see its result ({', '.join(later)})" if later else ""
        return [
            f"Not replayed: {', '.join(self.behind)}. The step {first} looks at all documents together and could "
            f"decide differently about any of them{after}. To see the results, run the changed recipe."
        ]

    def shard(self, number: int) -> ShardReplay:
        """Replay the decisions for one shard. Holds its columns that the decisions read."""
        kept = self.passed.arriving.kept.part(number)
        if number in self.signals:
            decisions = of_source(self.decisions, self.exempt, self.passed.arriving.sources[number])
            table = gathered(self.signals[number], kept, decisions)
            drops = decide(table, decisions)
        else:
            table = parquet.read_table(kept, ["id"])
            drops = [(step, LEDGER.empty_table()) for step, _ in self.decisions]
        alive, counts = len(table), []
        for step, dropped in drops:
            counts.append(ledger.count(step, alive, None, dropped, None))
            alive -= len(dropped)
        gone = pa.concat_tables([LEDGER.empty_table(), *(dropped for _, dropped in drops)])
        ids = table["id"].filter(pc.invert(pc.is_in(table["id"], gone["id"].combine_chunks())))
        return ShardReplay(ids, gone, counts)

    @cached_property
    def counted(self) -> list[tuple[list[dict], bool]]:
        """The counts of the replayed steps for each shard, and whether the run kept the same documents."""

        def replay(number: int) -> tuple[list[dict], bool]:
            found = self.shard(number)
            part = self.passed.left.kept.part(number)
            same = len(found.kept) == parquet.rows(part) and found.kept.equals(parquet.read_table(part, ["id"])["id"])
            return found.steps, same

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(replay, self.passed.arriving.places.shards()))

    @property
    def replayed(self) -> list[dict]:
        """Counts of the replayed steps over all shards, in the order of `recorded`."""
        return sum_counts(steps for steps, _ in self.counted)

    @property
    def unchanged(self) -> bool:
        """Whether the same documents are kept, so that all later results are as recorded."""
        return all(same for _, same in self.counted)


def whatif(recipe: Any, changes: Mapping[str, Any], settings: MachineSettings | None = None) -> Replay:
    """The decisions of a recipe's finished run under other thresholds, given as `{"step.setting": value}`.

    Only looks stages up; the replay itself runs when its counts are asked for. Raises NotFinishedError, which names
    the remedy; ValueError for a setting that is not there, has a wrong value, or is no threshold.
    """
    if not changes:
        raise ValueError("nothing to replay: give at least one setting")
    settings = settings or MachineSettings()
    options.configure(job_options(settings))
    context, old = open_run(settings, load(recipe))
    new = changed(old, changes)
    names = {change.partition(".")[0] for change in changes}
    passes = curate(context, old)
    before: list[dict] = []
    for passed in passes:
        if touched := names & {step.step for step in passed.steps}:
            break
        before += _counts(passed)
    if behind := names - touched:
        raise ValueError(
            f"between {', '.join(sorted(touched))} and {', '.join(sorted(behind))}, a step looks at all "
            "documents together: replay their settings one at a time"
        )
    changed_steps = {step.step: step for step in pinned(context, new.after)}
    steps = tuple(changed_steps[step.step] for step in passed.steps)
    last = max(i for i, step in enumerate(old.after) if step.step in {step.step for step in steps})
    later = tuple(step.step for step in old.after[last + 1 :])
    return Replay(passed, *decided_by(passed, steps), before, passed.left.kept.step_counts, later, _after(passes))


def decided_by(passed: Passed, steps: tuple) -> tuple[dict[int, tuple[str, ...]], Decisions, Exempt]:
    """The stored signals that the steps use, their decisions, and their exempt sources."""
    places = passed.arriving.places
    if passed.on_documents:
        decisions = [(step.step, step.decisions()) for step in steps]
        return dict(enumerate(places.signals)), decisions, exempt_of(steps, places.sources)
    [step] = steps
    scores = passed.left.measured[-1]
    unscored = (*step.reference, *step.exempt(places.sources.distinct()))
    parts = {i: scores.part(i) for i in places.shards(without=unscored)}
    bounds = bounds_by(work_of(step), step.decision_settings(), list(parts.values()))
    return {i: (part,) for i, part in parts.items()}, [(step.step, bounds)], NO_EXEMPT


def _counts(passed: Passed) -> list[dict]:
    """What the stages of a part of the way did to the documents."""
    if not passed.steps:
        return [count for stage in passed.left.stages for count in stage.step_counts]
    # a step that only numbers documents keeps all documents
    return passed.left.kept.step_counts if passed.left.kept is not passed.arriving.kept else []


def _after(passes: Iterator[Passed]) -> list[dict]:
    counts: list[dict] = []
    with suppress(NotFinishedError, NothingLeftError):
        for passed in passes:
            counts += _counts(passed)
    return counts


def funnel(replay: Replay) -> list[ComparedStep]:
    """The new funnel compared with the recorded one, a row for each step that made or dropped documents."""
    rows = [ComparedStep(row.step, "ahead", row, row) for row in map(funnel_row, replay.before)]
    for old, new in zip(replay.recorded, replay.replayed, strict=True):
        rows.append(ComparedStep(new["step"], "replayed", funnel_row(old), funnel_row(new)))
    known = {count["step"]: funnel_row(count) for count in replay.after}
    for step in replay.behind:
        recorded = known.get(step)
        rows.append(ComparedStep(step, "behind", recorded, recorded if replay.unchanged else None))
    return rows
