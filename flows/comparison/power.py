"""What a budget can see: the power of a decision, the smallest effect, the pairs that an effect needs."""

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import chdtri, nctdtr, stdtrit

from gristmill.flows.comparison.crossed import pooled_degrees
from gristmill.flows.comparison.interval import crossing, t_value

# More pairs than this are not advised: another measure, or more tokens a run, would help more.
MOST_PAIRS = 200
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)


@dataclass(frozen=True)
class Noise:
    """pair_variance: of a pair's difference, averaged over learning rates. degrees: with which a bank knows it (0: no
    bank). document_variance: of the effect, by the sample of evaluation documents."""

    pair_variance: float
    degrees: int = 0
    document_variance: float = 0.0

    def pooled(self, pairs: int) -> float:
        """Degrees of freedom after so many pairs, of a bank that shares its base runs with them."""
        return pooled_degrees(pairs - 1, self.degrees, min(pairs, self.degrees + 1))


def power(effect: float, looks: tuple[int, ...], limits: tuple[float, ...], noise: Noise) -> float:
    """Probability that a boundary is crossed on the side of the effect, averaged over the estimated variance."""
    variances = [noise.pair_variance / n + noise.document_variance for n in looks]
    errors = np.sqrt(variances)
    information = [variances[-1] / v for v in variances]
    degrees = [noise.pooled(n) * (v / (noise.pair_variance / n)) ** 2 for n, v in zip(looks, variances, strict=True)]
    reach = [t_value(z, nu) for z, nu in zip(limits, degrees, strict=True)]
    total = 0.0
    for node, weight in zip((_NODES + 1) / 2, _WEIGHTS / 2, strict=True):
        # The estimated standard error over the true one, at the same quantile for all looks: they share the bank.
        ratio = [float(np.sqrt(chdtri(nu, 1 - node) / nu)) for nu in degrees]
        high = [t * s - abs(effect) / e for t, s, e in zip(reach, ratio, errors, strict=True)]
        low = [-t * s - abs(effect) / e for t, s, e in zip(reach, ratio, errors, strict=True)]
        total += weight * float(crossing(information, low, high)[:, 1].sum())
    return total


def smallest_effect(looks: tuple[int, ...], limits: tuple[float, ...], noise: Noise, wanted: float = 0.8) -> float:
    """The effect in bits per byte that is seen with the wanted probability."""
    scale = float(np.sqrt(noise.pair_variance / looks[-1] + noise.document_variance))
    if scale == 0:
        return 0.0
    found = brentq(lambda x: power(x * scale, looks, limits, noise) - wanted, 0.1, 40.0, xtol=1e-3)
    return float(found) * scale


def pairs_needed(effect: float, alpha: float, noise: Noise, wanted: float = 0.8) -> int | None:
    """Pairs after which one test at the end sees this effect with the wanted probability; None if MOST_PAIRS do not."""

    def seen(pairs: int) -> bool:
        error = np.sqrt(noise.pair_variance / pairs + noise.document_variance)
        degrees = noise.pooled(pairs)
        reach = float(stdtrit(degrees, 1 - alpha / 2))
        return 1 - float(nctdtr(degrees, abs(effect) / error, reach)) >= wanted

    needed = bisect_left(range(2, MOST_PAIRS + 1), True, key=seen) + 2
    return needed if needed <= MOST_PAIRS else None
