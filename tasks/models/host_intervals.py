"""Measures of scores against labels with 90% intervals, for documents in groups: documents of one host are alike.

A measure is linearized: each document has a deviation, and their sum is its error. Deviations are added up by group
before they are squared (Cochran 1977, section 6.3; for the area under the ROC curve, DeLong et al. 1988 with the groups
of Obuchowski 1997). Sums of squares are divided by their expectation where a group moves all its documents alike (Bell
and McCaffrey 2002), as `gristmill.flows.stats.crossed` does. An interval is Wilson's for the number of independent
documents that have this variance, with Student's t (Dean and Pagano 2015): it does not leave [0, 1], and has a width
where no document is wrong.

Documents of a sample that are not drawn with equal probability have weights, their inverse probabilities (Horvitz and
Thompson 1952). A document with a weight counts as that many documents, but its error is one error.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from wrapt import lazy_import

if TYPE_CHECKING:
    from scipy import special
else:
    special = lazy_import("scipy.special")

LEVEL = 0.9


@dataclass(frozen=True)
class Estimate:
    """A measure in [0, 1] with the ends of its interval, at LEVEL."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"

    def dump(self) -> list[float]:
        """For records of jobs, which are JSON."""
        return [self.value, self.low, self.high]


def group_numbers(names: np.ndarray) -> np.ndarray:
    """The number of each name among the distinct ones: int64 (n,)."""
    return np.unique(names, return_inverse=True)[1].astype(np.int64)


def estimate(value: float, deviations: np.ndarray, sizes: np.ndarray, groups: np.ndarray) -> Estimate:
    """A measure of documents with its interval. `deviations`: float64 (n,), whose sum is the error; `sizes`: what each
    document counts in the measure, float64 (n,), not negative; `groups`: int64 (n,)."""
    sums, shares = np.bincount(groups, deviations), np.bincount(groups, sizes) / sizes.sum()
    low, high = wilson(value, np.sum(sums**2), np.sum(shares**2), np.sum(shares**3), np.count_nonzero(sizes))
    return Estimate(value, float(low), float(high))


def wilson(value: Any, squares: Any, share_squares: Any, share_cubes: Any, documents: Any) -> tuple[Any, Any]:
    """The ends of the interval of a measure, or of an array of them. `squares`: of the groups' sums of deviations;
    `share_squares`, `share_cubes`: of the groups' shares; `documents`: how many count, which is the most independent
    ones that are supposed. (0, 1) where the groups are not worth two of one size."""
    value, squares = np.asarray(value, np.float64), np.asarray(squares, np.float64)
    n_groups = 1 / np.asarray(share_squares, np.float64)  # of one size that would have these shares
    usable = n_groups > 1 + 1e-9
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = squares / (1 + share_squares - 2 * share_cubes / share_squares)
        independent = np.where(squares > 0, value * (1 - value) / variance, n_groups)
        independent = np.minimum(np.where(usable, independent, 1.0), documents)
        t2 = special.stdtrit(np.where(usable, n_groups - 1, 1.0), (1 + LEVEL) / 2) ** 2 / independent
        middle = (value + t2 / 2) / (1 + t2)
        half = np.sqrt(value * (1 - value) * t2 + t2**2 / 4) / (1 + t2)
    return np.where(usable, np.maximum(middle - half, 0), 0.0), np.where(usable, np.minimum(middle + half, 1), 1.0)


def roc_auc(good: np.ndarray, scores: np.ndarray, weights: np.ndarray | None = None) -> tuple[float, np.ndarray]:
    """The area under the ROC curve, and the deviation of each document: float64 (n,). `good`: bool (n,), with both;
    `weights`: how many documents each one counts as, float64 (n,), by default one."""
    weights = np.ones(len(good)) if weights is None else weights
    deviations = np.empty(len(good))
    area = 0.0
    for own in (True, False):
        mine, order = scores[good == own], np.argsort(scores[good != own], kind="stable")
        others = scores[good != own][order]
        ahead = np.concatenate([[0.0], np.cumsum(weights[good != own][order])])
        below = (ahead[np.searchsorted(others, mine, "left")] + ahead[np.searchsorted(others, mine, "right")]) / 2
        wins = below / ahead[-1] if own else 1 - below / ahead[-1]
        counts = weights[good == own]
        area = float((counts * wins).sum() / counts.sum())
        deviations[good == own] = counts * (wins - area) / counts.sum()
    return area, deviations


def roc_auc_estimate(
    good: np.ndarray, scores: np.ndarray, groups: np.ndarray, weights: np.ndarray | None = None
) -> Estimate:
    """The area under the ROC curve with its interval."""
    return auc_estimate(*roc_auc(good, scores, weights), good, groups, weights)


def auc_estimate(
    area: float, deviations: np.ndarray, good: np.ndarray, groups: np.ndarray, weights: np.ndarray | None = None
) -> Estimate:
    """An area under the ROC curve with its interval."""
    return estimate(area, deviations, _class_sizes(good, weights), groups)


def roc_auc_of_folds(good: np.ndarray, scores: np.ndarray, folds: np.ndarray) -> tuple[float, np.ndarray]:
    """`roc_auc` of pairs within a fold, whose scores are of one model. Models of other folds are not as sure as
    each other, and have seen fewer good documents where more are left out: between folds good documents are then below
    others. `folds`: int64 (n,)."""
    area, deviations, pairs = 0.0, np.zeros(len(good)), 0
    for number in np.unique(folds):
        here = folds == number
        weight = int(good[here].sum()) * int((~good[here]).sum())
        if weight:
            of_fold, own = roc_auc(good[here], scores[here])
            area, pairs = area + weight * of_fold, pairs + weight
            deviations[here] = weight * own
    if not pairs:
        raise ValueError("no part of the examples has both good and bad ones; add examples")
    return area / pairs, deviations / pairs


def difference(
    good: np.ndarray, scores: np.ndarray, others: np.ndarray, groups: np.ndarray, weights: np.ndarray | None = None
) -> float:
    """How much larger the area under the ROC curve of `scores` is than the area of `others`, at the lower end of the
    interval."""
    (area, first), (other, second) = roc_auc(good, scores, weights), roc_auc(good, others, weights)
    return area - other - auc_half_width(first - second, good, groups, weights)


def auc_half_width(
    deviations: np.ndarray, good: np.ndarray, groups: np.ndarray, weights: np.ndarray | None = None
) -> float:
    """Half of the width of the interval of a difference of two areas; 1 where the groups are not worth two."""
    sizes = _class_sizes(good, weights)
    shares = np.bincount(groups, sizes) / sizes.sum()
    squares, cubes = np.sum(shares**2), np.sum(shares**3)
    if squares > 1 - 1e-9:
        return 1.0
    variance = np.sum(np.bincount(groups, deviations) ** 2) / (1 + squares - 2 * cubes / squares)
    return float(special.stdtrit(1 / squares - 1, (1 + LEVEL) / 2) * np.sqrt(variance))


def _class_sizes(good: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Each document's share of its class."""
    weights = np.ones(len(good)) if weights is None else weights
    classes = np.where(good, weights[good].sum() or 1.0, weights[~good].sum() or 1.0)
    return weights / classes


def at_cut(
    good: np.ndarray, scores: np.ndarray, groups: np.ndarray, cut: float, weights: np.ndarray | None = None
) -> Mapping[str, Estimate]:
    """`precision`, `recall` and `f1` of documents that are kept by a score of at least `cut`; without the first where
    none is kept, and without the second where none is good."""
    counts = np.ones(len(good)) if weights is None else weights
    kept, true = counts * (scores >= cut), counts * good
    hits = kept * good
    ratios = {"precision": (hits, kept), "recall": (hits, true), "f1": (2 * hits, kept + true)}
    return {name: ratio(part, whole, groups) for name, (part, whole) in ratios.items() if whole.any()}


def ratio(counts: np.ndarray, sizes: np.ndarray, groups: np.ndarray) -> Estimate:
    """The sum of `counts` divided by the sum of `sizes`, both float64 (n,)."""
    total = sizes.sum()
    value = float(counts.sum() / total)
    return estimate(value, (counts - value * sizes) / total, sizes, groups)
