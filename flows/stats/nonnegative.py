"""What measurements say of a sum of costs, none of which is negative: the range of all that is compatible with them.

Costs of jobs are y = X theta + noise with theta >= 0: a part for each process, a part for each job, parts in proportion
to what a job reads. A prediction is a sum L theta. Where the measurements cannot tell the parts apart, the value that
fits best says nothing, so the range is what counts: all v for which some theta >= 0 with L theta = v fits the
measurements nearly as well as the best one, by the F test of a profile likelihood. It is narrow where parts that cannot
be told apart grow alike, and wide where they do not.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls
from scipy.stats import t

LEVEL = 0.95
# Few jobs do not say how much their costs vary. What is expected of them, the standard deviation as a share of a job's
# cost, counts as much as so many jobs. Of 41 phases of tests/benchmarks/test_capacity.py with at least 8 jobs it was
# .01 to .16 in 37, and .4 to .8 in four, in each of which one job took much longer than the others.
EXPECTED_DEVIATION, EXPECTED_WEIGHT = 0.15, 4.0
# What small costs vary by, in their unit, whatever they are, as a share of which EXPECTED_DEVIATION is.
FLOOR = 0.05
_ROUNDS = 6  # of weights by fitted values, which settle sooner
_HALVINGS = 40
_PENALTY = 1e5


@dataclass(frozen=True)
class CostRange:
    """The value that fits best and the bounds at LEVEL. `deviation`: of one job, as a share of its cost."""

    value: float
    low: float
    high: float
    deviation: float


def predict(design: np.ndarray, costs: np.ndarray, target: np.ndarray, jobs: int) -> CostRange:
    """The range of `target @ theta`, and of the sum of that over so many new jobs, which vary, too.

    `design`: float64 (n, p), not negative; `costs`: (n,), in seconds; `target`: (p,), not negative. A column of zeros
    whose target is not zero was not measured: raises ValueError.
    """
    norms = np.sqrt((design**2).sum(0))
    if (target[norms == 0] > 0).any():
        raise ValueError("the prediction contains a cost that no measurement contains")
    measured = norms > 0
    scaled, wanted = design[:, measured] / norms[measured], target[measured] / norms[measured]
    scale = np.hypot(costs, FLOOR)
    for _ in range(_ROUNDS):
        theta, residual = nnls(scaled / scale[:, None], costs / scale)
        scale = np.hypot(scaled @ theta, FLOOR)
    reduced, rotated = _reduce(scaled / scale[:, None], costs / scale)
    theta, _ = nnls(reduced, rotated)
    least = float(((reduced @ theta - rotated) ** 2).sum())
    spare = max(0, len(costs) - int((theta > 0).sum()))
    rest = float((((scaled @ theta - costs) / scale) ** 2).sum())
    freedom = EXPECTED_WEIGHT + spare
    variance = (EXPECTED_WEIGHT * EXPECTED_DEVIATION**2 + rest) / freedom
    quantile = float(t.ppf(0.5 + LEVEL / 2, freedom))
    value = float(wanted @ theta)
    limit = least + variance * quantile**2
    low, high = (_end(reduced, rotated, wanted, value, limit, up) for up in (False, True))
    noise = quantile * np.sqrt(variance / max(1, jobs)) * value
    return CostRange(
        value,
        max(0.0, value - float(np.hypot(value - low, noise))),
        value + float(np.hypot(high - value, noise)),
        float(np.sqrt(variance)),
    )


def _reduce(design: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """As many rows as columns at the most, with the same differences of sums of squares."""
    if len(design) <= design.shape[1]:
        return design, values
    orthogonal, triangle = np.linalg.qr(design)
    return triangle, orthogonal.T @ values


def _end(design: np.ndarray, values: np.ndarray, target: np.ndarray, value: float, limit: float, up: bool) -> float:
    """How far the prediction can go, up or down, before the sum of squares is above the limit."""

    def fits(goal: float) -> bool:
        return _squares(design, values, target, goal) <= limit

    inside = value
    if up:
        outside = 2 * value or FLOOR * float(target.max())
        while fits(outside):
            inside, outside = outside, 2 * outside
    else:
        if fits(0.0):
            return 0.0
        outside = 0.0
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if fits(middle) else (inside, middle)
    return inside


def _squares(design: np.ndarray, values: np.ndarray, target: np.ndarray, goal: float) -> float:
    """The smallest sum of squares of coefficients whose prediction is the goal."""
    row = _PENALTY / np.linalg.norm(target)
    theta, _ = nnls(np.vstack([design, row * target]), np.append(values, row * goal))
    return float(((design @ theta - values) ** 2).sum())
