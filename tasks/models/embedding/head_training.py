"""Heads trained on vectors with labels, and measured by cross-validation: each label by a head that has not seen it."""

from typing import Any

import numpy as np
import pyarrow as pa
from scipy.stats import pearsonr, spearmanr
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import confusion_matrix, f1_score, log_loss, mean_squared_error
from threadpoolctl import threadpool_limits

from gristmill.tasks.documents.sampling import uniform
from gristmill.tasks.models.classifier.measures import measures

FOLDS = 5
# From next to nothing to next to all, for vectors of length 1 and up to a million labels.
PENALTIES = tuple(10.0**power for power in range(-3, 5))
_SEED = 1
_MOST_GRADES = 20  # of which a confusion matrix is made


def train(
    kind: str, ids: pa.ChunkedArray, vectors: np.ndarray, labels: np.ndarray, penalty: float | None
) -> tuple[np.ndarray, float, dict[str, Any], np.ndarray]:
    """The weight, float64 (dimension,), and the bias of a head, with `penalty` and what was measured; and of each
    example its label and its score by the head that has not seen its fold, float64 (n, 2).

    `kind`: `ridge`, a regression on numbers, or `logistic`, on labels of 0 and 1. `ids`: strings, by which the examples
    fall into folds; examples of one id are in one fold, and the order of the rows changes nothing. `vectors`: float16
    (n, dimension); `labels`: float64 (n,). `penalty`: of the squared weights; None: that of PENALTIES with the least
    error in cross-validation, whose figures are then as good as the best of eight. The head learns from all examples.

    One thread, so that the number of processors changes nothing. Holds the vectors as 64-bit floats. Raises ValueError
    for labels that are not finite, or too few, or all alike.
    """
    order = np.lexsort((labels, uniform(ids, _SEED, "head-order")))
    vectors, labels = vectors[order].astype(np.float64), labels[order]
    folds = np.floor(uniform(ids, _SEED, "head-fold") * FOLDS).astype(np.int64)[order]
    _check(labels, folds)
    with threadpool_limits(1):
        tried = {one: _unseen(kind, vectors, labels, folds, one) for one in ((penalty,) if penalty else PENALTIES)}
        best = min(tried, key=lambda one: _error(kind, labels, tried[one]))
        weight, bias = _fit(kind, vectors, labels, best)
        found = _of_grades(labels, tried[best]) if kind == "ridge" else _of_kinds(labels == 1, tried[best])
    return weight, bias, {"penalty": best, "folds": FOLDS, **found}, np.stack([labels, tried[best]], axis=1)


def _check(labels: np.ndarray, folds: np.ndarray) -> None:
    if not np.isfinite(labels).all():
        raise ValueError("a label is not a finite number; leave its row out")
    for number in range(FOLDS):
        seen = labels[folds != number]
        if len(seen) < 2 or seen.min() == seen.max() or not (folds == number).any():
            raise ValueError(
                f"a head learns from labels that differ, and is measured in {FOLDS} folds, but of {len(labels)} labels "
                "one fold leaves none, or all alike: give more"
            )


def _fit(kind: str, vectors: np.ndarray, labels: np.ndarray, penalty: float) -> tuple[np.ndarray, float]:
    if kind == "ridge":
        fitted = Ridge(alpha=penalty, solver="cholesky").fit(vectors, labels)
        return fitted.coef_, float(fitted.intercept_)
    fitted = LogisticRegression(C=1 / penalty, max_iter=10_000, tol=1e-8).fit(vectors, labels.astype(np.int64))
    return fitted.coef_[0], float(fitted.intercept_[0])


def _unseen(kind: str, vectors: np.ndarray, labels: np.ndarray, folds: np.ndarray, penalty: float) -> np.ndarray:
    """The score of each example by the head that has not seen its fold."""
    found = np.empty(len(labels))
    for number in range(FOLDS):
        there = folds == number
        weight, bias = _fit(kind, vectors[~there], labels[~there], penalty)
        found[there] = vectors[there] @ weight + bias
    return found if kind == "ridge" else 1 / (1 + np.exp(-np.clip(found, -700, 700)))


def _error(kind: str, labels: np.ndarray, scores: np.ndarray) -> float:
    return float(mean_squared_error(labels, scores) if kind == "ridge" else log_loss(labels, scores))


def _of_grades(labels: np.ndarray, scores: np.ndarray) -> dict[str, Any]:
    """Correlations; and where the labels are a few whole numbers, as of scores that are rounded and within their range
    (as fineweb-edu-classifier does): the mean of the classes' F1, F1 of `label or more` by each label but the lowest,
    and the confusion matrix, labels by rounded scores."""
    found: dict[str, Any] = {
        "tested": len(labels),
        "pearson": float(pearsonr(labels, scores).statistic),
        "spearman": float(spearmanr(labels, scores).statistic),
        "rmse": float(np.sqrt(mean_squared_error(labels, scores))),
    }
    grades = np.unique(labels)
    if (grades == np.round(grades)).all() and grades[-1] - grades[0] < _MOST_GRADES:
        true, rounded = labels.astype(int), np.clip(np.round(scores), grades[0], grades[-1]).astype(int)
        names = list(range(int(grades[0]), int(grades[-1]) + 1))
        found["macro_f1"] = float(f1_score(true, rounded, labels=grades.astype(int), average="macro", zero_division=0))
        found["f1_from"] = {
            str(name): float(f1_score(true >= name, rounded >= name, zero_division=0)) for name in names[1:]
        }
        found["labels"] = names
        found["confusion"] = confusion_matrix(true, rounded, labels=names).tolist()
    return found


def _of_kinds(good: np.ndarray, scores: np.ndarray) -> dict[str, Any]:
    """How well probabilities separate; F1 and the confusion matrix at one half."""
    taken = scores >= 0.5
    return {
        **measures(good, scores),
        "f1": float(f1_score(good, taken, zero_division=0)),
        "labels": [0, 1],
        "confusion": confusion_matrix(good, taken, labels=[False, True]).tolist(),
    }
