"""Group-sequential boundaries: which statistic ends a decision at which look.

The statistics of the looks are jointly normal with independent increments of information (the canonical distribution
of Jennison and Turnbull, Group Sequential Methods, 2000, section 3.1). Probabilities follow by recursive integration
(their chapter 19; Armitage, McPherson and Rowe 1969). Limits follow from the error that may have been spent by each
look (Lan and DeMets 1983).
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

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
