"""What the runs of a decision make of tasks: accuracies by candidate, and which tasks say something."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.special import stdtrit

from gristmill.flows.comparison.protocol import Decision
from gristmill.flows.comparison.runs import RunRequest
from gristmill.flows.decisions.task_screen import screened


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
    found = {}
    for verdict in decision.verdicts:
        if verdict.effect is None:
            continue
        pairs = decision.protocol.pairs(0, verdict.pairs)
        names = accuracies[RunRequest(decision.base, pairs[0], verdict.learning_rates[0], decision.tokens)]
        found[verdict.candidate] = tuple(
            _task(
                name,
                chances.get(name),
                _by_pair(decision, accuracies, decision.base, pairs, name),
                _by_pair(decision, accuracies, verdict.candidate, pairs, name),
                verdict.level,
            )
            for name in sorted(names)
        )
    return {name: tasks for name, tasks in found.items() if tasks}


def _by_pair(
    decision: Decision, accuracies: Mapping[RunRequest, Mapping[str, float]], arm: str, pairs: Iterable[int], task: str
) -> np.ndarray:
    """Means over learning rates, (pairs,)."""
    rates = decision.protocol.learning_rates
    return np.array([np.mean([accuracies[RunRequest(arm, p, r, decision.tokens)][task] for r in rates]) for p in pairs])


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
