"""A group-sequential boundary: critical values of several looks at one growing sample, and the estimate behind them.

Z_1, ..., Z_K are the statistics at information I_1 < ... < I_K, jointly normal with means theta sqrt(I_k) and
covariances sqrt(I_j / I_k) for j < k (Jennison and Turnbull 2000, chapter 3). Crossing probabilities are found by
recursive numerical integration (Armitage, McPherson and Rowe 1969; Jennison and Turnbull 2000, chapter 19).
"""

from functools import cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri_exp
from scipy.stats import t as student

SPENDING_POWER = 2  # alpha t^2 is spent at the share t of the information (Kim and DeMets 1987)
POINTS = 400  # of the grid on which a density is kept between two looks
REACH = 8.0  # standard deviations that the grid spans on each side of the mean


@cache
def critical_values(fractions: tuple[float, ...], alpha: float) -> tuple[float, ...]:
    """Of |Z| at each look, two-sided `alpha` over all looks; `fractions` of the information, the last is 1.

    Raises ValueError for fractions that do not rise to 1.
    """
    if not fractions or any(b <= a for a, b in zip((0.0, *fractions), fractions, strict=False)) or fractions[-1] != 1:
        raise ValueError(f"fractions of information {fractions} do not rise from above 0 to 1")
    spent, values = 0.0, ()
    for look, fraction in enumerate(fractions):
        rest = alpha * fraction**SPENDING_POWER - spent

        def excess(value: float, before: tuple[float, ...] = values, look: int = look, rest: float = rest) -> float:
            above, below = exits(fractions[: look + 1], (*before, value), 0.0)
            return float(above[-1] + below[-1] - rest)

        value = brentq(excess, 0.0, 20.0, xtol=1e-10)
        values = (*values, float(value))
        spent += rest
    return values


def exits(information: tuple[float, ...], values: tuple[float, ...], theta: float) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities that Z first leaves (-values[k], values[k]) at look k, upward and downward, each (looks,)."""
    above, below = np.zeros(len(values)), np.zeros(len(values))
    root = np.sqrt(information)
    points = density = None
    for k, (r, value) in enumerate(zip(root, values, strict=True)):
        if points is None or density is None:
            above[k], below[k] = ndtr(theta * r - value), ndtr(-value - theta * r)
            mean, deviation = theta * r, 1.0
        else:
            # Z_k given Z_{k-1} = x: mean (x r_{k-1} + theta (I_k - I_{k-1})) / r_k, variance 1 - I_{k-1} / I_k
            before, step = root[k - 1], information[k] - information[k - 1]
            deviation = float(np.sqrt(step / information[k]))
            mean = (points * before + theta * step) / r
            above[k] = density @ ndtr((mean - value) / deviation)
            below[k] = density @ ndtr((-value - mean) / deviation)
        if k + 1 < len(values):
            low, high = max(-value, theta * r - REACH), min(value, theta * r + REACH)
            if low >= high:
                break
            nodes, weights = _simpson(low, high)
            if density is None:
                new = _normal(nodes - mean)
            else:
                new = (_normal((nodes[:, None] - mean) / deviation) / deviation) @ density
            points, density = nodes, new * weights
    return above, below


def stagewise(information: tuple[float, ...], values: tuple[float, ...], z: float, theta: float) -> float:
    """Probability of a result at least as high as Z = z at the last of these looks, by the stage-wise ordering.

    A crossing upward at an earlier look is higher, one downward is lower (Tsiatis, Rosner and Mehta 1984). `values`:
    the critical values of the looks before.
    """
    above, below = exits(information, (*values, abs(z)), theta)
    earlier = float(above[:-1].sum())
    if z >= 0:
        return earlier + float(above[-1])
    return 1 - float(below[:-1].sum()) - float(below[-1])


def bound(information: tuple[float, ...], values: tuple[float, ...], z: float, probability: float) -> float:
    """The theta under which a result at least as high as z has this probability: (1 - level) / 2 gives the lower end of
    an interval, one half a median-unbiased estimate."""
    scale = 1 / np.sqrt(information[-1])

    def excess(theta: float) -> float:
        return stagewise(information, values, z, theta) - probability

    centre = z * scale
    low, high = centre - 6 * scale, centre + 6 * scale
    while excess(low) > 0:
        low -= 6 * scale
    while excess(high) < 0:
        high += 6 * scale
    return float(brentq(excess, low, high, xtol=1e-9 * scale))


def to_z(t: float, degrees: float) -> float:
    """The normal quantile of a t statistic with these degrees of freedom (Jennison and Turnbull 2000, chapter 4)."""

    tail = float(student.logsf(abs(t), degrees))
    return float(np.copysign(-ndtri_exp(tail), t))


def _simpson(low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    nodes = np.linspace(low, high, POINTS + 1)
    weights = np.full(POINTS + 1, 2.0)
    weights[1::2] = 4.0
    weights[[0, -1]] = 1.0
    return nodes, weights * (high - low) / (3 * POINTS)


def _normal(x: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi)
