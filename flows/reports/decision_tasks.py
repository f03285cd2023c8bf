"""What the models of a decision make of tasks: accuracies, and paired differences with their intervals."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from flows.comparison.protocol import Decision
from flows.comparison.runs import RunRequest


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
