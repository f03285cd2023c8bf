"""Whether the mixture that a regression chose is better than others: by runs that the regression has not seen.

A prediction at an optimum is too good on average, and its error is too small. Losses that had a part in the choice are
too good as well. So the chosen mixture and those that it is compared with are trained anew, with seeds that no run has
had, the same for all.
"""

from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2, t

LEVEL = 0.95  # one-sided: a gain of chance alone is called one in a case of twenty
_EFFICIENCY = 0.37  # of a median of absolute deviations beside a standard deviation, for two seeds; better for more


@dataclass(frozen=True)
class Gain:
    """How much less the chosen mixture lost than another one, in bits per byte: `measured` of that one, the `gain`, and
    the `least` gain that is beyond the noise of runs at LEVEL."""

    measured: float
    gain: float
    least: float

    @property
    def beyond_error(self) -> bool:
        return self.gain > self.least


def run_noise(losses: np.ndarray) -> tuple[float, int]:
    """The variance of the loss of a run of a usual mixture, and its degrees of freedom, from float64 (mixtures, seeds).

    Of what is left beside the mean of a mixture and what a seed adds to all, it is the median over mixtures, as a
    normal distribution has it: runs of a corner, of noise alone, differ by several times as much. Raises ValueError
    for fewer than two of either.
    """
    mixtures, seeds = losses.shape
    if mixtures < 2 or seeds < 2:
        raise ValueError(f"seeds: {seeds} of {mixtures} mixtures do not tell the noise of a run; ask for 2 or more")
    left = losses - losses.mean(axis=1, keepdims=True)
    of_mixtures = ((left - np.median(left, axis=0)) ** 2).sum(axis=1)  # chi2 of seeds - 1 degrees, for a variance of 1
    degrees = max(1, int(_EFFICIENCY * (mixtures - 1) * (seeds - 1)))
    return float(np.median(of_mixtures) / chi2.median(seeds - 1)), degrees


def gains(chosen: np.ndarray, others: np.ndarray, noise: tuple[float, int]) -> tuple[Gain, ...]:
    """Over each of the other mixtures. `chosen`: losses of new runs, float64 (seeds,); `others`: those of the others
    with the same seeds, (n, seeds); `noise`: as of `run_noise`."""
    variance, degrees = noise
    least = float(t.ppf(LEVEL, degrees) * np.sqrt(2 * variance / len(chosen)))
    return tuple(Gain(float(row.mean()), float(row.mean() - chosen.mean()), least) for row in others)
