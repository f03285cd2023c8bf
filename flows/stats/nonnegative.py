"""Predict a sum of nonnegative costs from measurements, with the range of all values compatible with them.

Costs of jobs are y = X theta + noise with theta >= 0: a part for each process, a part for each job, parts in proportion
to the input of a job. A prediction is a sum L theta. If the measurements do not identify the parts, the best fit is
meaningless, so the prediction is a range: all v for which some theta >= 0 with L theta = v fits the measurements nearly
as well as the best one, by the F test of a profile likelihood. The range is narrow if parts that cannot be separated
grow at the same rate, and wide if they do not.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls
from scipy.stats import t

LEVEL = 0.95
# A few jobs do not show how much costs vary, so the expected standard deviation, as a share of a job's cost, weighs as
# much as EXPECTED_WEIGHT jobs. In 41 phases of tests/benchmarks/test_capacity.py with at least 8 jobs it was .01 to .16
# in 37, and .4 to .8 in four, in each of which one job took much longer than the others.
EXPECTED_DEVIATION, EXPECTED_WEIGHT = 0.15, 4.0
# The deviation of small costs, in their unit, does not shrink below that of a cost of this size.
FLOOR = 0.05
_ROUNDS = 6  # of reweighting by fitted values, which converges sooner
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
    """Predict `target @ theta`, the summed cost of `jobs` new jobs, including the noise of these jobs.

    `design`: float64 (n, p), not negative; `costs`: (n,), in seconds; `target`: (p,), not negative. Raises ValueError
    for a column of zeros whose target is not zero, since such a cost was not measured.
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
    """Reduce to at most as many rows as columns, with the same differences between sums of squares."""
    if len(design) <= design.shape[1]:
        return design, values
    orthogonal, triangle = np.linalg.qr(design)
    return triangle, orthogonal.T @ values


def _end(design: np.ndarray, values: np.ndarray, target: np.ndarray, value: float, limit: float, up: bool) -> float:
    """The end of the range, upper or lower: where the sum of squares reaches the limit."""

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
