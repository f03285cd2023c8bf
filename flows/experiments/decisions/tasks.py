"""Tasks of a decision: what finished runs make of them, and the sets that `--judge` may name.

A set `task:<name>` has the right answers of a task's examples as documents. Examples that occur in the training text
of a recipe do not count, in any run: so all runs are scored on the same, and none on what it may have read.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.special import stdtrit

from gristmill.flows.experiments.decisions.arm_data import ComparisonData
from gristmill.flows.machine.context import RunContext
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.given_files import task_digests, tasks_at
from gristmill.flows.stages.evaluation.judge import TASK
from gristmill.flows.stages.evaluation.task_losses import (
    both_ways,
    contained_examples,
    read_losses,
    task_examples,
    task_losses,
)
from gristmill.flows.stats.protocol import Decision
from gristmill.flows.stats.runs import RunRequest
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.spec import digest
from gristmill.training.evaluate.tasks import LETTERS, PREFIX, write_lm_eval_tasks

ABOVE = 3.0  # standard errors, as FineTasks asks for
RISES = 0.5  # FineTasks: a rank correlation of steps and scores; of two points it is the sign of their difference
ORDER = 0.5  # Kendall's tau: three of four couples of recipes in the same order
SIGNAL = 1.0


@dataclass(frozen=True)
class TaskScreen:
    """One task by one measure, on which higher is better (bits per byte are negated). above_chance: of the base's mean
    accuracy, in standard errors of guessing on so many examples. rises: mean sign of whole minus half of the tokens,
    over the base's runs that have both, in [-1, 1]. order: mean Kendall's tau of the recipes between two pairs. signal:
    of the recipes' means, the highest minus the lowest; noise: standard deviation of the base's pairs. None: not
    measured. fails: what speaks against the task; empty if nothing does."""

    name: str
    measure: str
    examples: int
    above_chance: float | None
    rises: float | None
    order: float | None
    signal: float
    noise: float
    fails: tuple[str, ...]


Scores = Mapping[RunRequest, Mapping[str, float]]


def screened(
    decision: Decision, measures: Mapping[str, Scores], chances: Mapping[str, float], examples: Mapping[str, int]
) -> tuple[TaskScreen, ...]:
    """Each task by each measure, by name. `measures`: by the measure's name what each run scored on each task, higher
    is better; `chances`: of guessing right, for tasks with choices, by which "accuracy" is judged."""
    tested = [verdict for verdict in decision.verdicts if verdict.effect is not None]
    if not tested:
        return ()
    pairs = decision.protocol.pairs(0, min(verdict.pairs for verdict in tested))
    arms = [decision.base, *(verdict.candidate for verdict in tested)]
    screens = []
    for name, count in sorted(examples.items()):
        for measure, scores in measures.items():
            chance = chances.get(name) if measure == "accuracy" else None
            screens.append(_screen(decision, name, measure, scores, chance, count, arms, pairs))
    return tuple(screens)


def _screen(
    decision: Decision,
    name: str,
    measure: str,
    scores: Scores,
    chance: float | None,
    examples: int,
    arms: Sequence[str],
    pairs: Sequence[int],
) -> TaskScreen:
    whole = decision.tokens
    by_pair = np.array([[scores[decision.request(arm, pair)][name] for pair in pairs] for arm in arms])
    above = None
    if chance:
        above = float((by_pair[0].mean() - chance) / sqrt(chance * (1 - chance) / examples))
    halves = [
        np.sign(scores[full][name] - scores[half][name])
        for half in scores
        if half.tokens < whole and (full := RunRequest(half.arm, half.pair, half.learning_rate, whole)) in scores
    ]
    rises = float(np.mean(halves)) if halves else None
    means = by_pair.mean(1)
    signal, noise = float(means.max() - means.min()), float(by_pair[0].std(ddof=1))
    order = _order(by_pair)
    against = {
        "at chance": above is not None and above < ABOVE,
        "does not rise": rises is not None and rises < RISES,
        "order of recipes differs between pairs": order is not None and order < ORDER,
        "noise larger than differences between recipes": signal < SIGNAL * noise,
    }
    fails = tuple(what for what, true in against.items() if true)
    return TaskScreen(name, measure, examples, above, rises, order, signal, noise, fails)


def _order(by_pair: np.ndarray) -> float | None:
    """Mean of Kendall's tau over all two pairs. by_pair: (arms, pairs)."""
    arms, pairs = by_pair.shape
    if pairs < 2:
        return None
    one, other = np.triu_indices(arms, 1)
    signs = np.sign(by_pair[one] - by_pair[other])  # (couples of arms, pairs)
    first, second = np.triu_indices(pairs, 1)
    return float((signs[:, first] * signs[:, second]).mean())


# What the runs of a decision make of tasks: accuracies by candidate, and which tasks say something.


@dataclass(frozen=True)
class TaskAccuracy:
    """A candidate on one task, beside the base: shares of examples, means over pairs and learning rates. `chance`: of
    guessing, None for a task without choices. `difference`: of the candidate over the base, above 0 it is better, with
    a plain t interval over pairs from `low` to `high`: it holds for these examples, and is not adjusted for stopping.
    """

    name: str
    chance: float | None
    base: float
    accuracy: float
    difference: float
    low: float
    high: float


def task_accuracies(
    decision: Decision, accuracies: Mapping[RunRequest, Mapping[str, float]], chances: Mapping[str, float]
) -> dict[str, tuple[TaskAccuracy, ...]]:
    """By candidate that was tested, a figure for each task. `accuracies`: of all runs, by task."""
    by_candidate = {}
    for verdict in decision.verdicts:
        if verdict.effect is None:
            continue
        pairs = decision.protocol.pairs(0, verdict.pairs)
        names = accuracies[decision.request(decision.base, pairs[0])]
        by_candidate[verdict.candidate] = tuple(
            _task(
                name,
                chances.get(name),
                _by_pair(decision, accuracies, decision.base, pairs, name),
                _by_pair(decision, accuracies, verdict.candidate, pairs, name),
                verdict.level,
            )
            for name in sorted(names)
        )
    return {name: tasks for name, tasks in by_candidate.items() if tasks}


def _by_pair(
    decision: Decision, accuracies: Mapping[RunRequest, Mapping[str, float]], arm: str, pairs: Iterable[int], task: str
) -> np.ndarray:
    """Accuracies by pair, (pairs,)."""
    return np.array([accuracies[decision.request(arm, pair)][task] for pair in pairs])


def _task(name: str, chance: float | None, base: np.ndarray, candidate: np.ndarray, level: float) -> TaskAccuracy:
    differences = candidate - base
    mean, count = float(differences.mean()), len(differences)
    reach = float(stdtrit(count - 1, (1 + level) / 2) * differences.std(ddof=1) / np.sqrt(count))
    return TaskAccuracy(name, chance, float(base.mean()), float(candidate.mean()), mean, mean - reach, mean + reach)


def mean_by_task(table: pa.Table, column: str) -> dict[str, float]:
    """The mean of a column of `task_losses`, by task."""
    return {name: float(values.mean()) for name, values in _by_task(table, column).items()}


def _by_task(table: pa.Table, column: str) -> dict[str, np.ndarray]:
    names = np.array(table["task"].to_pylist())
    values = table[column].to_numpy().astype(float)
    return {name: values[names == name] for name in dict.fromkeys(names.tolist())}


def _negative_bits_per_byte(table: pa.Table) -> dict[str, float]:
    sizes = _by_task(table, "bytes")
    return {name: -float(bits.sum() / sizes[name].sum()) for name, bits in _by_task(table, "bits").items()}


def task_results(decision: Decision, scores: Mapping[RunRequest, pa.Table], left_out: dict[str, int]) -> dict[str, Any]:
    """The fields of a report that tasks fill. `scores`: of all runs, the rows of `task_losses` that count; `left_out`:
    examples of each task that do not."""
    accuracies = {request: mean_by_task(table, "hit") for request, table in scores.items()}
    one = scores[decision.runs[0]]
    chances = {name: chance for name, chance in mean_by_task(one, "chance").items() if chance}
    counts = {name: len(values) for name, values in _by_task(one, "bits").items()}
    measures = {
        "accuracy": accuracies,
        "bits per byte": {request: _negative_bits_per_byte(table) for request, table in scores.items()},
    }
    return {
        "tasks": task_accuracies(decision, accuracies, chances),
        "task_screen": screened(decision, measures, chances, counts),
        "left_out": left_out,
    }


def tasks_folder(settings: MachineSettings, path: str) -> Path:
    """The folder of tasks that `--tasks` names: itself, or one written from tasks of lm-eval (`lm-eval:NAME,NAME`).
    Raises as `tasks_at` and `write_lm_eval_tasks`."""
    if not path.startswith(PREFIX):
        return tasks_at(settings, path, "tasks")
    names = sorted({name.strip() for name in path.removeprefix(PREFIX).split(",")})
    return write_lm_eval_tasks(names, Path(settings.local_folder) / "lm-eval-tasks" / "-".join(names))


def task_sets(folder: Path | None) -> dict[str, int]:
    """The examples of each set that a folder of tasks gives, by the set's name."""
    return {TASK + task.name: len(task.examples) for task in both_ways(folder)} if folder else {}


class DecisionTasks:
    """The tasks in a folder, for runs on these data. Raises as `read_tasks`."""

    def __init__(self, context: RunContext, folder: Path, data: ComparisonData) -> None:
        self._context, self._folder, self._data = context, folder, data
        self._tasks = both_ways(folder)

    @cached_property
    def contained(self) -> frozenset[str]:
        """`<task>:<number>` of the examples that occur in the training text of a recipe."""
        examples = task_examples(self._context, self._folder)
        stages = [contained_examples(self._context, arm.corpus, examples) for arm in self._data.arms.values()]
        return frozenset(name for stage in stages for name in stage.result["examples"])

    @cached_property
    def counted(self) -> np.ndarray:
        """bool (examples,): those that count, of all tasks in their order; none of a task that has fewer than two."""
        counted = []
        for task in self._tasks:
            name = task.name.removesuffix(LETTERS)
            mask = np.array([f"{name}:{number}" not in self.contained for number in range(len(task.examples))])
            counted.append(mask & (mask.sum() >= 2))
        return np.concatenate(counted)

    @cached_property
    def left_out(self) -> dict[str, int]:
        """How many examples of each task do not count, by the name of the task; letters are no task of their own."""
        totals: dict[str, int] = {}
        for name, counts in zip(self._names, self.counted, strict=True):
            if not name.endswith(LETTERS):
                totals[name] = totals.get(name, 0) + int(not counts)
        return totals

    @cached_property
    def _names(self) -> list[str]:
        return [task.name for task in self._tasks for _ in task.examples]

    @property
    def sets(self) -> tuple[str, ...]:
        """The names of the sets, in the order of `set_of`."""
        return tuple(dict.fromkeys(TASK + name for name in self._of_counted(self._names)))

    @property
    def set_of(self) -> np.ndarray:
        """The set of each example that counts, int64 (examples,)."""
        numbers = {name: number for number, name in enumerate(self.sets)}
        return np.array([numbers[TASK + name] for name in self._of_counted(self._names)], np.int64)

    @property
    def sizes(self) -> np.ndarray:
        """UTF-8 bytes of the right answer of each example that counts, int64 (examples,)."""
        examples = [example for task in self._tasks for example in task.examples]
        sizes = [len(example.pairs[example.answer][1].encode()) for example in examples]
        return np.array(sizes, np.int64)[self.counted]

    def _of_counted(self, values: Iterable[str]) -> list[str]:
        return [value for value, counts in zip(values, self.counted, strict=True) if counts]

    def scored(self, model: StageResult, arm: str | None = None) -> pa.Table:
        """What a finished run makes of the examples that count, in their order: the columns of `task_losses`. `arm`:
        whose tokenizer it has, None: the tokenizer of all."""
        tokenizer = self._data.tokenizer if arm is None else self._data.arms[arm].tokenizer
        losses = task_losses(self._context, self._folder, model, tokenizer)
        return read_losses(losses).filter(pa.array(self.counted))

    @property
    def digest(self) -> str:
        """Of all that decides which examples count, and what they are."""
        return digest(
            task_digests(self._context.settings, self._folder) | {"contained": digest(sorted(self.contained))}
        )
