"""Which tasks say something at this size: a screen by the decision's own runs.

After FineTasks (Kydlíček et al. 2024), whose four criteria are a score above chance, one that rises with training, an
order of the models that stays, and low noise. Its curves have many checkpoints; here runs of half of the tokens stand
for the earlier one. Signal and noise are those of Heineman et al. 2025: what recipes differ by, over what runs of one
recipe differ by.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.special import stdtrit

from gristmill.flows.stats.protocol import Decision
from gristmill.flows.stats.runs import RunRequest

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
    found = []
    for name, count in sorted(examples.items()):
        for measure, scores in measures.items():
            chance = chances.get(name) if measure == "accuracy" else None
            found.append(_screen(decision, name, measure, scores, chance, count, arms, pairs))
    return tuple(found)


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
    rates, whole = decision.protocol.learning_rates, decision.tokens
    by_pair = np.array(
        [[np.mean([scores[RunRequest(arm, p, r, whole)][name] for r in rates]) for p in pairs] for arm in arms]
    )
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
        "recipes in another order for each pair": order is not None and order < ORDER,
        "noise above what recipes differ by": signal < SIGNAL * noise,
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
