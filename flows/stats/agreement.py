"""Does the recipe that is better at one size stay better at a larger one, and by which measure?

Pairs of recipes are counted as in DataDecide (Magnusson et al. 2025, arXiv 2504.11393): the share whose order is the
same at both sizes. Two recipes that are equally good keep their order half of the time, whatever the sizes, so the
pairs that the small models tell apart, and those that both sizes do, are counted for themselves.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.stats import kendalltau, t

DRAWS = 2000
_SEED = 0


@dataclass(frozen=True)
class PairOrder:
    """Two arms, by number. `small`, `large`: loss of the second less that of the first at each size, with the half
    width of its 90% interval over seeds."""

    arms: tuple[int, int]
    small: float
    small_width: float
    large: float
    large_width: float

    @property
    def same(self) -> bool:
        return self.small * self.large > 0

    @property
    def told_apart(self) -> tuple[bool, bool]:
        """Whether the interval of the small models' difference, and that of the large ones', leave 0 out."""
        return abs(self.small) > self.small_width, abs(self.large) > self.large_width


@dataclass(frozen=True)
class RankAgreement:
    """`tau`: Kendall's, of the arms' mean losses at the two sizes; `p_value`: of no association, exact for few arms.
    `accuracy`: the share of pairs in the same order (DataDecide's decision accuracy), between the bounds of its 90%
    interval, (low, value, high): of other seeds for the same recipes, not of other recipes."""

    tau: float
    p_value: float
    pairs: tuple[PairOrder, ...]
    accuracy: tuple[float, float, float]

    def counted(self, small: bool, large: bool) -> tuple[int, int]:
        """Pairs in the same order, and pairs: all, or those that the small (and, or) the large models tell apart."""
        chosen = [
            pair for pair in self.pairs if (pair.told_apart[0] or not small) and (pair.told_apart[1] or not large)
        ]
        return sum(pair.same for pair in chosen), len(chosen)


def rank_agreement(small: np.ndarray, large: np.ndarray) -> RankAgreement:
    """Agreement of two sizes; `small`, `large`: losses, float64 (arms, seeds), the seeds the same for all arms.

    Differences are paired by seed, with a t interval whose variance is pooled over all pairs of arms. Raises ValueError
    for under 3 arms, or under 2 seeds.
    """
    if small.shape[0] != large.shape[0] or small.shape[0] < 3:
        raise ValueError(
            f"{small.shape[0]} and {large.shape[0]} arms have no ranks to compare; give the same 3 or more"
        )
    if min(small.shape[1], large.shape[1]) < 2:
        raise ValueError("an arm has one run, whose noise is unknown; give 2 seeds or more at each size")
    found = kendalltau(small.mean(axis=1), large.mean(axis=1))
    widths = _half_width(small), _half_width(large)
    pairs = tuple(
        PairOrder(
            (first, second),
            float(small[second].mean() - small[first].mean()),
            widths[0],
            float(large[second].mean() - large[first].mean()),
            widths[1],
        )
        for first, second in combinations(range(len(small)), 2)
    )
    return RankAgreement(float(found.statistic), float(found.pvalue), pairs, _accuracy(small, large))


def _accuracy(small: np.ndarray, large: np.ndarray) -> tuple[float, float, float]:
    """(low, value, high) of the share of pairs in the same order: percentiles over draws of the arms' means at both
    sizes, with the error of each as its seeds know it."""
    draw = np.random.default_rng(_SEED)
    signs = []
    for losses in (small, large):
        error, freedom = _arm_error(losses)
        means = losses.mean(axis=1) + error * draw.standard_t(freedom, (DRAWS, len(losses)))
        signs.append(_order(np.vstack([losses.mean(axis=1), means])))
    value, *drawn = (signs[0] == signs[1]).mean(axis=1)
    low, high = np.quantile(drawn, [0.05, 0.95])
    return float(low), float(value), float(high)


def _order(means: np.ndarray) -> np.ndarray:
    """Of means (draws, arms), which of each pair is better: sign, (draws, pairs)."""
    first, second = np.triu_indices(means.shape[1], 1)
    return np.sign(means[:, second] - means[:, first])


def _half_width(losses: np.ndarray) -> float:
    """Of the 90% interval of the difference of two arms' means.

    What is left of losses without the means of arms and of seeds has (arms - 1)(seeds - 1) degrees of freedom.
    """
    error, freedom = _arm_error(losses)
    return float(t.ppf(0.95, freedom) * error * np.sqrt(2))


def _arm_error(losses: np.ndarray) -> tuple[float, int]:
    """Standard error of an arm's mean loss beyond what a seed adds to all arms, and its degrees of freedom."""
    arms, seeds = losses.shape
    left = losses - losses.mean(axis=1, keepdims=True) - losses.mean(axis=0, keepdims=True) + losses.mean()
    freedom = (arms - 1) * (seeds - 1)
    return float(np.sqrt(np.sum(left**2) / freedom / seeds)), freedom
