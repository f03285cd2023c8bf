"""How well probabilities separate two labels, and how far they are from the shares that they claim."""

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

# Guo et al. 2017, On Calibration of Modern Neural Networks: 15 bins of equal width
BINS = 15


def measures(good: np.ndarray, scores: np.ndarray) -> dict[str, float | int]:
    """`roc_auc`, `average_precision`, `accuracy` at 0.5 and `calibration_error` (expected, in BINS bins) of the scores,
    float64 (n,) in [0, 1], of documents that are good examples or not, bool (n,) with both of them."""
    return {
        "tested": len(good),
        "roc_auc": float(roc_auc_score(good, scores)),
        "average_precision": float(average_precision_score(good, scores)),
        "accuracy": float(np.mean((scores >= 0.5) == good)),
        "calibration_error": calibration_error(good, scores),
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
