"""What a budget can see: the power of a decision, the smallest effect, the pairs that an effect needs."""

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import chdtri, nctdtr, ndtr, stdtrit

from gristmill.flows.stats.crossed import pooled_degrees
from gristmill.flows.stats.interval import crossing, t_value

# More pairs than this are not advised: another measure, or more tokens a run, would help more.
MOST_PAIRS = 200
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)


@dataclass(frozen=True)
class Noise:
    """pair_variance: of a pair's difference, averaged over learning rates. degrees: with which a bank knows it (0: no
    bank). shared_variance: of the effect, by what all pairs share: the sample of evaluation documents, and with halves
    of the training hosts that of these; shared_degrees: with which it will be known."""

    pair_variance: float
    degrees: int = 0
    shared_variance: float = 0.0
    shared_degrees: float = np.inf

    def variance(self, pairs: int) -> float:
        """Of the effect after so many pairs."""
        return self.pair_variance / pairs + self.shared_variance

    def freedom(self, pairs: int) -> float:
        """Degrees of freedom after so many pairs, of a bank that shares its base runs with them (Satterthwaite)."""
        of_pairs = pooled_degrees(pairs - 1, self.degrees, min(pairs, self.degrees + 1))
        scale = (self.pair_variance / pairs) ** 2 / of_pairs + self.shared_variance**2 / self.shared_degrees
        return self.variance(pairs) ** 2 / scale if scale > 0 else of_pairs


def power(effect: float, looks: tuple[int, ...], limits: tuple[float, ...], noise: Noise) -> float:
    """Probability that a boundary is crossed on the side of the effect, averaged over the estimated variance."""
    variances = [noise.variance(n) for n in looks]
    errors = np.sqrt(variances)
    information = [variances[-1] / v for v in variances]
    degrees = [noise.freedom(n) for n in looks]
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
    scale = float(np.sqrt(noise.variance(looks[-1])))
    if scale == 0:
        return 0.0
    found = brentq(lambda x: power(x * scale, looks, limits, noise) - wanted, 0.1, 40.0, xtol=1e-3)
    return float(found) * scale


def pairs_needed(effect: float, alpha: float, noise: Noise, wanted: float = 0.8) -> int | None:
    """Pairs after which one test at the end sees this effect with the wanted probability; None if MOST_PAIRS do not."""

    def seen(pairs: int) -> bool:
        error, degrees = np.sqrt(noise.variance(pairs)), noise.freedom(pairs)
        reach = float(stdtrit(degrees, 1 - alpha / 2))
        return 1 - float(nctdtr(degrees, abs(effect) / error, reach)) >= wanted

    needed = bisect_left(range(2, MOST_PAIRS + 1), True, key=seen) + 2
    return needed if needed <= MOST_PAIRS else None


def chance_to_tell(effect: float, variance: float, alpha: float, noise: Noise, pairs: int) -> float:
    """Probability that one test after so many new pairs finds the sign of the effect that was seen.

    variance: of the effect that was seen. A decision without a verdict has seen an effect near its noise, and the true
    one is likelier smaller than larger. So effects are taken as normal around 0, with the variance under which what was
    seen is likeliest (effect^2 - variance, at least 0: empirical Bayes, as James and Stein 1961 shrink), and the
    probability is averaged over the effects that are left. New pairs are judged by the same documents, and with halves
    drawn from the same training hosts: what these add is the same again.
    """
    true = max(effect**2 - variance, 0.0)
    kept = (true + noise.shared_variance) / (true + variance)
    spread = kept * max(variance - noise.shared_variance, 0.0) + noise.pair_variance / pairs
    reach = float(stdtrit(noise.freedom(pairs), 1 - alpha / 2)) * np.sqrt(noise.variance(pairs))
    return float(ndtr((kept * abs(effect) - reach) / np.sqrt(spread)))
