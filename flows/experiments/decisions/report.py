"""A decision between recipes: verdicts, scores on tasks, documents and costs of each recipe, and worth of each step."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import wrapt
from scipy.special import stdtrit

from gristmill.flows.experiments.decisions.arm_data import CorpusDiff, Shown
from gristmill.flows.experiments.decisions.device import ArmCost
from gristmill.flows.experiments.decisions.tasks import TaskAccuracy, TaskScreen
from gristmill.flows.reports.dependents.graph import graph_of
from gristmill.flows.reports.dependents.retractions import Staleness
from gristmill.flows.reports.funnel import FunnelRow, frame
from gristmill.flows.stages.evaluation.judge import TASK
from gristmill.flows.stats.crossed import estimate
from gristmill.flows.stats.protocol import Decision, Protocol
from gristmill.flows.stats.runs import EvaluationSet, RunRequest
from gristmill.flows.stats.verdict import Conditions, Verdict
from gristmill.storage import checked_json, files

if TYPE_CHECKING:
    from pandas import DataFrame

    from gristmill.flows.experiments.decisions import page as decision_page
else:
    decision_page = wrapt.lazy_import("gristmill.flows.experiments.decisions.page")


VERDICTS = ("better", "worse")  # outcomes that are verdicts


@dataclass(frozen=True)
class LeaderboardRow:
    """A candidate of a decision. `effect`, `low`, `high`: bits per byte of the base minus the candidate's, None without
    runs; `worth`: share of the training tokens; `documents`, `cpu_hours`: documents, and CPU hours of stages, of the
    candidate minus the base's; `judge`, `parameters`, `tokens`: conditions of the verdict; `file`: path of the
    decision; `stale`: why the verdict no longer holds, a sentence each."""

    base: str
    candidate: str
    outcome: str
    effect: float | None
    low: float | None
    high: float | None
    worth: float | None
    documents: int
    cpu_hours: float | None
    judge: str
    parameters: int
    tokens: int
    file: str
    stale: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[bool, float]:
        """Verdicts first, the largest gain first."""
        return self.outcome not in VERDICTS, -(self.effect or 0.0)


def leaderboard(home: str, base: str | None = None, by_cost: bool = False) -> list[LeaderboardRow]:
    """The candidates of all decisions, or of the decisions with one base. Verdicts come first, by effect, or with
    `by_cost` by the additional CPU time of the candidate's stages, the lowest first, unknown times last.

    Decisions of versions that did not record the judge are skipped; they must be repeated. Raises DamagedFileError for
    a decision whose file has changed.
    """
    found = [one for one in _all(home) if base is None or one.base == base]
    if by_cost:
        return sorted(found, key=lambda one: (one.cpu_hours is None, one.cpu_hours or 0.0, one.order))
    return sorted(found, key=lambda one: (one.order, one.base, one.candidate))


def _all(home: str) -> Iterator[LeaderboardRow]:
    folder = files.join(home, "decisions")
    names = [name for name in files.names(folder) if name.endswith(".json")]
    staleness = Staleness(graph_of(home)) if names else None
    stale = {one.file: one for one in staleness.graph.verdicts} if staleness else {}
    for name in names:
        path = files.join(folder, name)
        decision = checked_json.read(path)
        if (given := decision.get("conditions")) and staleness is not None:
            reasons = staleness.of_verdict(stale[path]) if path in stale else ()
            yield from _rows(decision, Conditions(**given), path, reasons)


def _rows(
    decision: dict[str, Any], conditions: Conditions, path: str, stale: tuple[str, ...]
) -> Iterator[LeaderboardRow]:
    base = decision["arms"][decision["base"]]
    for verdict in decision["verdicts"]:
        arm = decision["arms"][verdict["candidate"]]
        times = arm["cpu_seconds"], base["cpu_seconds"]
        figures = {name: verdict[name] for name in ("candidate", "outcome", "effect", "low", "high")}
        yield LeaderboardRow(
            **figures,
            base=decision["base"],
            worth=(verdict["worth"] or {}).get("share"),
            documents=arm["documents"] - base["documents"],
            cpu_hours=None if None in times else (times[0] - times[1]) / 3600,
            judge=conditions.judge,
            parameters=conditions.parameters,
            tokens=conditions.tokens,
            file=path,
            stale=stale,
        )


MOST_SHORT = 2  # verdicts in a headline


@dataclass(frozen=True)
class ArmFigures:
    """A compared recipe. `documents`: number of training documents; `tokens`: of these, from which a run takes its
    budget; `epochs`: how often a run reads each source; `funnel`: the effect of its steps; `cpu_seconds`: of its
    stages, None if one was made before they were measured; `cost`: of a run."""

    documents: int
    tokens: int
    epochs: dict[str, float]
    funnel: tuple[FunnelRow, ...]
    cpu_seconds: float | None
    cost: ArmCost | None = None

    @property
    def most_epochs(self) -> float:
        return max(self.epochs.values())

    def row(self, step: str) -> FunnelRow | None:
        """The row of a step, None if the recipe does not have it."""
        return next((row for row in self.funnel if row.name == step), None)


@dataclass(frozen=True)
class TrainedRun:
    """A run of the proxy: its request, the key of its stage, its bits per byte on all judged sets and on each set, the
    accuracy at each task; `curve`: (step, training loss in nats per token) at some steps; `seconds`: duration of the
    training, including its start."""

    request: RunRequest
    key: str
    bits_per_byte: float
    by_set: dict[str, float]
    tasks: dict[str, float] = field(default_factory=dict)
    curve: tuple[tuple[int, float], ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class OnlyIn:
    """Documents that are only in the base, and documents that are only in a candidate."""

    base: tuple[Shown, ...]
    candidate: tuple[Shown, ...]


@dataclass(frozen=True)
class SetEffect:
    """The effect on one evaluation set, with a plain t interval: it is not adjusted for stopping."""

    name: str
    judged: bool
    effect: float
    low: float
    high: float


@dataclass(frozen=True)
class StepWorth:
    """The worth of a step of the base: bits per byte lost without it, from `low` to `high`; the number of documents
    that it removes, including later steps; additional CPU seconds of the stages with it, or None."""

    step: str
    outcome: str
    worth: float | None
    low: float | None
    high: float | None
    documents: int
    cpu_seconds: float | None


@dataclass(frozen=True, repr=False)
class DecisionReport:
    """A finished decision. `id`: 16 hexadecimal characters, a hash of all inputs; `sets`: effects by candidate;
    `steps`: the step that a leave-one-out candidate omits; `fixed`: steps that cannot be left out, with the reason;
    `announced`: the announcement of the budget before the runs; `differences`: by candidate the lines of a diff of its
    recipe against the base's (`gristmill.flows.recipe.variants.difference`); `tasks`: accuracies by candidate, if the
    models were scored on tasks; `task_screen`: which tasks are informative; `left_out`: the examples of each task that
    a recipe trains on, which do not count; `only`: by candidate, documents that are only in one of the two corpora;
    `diffs`: by candidate, the command and the page for all differences of the two corpora; `mlflow_run`: the parent
    run; `page`: the path of its page; `stale`: why the verdicts no longer hold, a sentence each."""

    id: str
    decision: Decision
    arms: dict[str, ArmFigures]
    sets: dict[str, tuple[SetEffect, ...]]
    runs: tuple[TrainedRun, ...]
    steps: dict[str, str]
    fixed: dict[str, str]
    announced: str
    differences: dict[str, tuple[str, ...]]
    tasks: dict[str, tuple[TaskAccuracy, ...]] = field(default_factory=dict)
    task_screen: tuple[TaskScreen, ...] = ()
    left_out: dict[str, int] = field(default_factory=dict)
    only: dict[str, OnlyIn] = field(default_factory=dict)
    diffs: dict[str, CorpusDiff] = field(default_factory=dict)
    mlflow_run: str = ""
    page: str = ""
    stale: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<DecisionReport of {self.base}: {'; '.join(self.sentences)}>"

    def _repr_html_(self) -> str:
        """Verdicts, their intervals and the worth of steps as HTML, every text escaped."""
        return decision_page.notebook(self)

    @property
    def base(self) -> str:
        return self.decision.base

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return self.decision.verdicts

    @property
    def sentences(self) -> list[str]:
        """The verdicts."""
        return self.decision.sentences()

    @property
    def title(self) -> str:
        """The compared recipes, the judge, and the size of the proxy."""
        return _joined(f"Decision on {self.base}", self.decision.conditions)

    @property
    def steps_of_all(self) -> list[str]:
        """The names of all steps: of the base in its order, then further steps of candidates."""
        return list(dict.fromkeys(row.name for arm in self.arms.values() for row in arm.funnel))

    @property
    def training_seconds(self) -> float:
        """Training time of all runs, in seconds."""
        return sum(run.seconds for run in self.runs)

    @property
    def headline(self) -> str:
        """A summary in one line: the strongest verdicts with their intervals, the judge and the size of the proxy."""
        order = {"better": 0, "worse": 1}
        ranked = sorted(self.verdicts, key=lambda v: (order.get(v.outcome, 2), -abs(v.effect or 0.0)))
        verdicts = [_short(verdict) for verdict in ranked[:MOST_SHORT]]
        more = len(ranked) - len(verdicts)
        listed = "; ".join([*verdicts, *([f"{more} more"] if more else [])])
        return _joined(f"{self.base}: {listed}", self.decision.conditions)

    @property
    def table(self) -> "DataFrame":
        """A row for each candidate."""
        return frame(self.rows())

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row for each candidate: its outcome, its effect in bits per byte with the interval, the documents that it
        keeps, the CPU hours of its stages, its accuracy at each task, and this minus the base's."""
        names = sorted({task.name for tasks in self.tasks.values() for task in tasks})
        for verdict in self.verdicts:
            arm = self.arms[verdict.candidate]
            yield {
                "candidate": verdict.candidate,
                "outcome": verdict.outcome,
                "verdict": verdict.sentence(),
                "effect": verdict.effect,
                "low": verdict.low,
                "high": verdict.high,
                "pairs": verdict.pairs,
                "documents": arm.documents,
                "epochs": arm.most_epochs,
                "cpu_hours": None if arm.cpu_seconds is None else arm.cpu_seconds / 3600,
                **self._accuracies(verdict.candidate, names),
            }

    def _accuracies(self, candidate: str, names: list[str]) -> dict[str, float | None]:
        known = {task.name: task for task in self.tasks.get(candidate, ())}
        figures = {"accuracy": "accuracy", "accuracy_difference": "difference"}
        return {
            f"{what}/{name}": getattr(known[name], figure) if name in known else None
            for name in names
            for what, figure in figures.items()
        }

    @cached_property
    def attribution(self) -> list[StepWorth]:
        """The worth of the steps that were left out one at a time, in the order of the recipe."""
        base, found = self.arms[self.base], []
        for verdict in self.verdicts:
            if verdict.candidate not in self.steps:
                continue
            arm, ends = self.arms[verdict.candidate], (verdict.effect, verdict.high, verdict.low)
            times = base.cpu_seconds, arm.cpu_seconds
            seconds = None if times[0] is None or times[1] is None else times[0] - times[1]
            worth, low, high = map(_negative, ends)
            step, documents = self.steps[verdict.candidate], arm.documents - base.documents
            found.append(StepWorth(step, verdict.outcome, worth, low, high, documents, seconds))
        return found

    def task_effect(self, candidate: str, task: str) -> SetEffect | None:
        """The effect on the right answers of a task, in bits per byte."""
        return next((each for each in self.sets[candidate] if each.name == TASK + task), None)

    @property
    def tasks_note(self) -> str:
        """A sentence on the examples that do not count; empty if all count."""
        some = [f"{count:,} of {task}" for task, count in self.left_out.items() if count]
        return f"Examples that a recipe trains on are excluded: {', '.join(some)}." if some else ""

    def as_json(self) -> dict[str, Any]:
        """The decision as plain data; equal decisions give equal data, except for CPU times."""
        return {
            "id": self.id,
            "base": self.base,
            "tokens": self.decision.tokens,
            "conditions": asdict(self.decision.conditions) if self.decision.conditions else None,
            "announced": self.announced,
            "protocol": self.decision.protocol.model_dump(mode="json"),
            "screening": [list(each) for each in self.decision.screening],
            "verdicts": [asdict(verdict) | {"sentence": verdict.sentence()} for verdict in self.verdicts],
            "sets": {name: [asdict(each) for each in effects] for name, effects in self.sets.items()},
            "tasks": {name: [asdict(each) for each in tasks] for name, tasks in self.tasks.items()},
            "task_screen": [asdict(each) for each in self.task_screen],
            "task_examples_left_out": self.left_out,
            "attribution": [asdict(each) for each in self.attribution],
            "fixed": self.fixed,
            "differences": self.differences,
            "arms": {name: asdict(arm) for name, arm in self.arms.items()},
            "runs": [{name: value for name, value in asdict(run).items() if name != "seconds"} for run in self.runs],
        }


def set_effects(
    decision: Decision, evaluation: EvaluationSet, bits: Mapping[RunRequest, np.ndarray]
) -> dict[str, tuple[SetEffect, ...]]:
    """The effect on each evaluation set, by tested candidate. `bits`: of all runs."""
    found: dict[str, tuple[SetEffect, ...]] = {}
    for verdict in decision.verdicts:
        if verdict.effect is None:
            continue
        pairs = decision.protocol.pairs(0, verdict.pairs)
        base, candidate = (_bits(decision, bits, name, pairs) for name in (decision.base, verdict.candidate))
        found[verdict.candidate] = tuple(
            _set_effect(name, evaluation, base - candidate, verdict.level, decision.protocol, pairs)
            for name in evaluation.names
        )
    return found


def _bits(decision: Decision, bits: Mapping[RunRequest, np.ndarray], arm: str, pairs: range) -> np.ndarray:
    """Bits by pair, (pairs, documents)."""
    return np.array([bits[decision.request(arm, pair)] for pair in pairs])


def _set_effect(
    name: str, evaluation: EvaluationSet, differences: np.ndarray, level: float, protocol: Protocol, pairs: range
) -> SetEffect:
    one = replace(evaluation, judged=(name,))
    given = estimate(differences, one, resample=protocol.resample, groups=protocol.groups(pairs))
    reach = float(stdtrit(given.degrees, (1 + level) / 2) * np.sqrt(given.variance))
    return SetEffect(name, name in evaluation.judged, given.effect, given.effect - reach, given.effect + reach)


def _short(verdict: Verdict) -> str:
    sentence = f"{verdict.candidate} is {verdict.outcome}"
    if verdict.outcome not in ("better", "worse"):
        sentence = f"{verdict.candidate}: {verdict.outcome}"
    if verdict.effect is None:
        return sentence
    return f"{sentence}, {verdict.effect:+.4f} ({verdict.low:+.4f} to {verdict.high:+.4f})"


def _joined(sentence: str, conditions: Conditions | None) -> str:
    return sentence if conditions is None else f"{sentence}, {conditions}"


def _negative(value: float | None) -> float | None:
    return None if value is None else 0.0 - value  # no -0.0
