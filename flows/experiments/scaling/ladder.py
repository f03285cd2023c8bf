"""A ladder of sizes: from which size on do small models rank recipes as the largest do, and by which measure?

Pairs of recipes are counted as in DataDecide (Magnusson et al. 2025, arXiv 2504.11393): the share of pairs whose order
is the same at both sizes (`rank_agreement`). Two recipes that are equally good keep their order half of the time,
whatever the sizes, so `RankAgreement.counted` also counts only the pairs that the small models can distinguish, and
only those that both sizes can.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from scipy.stats import kendalltau, t

from gristmill.flows.reports import pages
from gristmill.flows.reports.tables import Table

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
        raise ValueError("an arm has one run, so its noise is unknown; use 2 seeds or more at each size")
    result = kendalltau(small.mean(axis=1), large.mean(axis=1))
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
    return RankAgreement(float(result.statistic), float(result.pvalue), pairs, _accuracy(small, large))


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
    residuals = losses - losses.mean(axis=1, keepdims=True) - losses.mean(axis=0, keepdims=True) + losses.mean()
    freedom = (arms - 1) * (seeds - 1)
    return float(np.sqrt(np.sum(residuals**2) / freedom / seeds)), freedom


JUDGED = "judged"  # the measure of a decision: the mean over the sets that judge
ERROR = "error:"  # begins the name of a measure: the share of a task's examples that are answered wrong


@dataclass(frozen=True, repr=False)
class AgreementReport:
    """Whether recipes keep their order from smaller sizes to the largest.

    `parameters`, `tokens`: of the runs at each size, parameters rising. `losses`: by measure, float64 (sizes, arms,
    seeds): bits per byte of JUDGED and of each evaluation set by itself, wrong answers of each task (ERROR). The order
    that counts is that of the largest models by JUDGED. `judged`: the sets that judge."""

    recipe: str
    arms: tuple[str, ...]
    parameters: tuple[int, ...]
    tokens: tuple[int, ...]
    losses: dict[str, np.ndarray]
    judged: tuple[str, ...]

    @cached_property
    def agreements(self) -> dict[str, list[RankAgreement]]:
        """By measure, that of each size but the largest, with the largest."""
        target = self.losses[JUDGED][-1]
        return {name: [rank_agreement(size, target) for size in sizes[:-1]] for name, sizes in self.losses.items()}

    def smallest(self, measure: str = JUDGED) -> int | None:
        """The parameters of the smallest size from which on no pair of recipes that both it and the largest tell apart
        changes its order, and some pair is told apart by both; None if there is none."""
        size = None
        for parameters, agreement in zip(
            reversed(self.parameters[:-1]), reversed(self.agreements[measure]), strict=True
        ):
            same, pairs = agreement.counted(small=True, large=True)
            if not pairs or same < pairs:
                break
            size = parameters
        return size

    @property
    def sentence(self) -> str:
        """What was found by the measure of a decision, as one sentence."""
        least, most = self.parameters[0], self.parameters[-1]
        first = self.agreements[JUDGED][0]
        low, share, high = first.accuracy
        both, sure = first.counted(small=True, large=True)
        size = self.smallest()
        which = f"the smallest size that agrees is {size:,} parameters" if size else "no smaller size agrees"
        return (
            f"by bits per byte of {', '.join(self.judged)}, models of {least:,} parameters order {share:.0%} "
            f"of the pairs of {len(self.arms)} recipes in the same way as models of {most:,} (90% interval "
            f"{low:.0%} to {high:.0%}, Kendall's tau {first.tau:.2f}, p {first.p_value:.3f}); of the {sure} "
            f"pairs that differ significantly at both sizes {both}; {which}"
        )

    def _repr_html_(self) -> str:
        return pages.notebook([self.sentence], [*self.tables()])

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row for each measure and size but the largest."""
        for measure, agreements in self.agreements.items():
            for parameters, tokens, one in zip(self.parameters, self.tokens, agreements, strict=False):
                low, share, high = one.accuracy
                same, pairs = one.counted(small=True, large=True)
                yield {
                    "measure": measure,
                    "parameters": parameters,
                    "tokens": tokens,
                    "accuracy": share,
                    "low": low,
                    "high": high,
                    "tau": one.tau,
                    "told_apart": pairs,
                    "same": same,
                }

    def arm_rows(self) -> Iterator[dict[str, Any]]:
        """A row for each arm, the best of the largest models first: its mean loss and its rank at each size."""
        means = self.losses[JUDGED].mean(axis=2)
        ranks = 1 + means.argsort(axis=1).argsort(axis=1)
        for index in means[-1].argsort(kind="stable"):
            yield {"arm": self.arms[index], "losses": means[:, index].tolist(), "ranks": ranks[:, index].tolist()}

    def tables(self) -> Iterator[Table]:
        """The recipes with their losses and ranks, and how often each measure of each size agrees."""
        shown = [
            (row["arm"], *(f"{loss:.4f} ({rank})" for loss, rank in zip(row["losses"], row["ranks"], strict=True)))
            for row in self.arm_rows()
        ]
        yield Table(("recipe", *(f"#{count:,} parameters" for count in self.parameters)), shown)
        columns = ("measure", "#parameters", "#pairs in the same order as the largest|.0%", "#90% interval|.0%")
        shown = [
            (row["measure"], row["parameters"], row["accuracy"], (row["low"], row["high"]), row["told_apart"],
             row["same"])
            for row in self.rows()
        ]  # fmt: skip
        yield Table((*columns, "#clear at both", "#of these in the same order"), shown)

    def as_json(self) -> dict[str, Any]:
        largest = zip(self.parameters, self.agreements[JUDGED], strict=False)
        return {
            "recipe": self.recipe,
            "judged": list(self.judged),
            "parameters": list(self.parameters),
            "tokens": list(self.tokens),
            "smallest": {measure: self.smallest(measure) for measure in self.losses},
            "measures": list(self.rows()),
            "arms": list(self.arm_rows()),
            "losses": {measure: losses.tolist() for measure, losses in self.losses.items()},
            "pairs": [
                asdict(pair)
                | {
                    "parameters": parameters,
                    "arms": [self.arms[number] for number in pair.arms],
                    "same": pair.same,
                    "told_apart": pair.told_apart,
                }
                for parameters, agreement in largest
                for pair in agreement.pairs
            ],
        }
