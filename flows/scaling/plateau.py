"""Runs that follow no law yet: which token budgets are too short for one.

In its first steps a model learns how frequent tokens are, and stays there for a while. The loss of a run that ends on
this plateau says nothing of a power law, and a law that is fitted to such runs is steep in tokens, with a narrow
interval around a wrong optimum. So each token budget is held against the law of all longer runs, the longest first: by
Chow's test of predictive failure (1960, Econometrica 28), on the mean relative error of the budget's runs. A budget
that fails is left out with all shorter ones.
"""

from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from gristmill.flows.scaling.law import ScalingRuns, fit

# Of a budget without fault, how often it is left out, over all that are tested.
ERROR = 0.02


@dataclass(frozen=True)
class Plateau:
    """Which runs follow a law. `kept`: bool (runs,). `error`: mean of loss / predicted - 1 of the longest budget that
    is left out, under the law of the longer ones. `tested`: how many budgets had enough longer ones to be tested."""

    kept: np.ndarray
    error: float
    tested: int


def plateau(runs: ScalingRuns) -> Plateau:
    """Find the token budgets whose runs do not follow the law of the longer runs.

    Raises ValueError for runs that do not determine a law.
    """
    budgets = np.unique(runs.tokens)
    tested = [budget for budget in budgets[::-1] if not runs.take(runs.tokens > budget).problem]
    for budget in tested:
        longer, own = runs.take(runs.tokens > budget), runs.take(runs.tokens == budget)
        error, p_value = _failure(longer, own)
        if p_value < ERROR / len(tested):
            return Plateau(runs.tokens > budget, error, len(tested))
    return Plateau(np.ones(len(runs), bool), 0.0, len(tested))


def _failure(longer: ScalingRuns, own: ScalingRuns) -> tuple[float, float]:
    """Mean of loss / predicted - 1 of `own` runs under the law of `longer` ones, and its two-sided p value."""
    fitted = fit(longer)
    error = own.loss / fitted.law.loss(own.parameters, own.tokens) - 1
    mean = float(error.mean())
    spread = fitted.mean_error(own.parameters, own.tokens)
    return mean, float(2 * student.sf(abs(mean) / spread, fitted.freedom))
