"""How well probabilities separate labels, and how far they are from the shares that they claim."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from wrapt import lazy_import

if TYPE_CHECKING:
    from sklearn import metrics
else:
    metrics = lazy_import("sklearn.metrics")

# Guo et al. 2017, On Calibration of Modern Neural Networks: 15 bins of equal width
BINS = 15


def measures(good: np.ndarray, scores: np.ndarray) -> dict[str, float | int]:
    """`roc_auc`, `average_precision`, `accuracy` at 0.5 and `calibration_error` (expected, in BINS bins) of the scores,
    float64 (n,) in [0, 1], of documents that are good examples or not, bool (n,) with both of them."""
    return {
        "tested": len(good),
        "roc_auc": float(metrics.roc_auc_score(good, scores)),
        "average_precision": float(metrics.average_precision_score(good, scores)),
        "accuracy": float(np.mean((scores >= 0.5) == good)),
        "calibration_error": calibration_error(good, scores),
    }


def label_measures(labels: np.ndarray, scores: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
    """`accuracy`, `macro_f1` (the mean of all labels' F1) and `calibration_error` (of the most probable label) of the
    probabilities, float64 (n, labels), of documents whose labels are at `labels`, int64 (n,), in `names`; `by_label`:
    of each the `examples`, `precision`, `recall` and `f1`; `confusion`: of the documents of each label, in the order of
    `by_label`, how many were given each. Of equal probabilities the first in `names` is the most probable."""
    predictions = scores.argmax(axis=1)
    right = predictions == labels
    of_labels = metrics.precision_recall_fscore_support(labels, predictions, labels=range(len(names)), zero_division=0)
    by_label = {
        name: {"examples": int(count), "precision": float(precision), "recall": float(recall), "f1": float(f1)}
        for name, precision, recall, f1, count in zip(names, *of_labels, strict=True)
    }
    return {
        "tested": len(labels),
        "accuracy": float(right.mean()),
        "macro_f1": float(np.mean([each["f1"] for each in by_label.values()])),
        "calibration_error": calibration_error(right, scores.max(axis=1)),
        "by_label": by_label,
        "confusion": metrics.confusion_matrix(labels, predictions, labels=range(len(names))).tolist(),
    }


def calibration(good: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Documents, mean score and share of good ones in each bin that has documents."""
    bins = np.minimum((scores * BINS).astype(np.int64), BINS - 1)
    count = np.bincount(bins, minlength=BINS)
    there = count > 0
    mean, share = (np.bincount(bins, weights=each, minlength=BINS)[there] / count[there] for each in (scores, good))
    return count[there], mean, share


def calibration_error(good: np.ndarray, scores: np.ndarray) -> float:
    """The expected calibration error: the mean over documents of |share of good ones - mean score| of their bin."""
    count, mean, share = calibration(good, scores)
    return float(np.average(np.abs(share - mean), weights=count))
