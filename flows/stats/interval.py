"""An interval that is adjusted for stopping, and the boundaries: which statistic ends a decision at which look.

The statistics of the looks are jointly normal with independent increments of information (the canonical distribution
of Jennison and Turnbull, Group Sequential Methods, 2000, section 3.1). Probabilities follow by recursive integration
(their chapter 19; Armitage, McPherson and Rowe 1969). Limits follow from the error that may have been spent by each
look (Lan and DeMets 1983).

The interval follows the stage-wise ordering of outcomes: an earlier crossing of the upper limit is a higher outcome
than a later one; at one look a higher statistic is (Tsiatis, Rosner and Mehta 1984; Jennison and Turnbull 2000,
section 8.5). Without early stopping it is the t interval.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri, stdtr, stdtrit

# Beyond it the normal density is under 1e-19.
_FAR = 9.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
# Looks between which information grows by less count as growing by it: the kernel would be narrower than any grid.
_LEAST_GROWTH = 1e-3


class Path:
    """The part of the probability that has crossed no limit so far, look by look."""

    def __init__(self) -> None:
        self._information, self._nodes, self._mass = 0.0, np.zeros(1), np.ones(1)

    def beyond(self, information: float, limit: float, above: bool) -> float:
        """Probability to reach the look of this information and to be above (or below) the limit there."""
        information = self._later(information)
        spread = np.sqrt(information - self._information)
        z = (limit * np.sqrt(information) - self._nodes * np.sqrt(self._information)) / spread
        return float(self._mass @ ndtr(-z if above else z))

    def go_on(self, information: float, lower: float, upper: float, growth: float) -> None:
        """Pass a look between two limits; `growth` is the next look's information over this one's."""
        information = self._later(information)
        spread = np.sqrt(information - self._information)
        low, high = max(lower, -_FAR), min(upper, _FAR)
        if high <= low:
            self._nodes, self._mass, self._information = np.zeros(1), np.zeros(1), information
            return
        # The density must be followed at the scale of the kernels before and after.
        scale = np.sqrt(min(max(growth - 1, _LEAST_GROWTH), spread**2 / information, 1.0))
        edges = np.linspace(low, high, int(np.ceil((high - low) / (3 * scale))) + 1)
        half = np.diff(edges) / 2
        nodes = ((edges[:-1] + half)[:, None] + half[:, None] * _NODES).ravel()
        steps = (half[:, None] * _WEIGHTS).ravel()
        z = (nodes[:, None] * np.sqrt(information) - self._nodes * np.sqrt(self._information)) / spread
        density = np.exp(-(z**2) / 2) @ self._mass * np.sqrt(information / (2 * np.pi)) / spread
        self._nodes, self._mass, self._information = nodes, density * steps, information

    def _later(self, information: float) -> float:
        return max(information, self._information * (1 + _LEAST_GROWTH))


def crossing(information: Sequence[float], lower: Sequence[float], upper: Sequence[float]) -> np.ndarray:
    """Probabilities (looks, 2) that a statistic of mean 0 leaves the limits first at each look: below, above."""
    path, found = Path(), []
    for k, (now, low, high) in enumerate(zip(information, lower, upper, strict=True)):
        found.append((path.beyond(now, low, above=False), path.beyond(now, high, above=True)))
        if k + 1 < len(information):
            path.go_on(now, low, high, information[k + 1] / now)
    return np.array(found)


def spent(alpha: float, fraction: float) -> float:
    """Two-sided error that may be spent at a fraction of the information: alpha t^2 (Kim and DeMets 1987, rho = 2).

    Between the two common choices: O'Brien and Fleming's would hardly ever stop at a quarter of the pairs, Pocock's
    costs a fifth more pairs in the end.
    """
    return alpha * fraction**2


@lru_cache(maxsize=256)
def limits(information: tuple[float, ...], error: tuple[float, ...]) -> tuple[float, ...]:
    """Symmetric limits of the standard normal statistic at each look.

    error: two-sided error spent up to each look, rising. ValueError if it or the information does not rise.
    """
    if any(b <= a for row in (information, error) for a, b in zip((0.0, *row), row, strict=False)):
        raise ValueError(f"looks: information {information} and spent error {error} must rise from look to look.")
    path, found, before = Path(), [], 0.0
    for k, (now, total) in enumerate(zip(information, error, strict=True)):
        # Symmetric: half of the error is above.
        share = (total - before) / 2
        found.append(brentq(lambda z, now=now, share=share: path.beyond(now, z, above=True) - share, 0.0, _FAR))
        before = total
        if k + 1 < len(information):
            path.go_on(now, -found[-1], found[-1], information[k + 1] / now)
    return tuple(found)


def declared(looks: tuple[int, ...], alpha: float) -> tuple[float, ...]:
    """The limits of a decision, known before its first run: information in proportion to pairs.

    What evaluation documents add to the variance is shared by all looks, so the statistics are at least as correlated
    as assumed here, and the error is at most alpha.
    """
    fractions = tuple(n / looks[-1] for n in looks)
    return limits(fractions, tuple(spent(alpha, t) for t in fractions))


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
