"""What tuning the learning rate is worth: a sweep around the rule's rate at some sizes of a grid.

A law is of runs at the rates of one rule. Where the rule is off by a factor that changes with size, the law is not that
of tuned runs, and its forecasts lean to one side. A parabola of the loss over the logarithm of the rate through three
rates has the best one, and what it would gain.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gristmill.flows.experiments.scaling.grid import Cell

FACTORS = (0.5, 1.0, 2.0)  # of the rule's rate: a step of 2, as learning rates are usually swept


def swept_cells(cells: Sequence[Cell], sizes: int) -> list[tuple[Cell, ...]]:
    """The cells of so many sweeps, the smallest and the largest size first among the sizes: of each size the middle
    budget, at each of FACTORS times its rate."""
    by_size: dict[int, list[Cell]] = {}
    for one in cells:
        by_size.setdefault(one.size.parameters, []).append(one)
    ordered = [sorted(by_size[size], key=lambda one: one.tokens) for size in sorted(by_size)]
    places = np.linspace(0, len(ordered) - 1, min(sizes, len(ordered))).round()
    chosen = sorted({int(at) for at in places})
    middle = [ordered[at][len(ordered[at]) // 2] for at in chosen]
    return [tuple(replace(one, learning_rate=factor * one.learning_rate) for factor in FACTORS) for one in middle]


@dataclass(frozen=True)
class RateSweep:
    """A size and a token budget, the rates and the loss at each. `best`: the rate of the parabola's minimum within the
    rates; `worth`: the loss at the rule's rate less that at the best one, relative to the first; `noise`: how much two
    runs of one rate differ, relative to the loss."""

    parameters: int
    tokens: int
    rates: tuple[float, ...]
    losses: tuple[float, ...]
    best: float
    worth: float
    noise: float

    @property
    def rule(self) -> float:
        """The rule's rate."""
        return self.rates[len(self.rates) // 2]

    @property
    def at_edge(self) -> bool:
        return self.best in (self.rates[0], self.rates[-1])

    @property
    def sentence(self) -> str:
        size = f"at {self.parameters:,} parameters and {self.tokens:,} tokens"
        if self.worth <= 2 * self.noise:
            return f"{size} no learning rate is better than the rule's {self.rule:g} beyond noise"
        beyond = ", the last that was tried" if self.at_edge else ""
        return (
            f"{size} a learning rate of {self.best:.2g}{beyond} in place of {self.rule:g} would "
            f"lower the loss by {self.worth:.2%}"
        )


def rate_sweep(
    parameters: int, tokens: int, rates: Sequence[float], losses: Sequence[float], noise: float
) -> RateSweep:
    """The sweep of rates that rise, the rule's in the middle; `losses`: of a run at each."""
    log, values = [float(x) for x in np.log(rates)], np.asarray(losses, float)
    lowest, rule = int(values.argmin()), float(values[len(rates) // 2])
    best, least = log[lowest], float(values[lowest])
    bend, slope, _ = (float(x) for x in np.polyfit(log, values, 2))
    if bend > 0 and log[0] < (turn := -slope / (2 * bend)) < log[-1]:
        best, least = turn, float(np.polyval(np.polyfit(log, values, 2), turn))
    worth = (rule - least) / rule
    return RateSweep(parameters, tokens, tuple(rates), tuple(losses), float(np.exp(best)), worth, noise)
