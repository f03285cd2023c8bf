"""The beta distribution, and what follows from it: Student's t, and confidence intervals of shares.

Every run judges groups by these and every page of a run shows them, so they need nothing but numpy. Tests compare
them with scipy's.
"""

from math import lgamma, sqrt
from statistics import NormalDist

import numpy as np

_CONVERGED = 1e-15
_TINY = 1e-300
_MAX_TERMS = 20_000
_GRID = 1001  # points by which an interval that holds a quantile is narrowed
_ROUNDS = 6


def beta_cdf(a: float, b: float, x: np.ndarray) -> np.ndarray:
    """The regularized incomplete beta function I_x(a, b).

    Args:
        a: Above 0.
        b: Above 0.
        x: float64 (n,), in [0, 1].

    Returns:
        float64 (n,). Source: the continued fraction of DLMF 8.17.22, with Lentz's method.
    """
    is_upper = x > (a + 1) / (a + b + 2)  # where the fraction of the complement converges faster
    lower = _fraction(a, b, np.where(is_upper, 0.0, x))
    upper = _fraction(b, a, np.where(is_upper, 1 - x, 0.0))
    return np.where(is_upper, 1 - upper, lower)


def _fraction(a: float, b: float, x: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        front = np.exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * np.log(x) + b * np.log1p(-x)) / a
    c, d = np.ones_like(x), 1 / _apart_from_zero(1 - (a + b) * x / (a + 1))
    value = d.copy()
    for m in range(1, _MAX_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d, c = 1 / _apart_from_zero(1 + even * d), _apart_from_zero(1 + even / c)
        value *= d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d, c = 1 / _apart_from_zero(1 + odd * d), _apart_from_zero(1 + odd / c)
        value *= d * c
        if np.all(np.abs(d * c - 1) < _CONVERGED):
            return front * value
    raise ArithmeticError(f"the incomplete beta function of {a} and {b} does not converge in {_MAX_TERMS:,} terms")


def _apart_from_zero(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < _TINY, _TINY, x)


def student_cdf(t: np.ndarray, freedom: float) -> np.ndarray:
    """The cumulative distribution function of Student's t with `freedom` degrees of freedom; `t`: float64 (n,), also
    infinite."""
    tail = beta_cdf(freedom / 2, 0.5, freedom / (freedom + t * t)) / 2
    return np.where(t < 0, tail, 1 - tail)


def _beta_quantile(a: float, b: float, level: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(_ROUNDS):
        points = np.linspace(low, high, _GRID)
        above = int(np.searchsorted(beta_cdf(a, b, points), level))
        low, high = float(points[max(above - 1, 0)]), float(points[min(above, _GRID - 1)])
    return (low + high) / 2


def exact_interval(hits: int, draws: int, level: float) -> tuple[float, float]:
    """The confidence interval of a share of one draw or more by Clopper and Pearson (1934, Biometrika 26:404).

    Args:
        hits: From 0 to `draws`.
        draws: 1 or more.
        level: Of confidence, such as 0.95.
    """
    half = (1 - level) / 2
    low = _beta_quantile(hits, draws - hits + 1, half) if hits else 0.0
    high = _beta_quantile(hits + 1, draws - hits, 1 - half) if hits < draws else 1.0
    return low, high


def wilson_interval(hits: int, draws: int, level: float) -> tuple[float, float]:
    """The confidence interval of a share by Wilson (1927, JASA 22:209); arguments as for `exact_interval`."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    share, wide = hits / draws, z * z / draws
    middle = (share + wide / 2) / (1 + wide)
    half = z / (1 + wide) * sqrt(share * (1 - share) / draws + wide / (4 * draws))
    low, high = middle - half, middle + half
    return (0.0 if hits == 0 else low), (1.0 if hits == draws else high)


def chance_of_few(hits: int, draws: int, middle: float, spread: float, freedom: float) -> float:
    """The probability of so few hits, or fewer, if the log odds of the share are `middle` plus `spread` times Student's
    t.

    The binomial probability of `hits` or fewer is the probability that a beta variable is above the share. So this is
    the expectation, over the log odds of that variable, of the probability that those of the share are below it.

    Args:
        hits: From 0 to `draws`.
        draws: 1 or more.
        middle: In log odds.
        spread: 0 or more, in log odds.
        freedom: Degrees of freedom, above 0.
    """
    if hits == draws:
        return 1.0
    a, b = hits + 1, draws - hits
    width = 12 * sqrt(1 / a + 1 / b)
    peak = np.log(a / b)
    odds = np.linspace(peak - width - 40 / a, peak + width + 40 / b, 6001)
    density = a * odds - (a + b) * np.logaddexp(0, odds)
    weights = np.exp(density - density.max())
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.nan_to_num((odds - middle) / spread, nan=0.0, posinf=np.inf, neginf=-np.inf)
    return float(np.sum(weights * student_cdf(t, freedom)) / np.sum(weights))
