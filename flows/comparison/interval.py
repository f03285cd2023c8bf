"""An interval that is adjusted for stopping, by the stage-wise ordering of outcomes.

An earlier crossing of the upper limit is a higher outcome than a later one; at one look a higher statistic is
(Tsiatis, Rosner and Mehta 1984; Jennison and Turnbull 2000, section 8.5). Without early stopping it is the t interval.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from flows.comparison.boundary import Path


@dataclass(frozen=True)
class Look:
    """What was known at a look. `information` is in one unit for all looks; `limit` is standard normal."""

    pairs: int
    effect: float
    standard_error: float
    degrees: float
    information: float
    limit: float

    @property
    def statistic(self) -> float:
        return normal_score(self.effect / self.standard_error, self.degrees)

    @property
    def crossed(self) -> bool:
        return abs(self.statistic) >= self.limit


def normal_score(t: float, degrees: float) -> float:
    """The standard normal value with the same tail as a t value (significance level method; section 3.8)."""
    tail = float(ndtri(max(stdtr(degrees, -abs(t)), 1e-300)))
    return -tail if t > 0 else tail


def t_value(z: float, degrees: float) -> float:
    """The t value with the same tail as a standard normal value."""
    t = float(stdtrit(degrees, ndtr(-abs(z))))
    return -t if z > 0 else t


def tail(looks: Sequence[Look], effect: float) -> float:
    """Probability of an outcome at least as high as the last look's if this were the true effect."""
    path, above = Path(), 0.0
    for k, look in enumerate(looks[:-1]):
        reach = t_value(look.limit, look.degrees)
        high = normal_score(reach - effect / look.standard_error, look.degrees)
        low = normal_score(-reach - effect / look.standard_error, look.degrees)
        above += path.beyond(look.information, high, above=True)
        path.go_on(look.information, low, high, looks[k + 1].information / look.information)
    last = looks[-1]
    here = normal_score((last.effect - effect) / last.standard_error, last.degrees)
    return above + path.beyond(last.information, here, above=True)


def stagewise(looks: Sequence[Look], level: float) -> tuple[float, float, float]:
    """Lower end, median-unbiased effect, upper end of the interval of this level; `looks` up to where it stopped."""
    last = looks[-1]
    if len(looks) == 1:
        reach = float(stdtrit(last.degrees, (1 + level) / 2)) * last.standard_error
        return last.effect - reach, last.effect, last.effect + reach
    low, middle, high = (_where(looks, p) for p in ((1 - level) / 2, 0.5, (1 + level) / 2))
    return low, middle, high


def _where(looks: Sequence[Look], probability: float) -> float:
    """The effect under which an outcome at least as high as the observed one has this probability."""
    last = looks[-1]
    step = last.standard_error * max(1.0, abs(t_value(float(ndtri(probability)), last.degrees)))
    low = high = last.effect
    while tail(looks, low) > probability:
        low, step = low - step, step * 2
    step = last.standard_error
    while tail(looks, high) < probability:
        high, step = high + step, step * 2
    if low == high:
        return float(low)
    return float(brentq(lambda effect: tail(looks, effect) - probability, low, high, xtol=1e-3 * last.standard_error))


def p_value(looks: Sequence[Look]) -> float:
    """Two-sided, by the same ordering."""
    above = tail(looks, 0.0)
    return float(np.clip(2 * min(above, 1 - above), 0.0, 1.0))
