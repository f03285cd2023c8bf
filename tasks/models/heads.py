"""Heads: small models on the vectors of an embedder, as safetensors with a description of what made them.

A file has `weight`, float64 (dimension,), and `bias`, float64 (1,). Its metadata has one entry, `gristmill_head`: JSON
with the `kind`, the `embedder` whose vectors it reads, what it was trained on and how good it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa
from safetensors import safe_open
from safetensors.numpy import save
from wrapt import lazy_import

from gristmill.storage import files
from gristmill.storage.damage import RecordedFile, opening
from gristmill.tasks.documents.selection import uniform
from gristmill.tasks.models.classifiers import measures
from gristmill.tasks.models.model_files import ModelFileError

if TYPE_CHECKING:
    import threadpoolctl
    from scipy import stats
    from sklearn import linear_model, metrics
else:
    stats = lazy_import("scipy.stats")
    linear_model = lazy_import("sklearn.linear_model")
    metrics = lazy_import("sklearn.metrics")
    threadpoolctl = lazy_import("threadpoolctl")

FOLDS = 5
# From next to nothing to next to all, for vectors of length 1 and up to a million labels.
PENALTIES = tuple(10.0**power for power in range(-3, 5))
_SEED = 1
_MAX_GRADES = 20  # of which a confusion matrix is made


def train(
    kind: str, ids: pa.ChunkedArray, vectors: np.ndarray, labels: np.ndarray, penalty: float | None
) -> tuple[np.ndarray, float, dict[str, Any], np.ndarray]:
    """The weight, float64 (dimension,), and the bias of a head, with `penalty` and what was measured; and of each
    example its label and its score by the head that has not seen its fold, float64 (n, 2).

    `kind`: `ridge`, a regression on numbers, or `logistic`, on labels of 0 and 1. `ids`: strings, by which the examples
    fall into folds; examples of one id are in one fold, and the order of the rows changes nothing. `vectors`: float16
    (n, dimension); `labels`: float64 (n,). `penalty`: of the squared weights; None: the one of PENALTIES with the least
    error in cross-validation, whose figures are then as good as the best of eight. The head learns from all examples.

    One thread, so that the number of processors changes nothing. Holds the vectors as 64-bit floats. Raises ValueError
    for labels that are not finite, or too few, or all alike.
    """
    order = np.lexsort((labels, uniform(ids, _SEED, "head-order")))
    vectors, labels = vectors[order].astype(np.float64), labels[order]
    folds = np.floor(uniform(ids, _SEED, "head-fold") * FOLDS).astype(np.int64)[order]
    _check(labels, folds)
    with threadpoolctl.threadpool_limits(1):
        tried = {one: _unseen(kind, vectors, labels, folds, one) for one in ((penalty,) if penalty else PENALTIES)}
        best = min(tried, key=lambda one: _error(kind, labels, tried[one]))
        weight, bias = _fit(kind, vectors, labels, best)
        quality = _of_grades(labels, tried[best]) if kind == "ridge" else _of_kinds(labels == 1, tried[best])
    return weight, bias, {"penalty": best, "folds": FOLDS, **quality}, np.stack([labels, tried[best]], axis=1)


def _check(labels: np.ndarray, folds: np.ndarray) -> None:
    if not np.isfinite(labels).all():
        raise ValueError("a label is not a finite number; remove its row")
    for number in range(FOLDS):
        train_labels = labels[folds != number]
        if len(train_labels) < 2 or train_labels.min() == train_labels.max() or not (folds == number).any():
            raise ValueError(
                f"a head learns from labels that differ, and is measured in {FOLDS} folds, but of {len(labels)} labels "
                "one fold leaves none, or all alike: give more"
            )


def _fit(kind: str, vectors: np.ndarray, labels: np.ndarray, penalty: float) -> tuple[np.ndarray, float]:
    if kind == "ridge":
        fitted = linear_model.Ridge(alpha=penalty, solver="cholesky").fit(vectors, labels)
        return fitted.coef_, float(fitted.intercept_)
    fitted = linear_model.LogisticRegression(C=1 / penalty, max_iter=10_000, tol=1e-8).fit(
        vectors, labels.astype(np.int64)
    )
    return fitted.coef_[0], float(fitted.intercept_[0])


def _unseen(kind: str, vectors: np.ndarray, labels: np.ndarray, folds: np.ndarray, penalty: float) -> np.ndarray:
    """The score of each example by the head that has not seen its fold."""
    predictions = np.empty(len(labels))
    for number in range(FOLDS):
        there = folds == number
        weight, bias = _fit(kind, vectors[~there], labels[~there], penalty)
        predictions[there] = vectors[there] @ weight + bias
    return predictions if kind == "ridge" else 1 / (1 + np.exp(-np.clip(predictions, -700, 700)))


def _error(kind: str, labels: np.ndarray, scores: np.ndarray) -> float:
    return float(metrics.mean_squared_error(labels, scores) if kind == "ridge" else metrics.log_loss(labels, scores))


def _of_grades(labels: np.ndarray, scores: np.ndarray) -> dict[str, Any]:
    """Correlations; and where the labels are a few whole numbers, as of scores that are rounded and within their range
    (as fineweb-edu-classifier does): the mean of the classes' F1, F1 of `label or more` by each label but the lowest,
    and the confusion matrix, labels by rounded scores."""
    quality: dict[str, Any] = {
        "tested": len(labels),
        "pearson": float(stats.pearsonr(labels, scores).statistic),
        "spearman": float(stats.spearmanr(labels, scores).statistic),
        "rmse": float(np.sqrt(metrics.mean_squared_error(labels, scores))),
    }
    grades = np.unique(labels)
    if (grades == np.round(grades)).all() and grades[-1] - grades[0] < _MAX_GRADES:
        true, rounded = labels.astype(int), np.clip(np.round(scores), grades[0], grades[-1]).astype(int)
        names = list(range(int(grades[0]), int(grades[-1]) + 1))
        quality["macro_f1"] = float(
            metrics.f1_score(true, rounded, labels=grades.astype(int), average="macro", zero_division=0)
        )
        quality["f1_from"] = {
            str(name): float(metrics.f1_score(true >= name, rounded >= name, zero_division=0)) for name in names[1:]
        }
        quality["labels"] = names
        quality["confusion"] = metrics.confusion_matrix(true, rounded, labels=names).tolist()
    return quality


def _of_kinds(good: np.ndarray, scores: np.ndarray) -> dict[str, Any]:
    """How well probabilities separate; F1 and the confusion matrix at one half."""
    is_accepted = scores >= 0.5
    return {
        **measures(good, scores),
        "f1": float(metrics.f1_score(good, is_accepted, zero_division=0)),
        "labels": [0, 1],
        "confusion": metrics.confusion_matrix(good, is_accepted, labels=[False, True]).tolist(),
    }


_ENTRY = "gristmill_head"
_KINDS = ("ridge", "logistic")
_ROWS = 1 << 12  # whose scores are computed at once


@dataclass(frozen=True)
class Head:
    """`kind`: ridge, whose score is `vector · weight + bias`, or logistic, whose score is the logistic function of it.
    `embedder`: the digests `model` and `tokenizer` of its files, and the settings that decide its vectors."""

    kind: str
    weight: np.ndarray
    bias: float
    embedder: Mapping[str, Any]
    found: Mapping[str, Any]


def write(path: str, head: Head) -> None:
    """Write a head. The same head gives the same bytes."""
    described = {"kind": head.kind, "embedder": dict(head.embedder), **head.found}
    metadata = {_ENTRY: orjson.dumps(described, option=orjson.OPT_SORT_KEYS).decode()}
    files.write_bytes(path, save({"bias": np.array([head.bias]), "weight": head.weight}, metadata))


@lru_cache(16)
def load(file: RecordedFile) -> Head:
    """Raises ModelFileError for a file that is not a complete head; FileNotFoundError, and DamagedFileError."""
    local = file.local()
    with (
        opening(file.path, "head", "copy it again, or train it with `gristmill train head`", ModelFileError),
        safe_open(local, "numpy") as tensors,
    ):
        described = orjson.loads((tensors.metadata() or {})[_ENTRY])
        kind, embedder = described.pop("kind"), described.pop("embedder")
        weight, bias = tensors.get_tensor("weight"), tensors.get_tensor("bias")
        shapes = weight.ndim, bias.shape
    sound = shapes == (1, (1,)) and weight.dtype == bias.dtype == np.float64 and isinstance(embedder, dict)
    if not sound or kind not in _KINDS or not (np.isfinite(weight).all() and np.isfinite(bias).all()):
        raise ModelFileError(f"{file.path} is not a head of a known form; train it with `gristmill train head`")
    return Head(kind, weight, float(bias[0]), embedder, described)


def check_fits(path: str, head: Head, embedder: Mapping[str, Any], dimension: int) -> None:
    """Raise ModelFileError for a head that was trained on the vectors of another embedder, by other settings, or on
    longer or shorter ones."""
    for name, expected in head.embedder.items():
        if (actual := embedder.get(name)) == expected:
            continue
        if name in ("model", "tokenizer"):
            raise ModelFileError(
                f"{path} was trained on vectors of another {name}; set `model` to the folder of that "
                "embedder, or train the head again with `gristmill train head`"
            )
        raise ModelFileError(
            f"{path} was trained with {name} {expected!r}, but the step has {actual!r}; write `{name}: "
            f"{orjson.dumps(expected).decode()}`"
        )
    if len(head.weight) != dimension:
        raise ModelFileError(
            f"{path} has {len(head.weight)} weights for vectors of {dimension} numbers; train the head again"
        )


def scores(head: Head, vectors: np.ndarray) -> np.ndarray:
    """The score of each vector: float64 (n,), of float16 (n, dimension). Other rows change no bit of it.

    A matrix product by BLAS sums otherwise for other numbers of rows; numpy's sum along a row does not.
    """
    logits = np.empty(len(vectors))
    for start in range(0, len(vectors), _ROWS):
        some = vectors[start : start + _ROWS].astype(np.float64)
        logits[start : start + _ROWS] = np.sum(np.multiply(some, head.weight, order="C"), axis=1)
    logits += head.bias
    if head.kind == "ridge":
        return logits
    # of the negative magnitude, so that nothing overflows
    small = np.exp(-np.abs(logits))
    return np.where(logits >= 0, 1 / (1 + small), small / (1 + small))
