"""What annotations of hosts that no training has seen say of a score: measures, and a cut that is chosen by a rule.

`f_beta` is the F-measure by which FinePDFs chooses the thresholds of its language classifier (with beta 0.1,
huggingface/finepdfs, thresholds/find_th.py). `min_precision` demands a precision of the lower end of its 90% interval.
Since many cuts are looked at, the precision is lower in more than the 5% of one cut: in at most 9% of simulated cases.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from pydantic import Field, model_validator
from wrapt import lazy_import

from gristmill.tasks.documents.step import Settings
from gristmill.tasks.models.classifiers import BINS
from gristmill.tasks.models.host_intervals import Estimate, at_cut, difference, ratio, roc_auc_estimate, wilson

if TYPE_CHECKING:
    from scipy import stats
else:
    stats = lazy_import("scipy.stats")

# Below these a cut follows single documents: with 10 of 20 kept the interval of a precision is .3 to .7.
MIN_DOCUMENTS = 20  # of either kind
MIN_HOSTS = 10  # that they come from
MIN_KEPT = 10


class CutError(ValueError):
    """The annotations do not identify the cut."""


class CutRule(Settings):
    """How a cut is chosen."""

    f_beta: float | None = Field(
        None,
        gt=0,
        description="Keep from the score with the highest F-measure with this beta: 1 weighs precision and recall "
        "alike, less than 1 prefers precision. FinePDFs: 0.1.",
    )
    min_precision: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Keep from the lowest score on at which the precision is at least this, at the lower end of its "
        "90% interval.",
    )

    @model_validator(mode="after")
    def _one_rule(self) -> Self:
        if (self.f_beta is None) == (self.min_precision is None):
            raise ValueError("needs one of `f_beta` and `min_precision`; give one of them")
        return self

    @property
    def name(self) -> str:
        return "min_precision" if self.f_beta is None else "f_beta"


def choose(
    rule: CutRule, good: np.ndarray, scores: np.ndarray, groups: np.ndarray, weights: np.ndarray | None = None
) -> float:
    """The lowest score that is kept. `good`: bool (n,); `scores`: float64 (n,); `groups`: int64 (n,), of documents that
    no training has seen; `weights`: how many documents each one counts as, by default one. Raises CutError, with the
    fix."""
    weights = np.ones(len(good)) if weights is None else weights
    _check(good, scores, groups, weights)
    order = np.argsort(-scores, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))  # equal scores are kept or dropped together
    ends = ends[ends + 1 >= min(MIN_KEPT, len(scores))]
    kept, hits = np.cumsum(weights[order])[ends], np.cumsum((weights * good)[order])[ends]
    if rule.f_beta is not None:
        square = rule.f_beta**2
        measure = (1 + square) * hits / (square * weights[good].sum() + kept)
        best = len(measure) - 1 - int(np.argmax(measure[::-1]))  # of equal ones the cut that keeps most
        return float(scores[order][ends[best]])
    assert rule.min_precision is not None
    low = _precision_low(good[order], groups[order], weights[order])[ends]
    passing = np.flatnonzero(low >= rule.min_precision)
    if len(passing):
        return float(scores[order][ends[passing[-1]]])
    best = int(np.argmax(low))
    count = int(ends[best]) + 1
    raise CutError(
        f"no cut is shown to have a precision of {rule.min_precision}: of {len(good):,} held-out annotations the most "
        f"certain cut keeps {count:,}, of which {good[order][:count].sum():,} are good, a precision of at "
        f"least {low[best]:.3f}. Annotate more documents, lower `min_precision`, or set `f_beta`"
    )


def _precision_low(good: np.ndarray, groups: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """For each number of first documents the lower end of the interval of the share of good ones: float64 (n,)."""
    order = np.argsort(groups, kind="stable")
    begins = np.flatnonzero(np.diff(groups[order], prepend=-1))
    sizes = np.diff(begins, append=len(order))

    def ahead_in_group(values: np.ndarray) -> np.ndarray:
        result = np.empty(len(order))
        before = np.cumsum(values[order]) - values[order]
        result[order] = before - np.repeat(before[begins], sizes)
        return result

    hit = weights * good
    ahead, hits_ahead = ahead_in_group(weights), ahead_in_group(hit)
    count = np.cumsum(weights)
    share = np.cumsum(hit) / count
    # of the groups the sums of squares and of cubes, which each document adds to
    kept2 = np.cumsum(weights * (2 * ahead + weights))
    kept3 = np.cumsum(weights * (3 * ahead * (ahead + weights) + weights**2))
    hits2 = np.cumsum(hit * (2 * hits_ahead + hit))
    both = np.cumsum((hits_ahead + hit) * (ahead + weights) - hits_ahead * ahead)
    squares = np.maximum(hits2 - 2 * share * both + share**2 * kept2, 0) / count**2
    documents = np.arange(1.0, len(good) + 1)
    return wilson(share, squares, kept2 / count**2, kept3 / count**3, documents)[0]


def _check(good: np.ndarray, scores: np.ndarray, groups: np.ndarray, weights: np.ndarray) -> None:
    counts = {
        name: (int(kind.sum()), len(np.unique(groups[kind]))) for name, kind in (("good", good), ("other", ~good))
    }
    if any(documents < MIN_DOCUMENTS or hosts < MIN_HOSTS for documents, hosts in counts.values()):
        shown = " and ".join(f"{n:,} {name} annotations of {hosts:,} hosts" for name, (n, hosts) in counts.items())
        raise CutError(
            f"a cut cannot be chosen: the held-out part has {shown}, and {MIN_DOCUMENTS} of {MIN_HOSTS} hosts are "
            "needed of each kind. Annotate documents of more hosts, raise `held_out`, or set `min_score` or `keep_top`"
        )
    area = roc_auc_estimate(good, scores, groups, weights)
    if area.low <= 0.5:
        raise CutError(
            f"a cut cannot be chosen: the score does not separate the held-out annotations, with an area under the ROC "
            f"curve of {area}. Annotate more documents, or use another `kind` or embedder"
        )


def grounds(
    good: np.ndarray, scores: np.ndarray, groups: np.ndarray, cut: float, weights: np.ndarray | None = None
) -> dict[str, Any]:
    """What is known of a cut by the held-out annotations: counts, and measures with their intervals."""
    figures = {name: each.dump() for name, each in at_cut(good, scores, groups, cut, weights).items()}
    return {
        "cut": cut,
        "annotations": len(good),
        "good": int(good.sum()),
        "kept": int((scores >= cut).sum()),
        "hosts": len(np.unique(groups)),
        **figures,
    }


def class_measures(
    good: np.ndarray,
    scores: np.ndarray,
    groups: np.ndarray,
    lengths: np.ndarray,
    cut: float,
    weights: np.ndarray | None = None,
) -> dict[str, Any]:
    """How well scores separate good documents from others, each measure with its interval: `roc_auc`; `precision`,
    `recall` and `f1` at a cut; and `length_roc_auc`, of the text's length, longer or shorter, with how much larger
    `roc_auc` is, at the lower end (`above_length`). Only `unknown`, the reason, where one kind is of fewer than
    MIN_HOSTS hosts, which are the independent examples. `lengths`: float64 (n,); `weights` as of `choose`."""
    hosts = {name: len(np.unique(groups[kind])) for name, kind in (("good", good), ("other", ~good))}
    if min(hosts.values()) < MIN_HOSTS:
        shown = " and ".join(
            f"{int(kind.sum()):,} {name} of {hosts[name]:,} hosts" for name, kind in (("good", good), ("other", ~good))
        )
        return {"unknown": f"{shown}, and {MIN_HOSTS} hosts are needed of each kind"}
    by_length = roc_auc_estimate(good, lengths, groups, weights)
    if by_length.value < 0.5:
        lengths = -lengths
        by_length = roc_auc_estimate(good, lengths, groups, weights)
    return {
        "roc_auc": roc_auc_estimate(good, scores, groups, weights).dump(),
        "length_roc_auc": by_length.dump(),
        "above_length": difference(good, scores, lengths, groups, weights),
        "at": cut,
        **{name: each.dump() for name, each in at_cut(good, scores, groups, cut, weights).items()},
    }


def reliability(
    labels: np.ndarray, scores: np.ndarray, groups: np.ndarray, weights: np.ndarray | None = None
) -> dict[str, Any]:
    """What scores mean. `reliability`: of documents in bins of the score, their number, mean score and mean label, for
    labels of 0 and 1 with the ends of its interval; `calibration_error`: the mean over documents of the difference of
    these means in their bin. Labels of 0 and 1 have 15 bins of equal width, others one for each whole number."""
    weights = np.ones(len(labels)) if weights is None else weights
    is_share = bool(np.isin(labels, (0, 1)).all())
    bins = np.minimum((scores * BINS).astype(np.int64), BINS - 1) if is_share else np.round(scores).astype(np.int64)
    rows, error = [], 0.0
    for number in np.unique(bins):
        here = bins == number
        own = weights[here]
        mean, label = (float((own * values[here]).sum() / own.sum()) for values in (scores, labels))
        error += abs(mean - label) * (own.sum() / weights.sum())
        row = {"documents": int(here.sum()), "score": mean, "label": label}
        if is_share:
            share = ratio(own * labels[here], own, np.unique(groups[here], return_inverse=True)[1])
            row |= {"low": share.low, "high": share.high}
        rows.append(row)
    return {"calibration_error": float(error), "reliability": rows}


def grade_measures(labels: np.ndarray, scores: np.ndarray, weights: np.ndarray | None = None) -> dict[str, float]:
    """`pearson`, `spearman` and `rmse` of scores that estimate labels; without the first two where either is the same
    for all. A weight counts as that many documents in the ranks."""
    counts = np.ones(len(labels)) if weights is None else weights
    figures = {"rmse": float(np.sqrt((counts * (labels - scores) ** 2).sum() / counts.sum()))}
    if not np.ptp(labels) or not np.ptp(scores):
        return figures
    if weights is None:
        figures["pearson"] = float(stats.pearsonr(labels, scores).statistic)
        figures["spearman"] = float(stats.spearmanr(labels, scores).statistic)
    else:
        figures["pearson"] = _correlation(labels, scores, counts)
        figures["spearman"] = _correlation(_ranks(labels, counts), _ranks(scores, counts), counts)
    return figures


def _correlation(first: np.ndarray, second: np.ndarray, weights: np.ndarray) -> float:
    covariance = np.cov(first, second, aweights=weights)
    return float(covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1]))


def _ranks(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The weight of all documents below each one, and half of the weight of its equals."""
    places, inverse = np.unique(values, return_inverse=True)
    of_value = np.bincount(inverse, weights, minlength=len(places))
    return (np.cumsum(of_value) - of_value / 2)[inverse]


def described_measures(figures: Mapping[str, Any]) -> str:
    """A line for the log about a model and its measures, as the record of its training has them."""
    line = (
        f"learned from {figures['training']:,} annotations of {figures['training_hosts']:,} hosts, measured on "
        f"{figures['held_out']:,} of {figures['held_out_hosts']:,} other hosts: "
    )
    if "roc_auc" not in figures:
        of_grades = ", ".join(f"{name} {figures[name]:.3f}" for name in ("spearman", "rmse") if name in figures)
        why = f"separation is unknown: {figures['unknown']}" if "unknown" in figures else ""
        return line + "; ".join(filter(None, (of_grades, why)))
    line += f"roc_auc {Estimate(*figures['roc_auc'])}, of the text's length {Estimate(*figures['length_roc_auc'])}"
    if figures["above_length"] <= 0:
        line += "; the model is not shown to be better than the length: annotate more documents"
    return line


def described_cut(figures: Mapping[str, Any]) -> str:
    """A line for the log about a cut, as `grounds` has it."""
    measures = [f"{name} {Estimate(*figures[name])}" for name in ("precision", "recall", "f1") if name in figures]
    return (
        f"keeps scores from {figures['cut']:.4g}, and of {figures['annotations']:,} held-out annotations of "
        f"{figures['hosts']:,} hosts {figures['kept']:,}: {', '.join(measures)}"
    )
