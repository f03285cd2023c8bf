"""Agreement of annotators beyond chance: kappa over all classes and for each class, with bootstrap intervals.

For two annotators it is Cohen's kappa (1960), for more Fleiss' (1971). Grades have quadratic weights, so similar grades
count as partial agreement: for two annotators as in Cohen (1968), for more as in Gwet (Handbook of Inter-Rater
Reliability, 2014, chapter 3). The kappa of a class compares it with all others, without weights.

The bootstrap resamples groups of documents, since documents of one host are correlated, and takes the percentiles of
the kappas. Its intervals are too narrow if one group has most of the documents: in simulations with one group of 900 to
2,000 documents and 20 to 40 small ones they covered the true kappa in 74% to 84% of the cases.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

LEVEL = 0.9
REPLICATES = 1000
MIN_DOCUMENTS = 20  # inside a class, and outside: with fewer, single documents decide a kappa
MIN_GROUPS = 10  # of these documents
MAX_CLASSES = 100
MAX_GROUP_SHARE = 0.5  # of the documents in one group; above it the intervals are too narrow
_BLOCK_SIZE = 4_000_000  # numbers of a block of replicates


class UnidentifiedError(ValueError):
    """The annotations do not identify the agreement."""


@dataclass(frozen=True)
class Kappa:
    """`value`: 1 for full agreement, 0 for agreement by chance; `low`, `high`: ends of the interval at LEVEL;
    `observed`: the weighted share of agreement, in [0, 1]; `documents`: that any annotator assigned to this class."""

    value: float
    low: float
    high: float
    observed: float
    documents: int


@dataclass(frozen=True)
class Agreement:
    """`method`: name of the statistic; `largest_group`: the share of documents in the largest group; `classes`: the
    kappa of each class, None for a class with too few documents."""

    method: str
    annotators: int
    documents: int
    groups: int
    largest_group: float
    kappa: Kappa
    classes: dict[str, Kappa | None]


def agreement(
    codes: np.ndarray,
    names: list[str],
    groups: np.ndarray,
    ordinal: np.ndarray | None = None,
    documents: np.ndarray | None = None,
) -> Agreement:
    """The agreement of annotators. `codes`: int64 (rows, annotators), the index of each annotation in `names`, the
    classes; `groups`: int64 (rows,), such as hosts; `ordinal`: the values of grades, float64 (classes,); `documents`:
    int64 (rows,), the number of documents of a group with these annotations, default 1.

    Raises UnidentifiedError if there are too few documents or groups in total, or outside the most common class.
    """
    annotators = codes.shape[1]
    groups = np.unique(groups, return_inverse=True)[1]
    documents = np.ones(len(codes), np.int64) if documents is None else documents
    _check(codes, names, groups, documents)
    patterns, of = np.unique(codes, axis=0, return_inverse=True)
    counts = _resampled(of.reshape(-1), groups, documents)
    weights = np.eye(len(names)) if ordinal is None else 1 - ((ordinal[:, None] - ordinal) / np.ptp(ordinal)) ** 2
    size = int(groups.max()) + 1
    total = int(documents.sum())
    whole = _kappa(patterns, counts, weights, size, total)
    classes: dict[str, Kappa | None] = {}
    for number, name in enumerate(names):
        own = (codes == number).any(axis=1)
        others = ~(codes == number).all(axis=1)
        is_enough = _is_enough(own, groups, documents) and _is_enough(others, groups, documents)
        binary = (patterns == number).astype(np.int64)
        classes[name] = _kappa(binary, counts, np.eye(2), size, int(documents[own].sum())) if is_enough else None
    method = "Cohen's kappa" if annotators == 2 else "Fleiss' kappa"
    method += "" if ordinal is None else " with quadratic weights"
    largest = float(np.bincount(groups, documents).max() / total)
    return Agreement(method, annotators, total, size, largest, whole, classes)


def _resampled(pattern_of: np.ndarray, groups: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """The documents of each pattern of annotations, float64 (1 + REPLICATES, patterns): the data, then the replicates.

    `pattern_of`, `groups`, `documents`: the pattern, the group (from 0) and the number of documents of each row.
    """
    draw, group_count, pattern_count = np.random.default_rng(0), int(groups.max()) + 1, int(pattern_of.max()) + 1
    counts = [np.bincount(pattern_of, documents, minlength=pattern_count)]
    for _ in range(REPLICATES):
        times = np.bincount(draw.integers(group_count, size=group_count), minlength=group_count)
        counts.append(np.bincount(pattern_of, times[groups] * documents, minlength=pattern_count))
    return np.array(counts)


def _is_enough(rows: np.ndarray, groups: np.ndarray, documents: np.ndarray) -> bool:
    return bool(documents[rows].sum() >= MIN_DOCUMENTS and len(np.unique(groups[rows])) >= MIN_GROUPS)


def _check(codes: np.ndarray, names: list[str], groups: np.ndarray, documents: np.ndarray) -> None:
    """Raise UnidentifiedError if the data do not identify kappa."""
    need = f"{MIN_DOCUMENTS} of {MIN_GROUPS} hosts are needed. Annotate more documents"
    total = int(documents.sum())
    if not total or not _is_enough(np.ones(len(codes), bool), groups, documents):
        raise UnidentifiedError(f"{total:,} documents of {len(set(groups.tolist())):,} hosts have all, and {need}")
    times = np.repeat(documents, codes.shape[1])
    common = int(np.bincount(codes.reshape(-1), times, minlength=len(names)).argmax())
    others = (codes != common).any(axis=1)
    if not others.any():
        raise UnidentifiedError(
            f"all {total:,} documents have the class {names[common]} by each annotator, so agreement by chance is "
            "full, too. Annotate documents of other classes"
        )
    if not _is_enough(others, groups, documents):
        raise UnidentifiedError(
            f"only {documents[others].sum():,} documents of {len(set(groups[others].tolist())):,} hosts have another "
            f"class than {names[common]}, and {need}"
        )


def _kappa(codes: np.ndarray, counts: np.ndarray, weights: np.ndarray, groups: int, documents: int) -> Kappa:
    """The kappa of the data, which is the first row of `counts`, with the interval from the replicates in other rows.

    Without any disagreement all replicates are equal. Then the lower end is from the lowest share of agreement at which
    no group disagrees with a probability of 5%.
    """
    agreement_of = _cohen if codes.shape[1] == 2 else _fleiss
    block = max(1, _BLOCK_SIZE // max(len(codes), len(weights) ** 2))
    pieces = [agreement_of(codes, counts[at : at + block], weights) for at in range(0, len(counts), block)]
    observed, expected = (np.concatenate(both) for both in zip(*pieces, strict=True))
    with np.errstate(divide="ignore", invalid="ignore"):
        # a replicate with one class has no kappa
        values = np.where(expected < 1 - 1e-12, (observed - expected) / (1 - expected), np.nan)
    tail = (1 - LEVEL) / 2
    low, high = np.nanquantile(values[1:], [tail, 1 - tail])
    if observed[0] == 1:
        low = (tail ** (1 / groups) - expected[0]) / (1 - expected[0])
    return Kappa(float(values[0]), float(low), float(high), float(observed[0]), documents)


_Shares = tuple[np.ndarray, np.ndarray]
"""The observed and the expected (by chance) share of agreement for each row of counts."""


def _cohen(codes: np.ndarray, counts: np.ndarray, weights: np.ndarray) -> _Shares:
    shares = counts / counts.sum(axis=1, keepdims=True)
    classes = len(weights)
    first, second = (shares @ np.eye(classes)[codes[:, at]] for at in (0, 1))
    return shares @ weights[codes[:, 0], codes[:, 1]], np.einsum("rk,kl,rl->r", first, weights, second, optimize=True)


def _fleiss(codes: np.ndarray, counts: np.ndarray, weights: np.ndarray) -> _Shares:
    shares = counts / counts.sum(axis=1, keepdims=True)
    annotators, classes = codes.shape[1], len(weights)
    by_class = np.eye(classes)[codes].sum(axis=1)  # how many annotators chose each
    pairs = np.sum(by_class * (by_class @ weights - 1), axis=1) / (annotators * (annotators - 1))
    chance = shares @ (by_class / annotators)
    return shares @ pairs, np.einsum("rk,kl,rl->r", chance, weights, chance, optimize=True)


def classes_of(columns: Sequence[Sequence[Any]]) -> tuple[np.ndarray, list[str], np.ndarray | None]:
    """Convert columns of values to `codes`, `names` and `ordinal` of `agreement`. Raises UnidentifiedError for more
    than MAX_CLASSES values."""
    values = sorted({value for column in columns for value in column})
    if len(values) > MAX_CLASSES:
        raise UnidentifiedError(
            f"there are {len(values):,} different values, and kappa is of at most {MAX_CLASSES} classes. Compare "
            "columns of grades or classes"
        )
    places = {value: number for number, value in enumerate(values)}
    codes = np.array([[places[value] for value in column] for column in columns], np.int64)
    is_number = bool(values) and not isinstance(values[0], str | bool)
    names = [
        f"{value:g}" if is_number else str(value).lower() if isinstance(value, bool) else value for value in values
    ]
    return codes.reshape(len(columns), -1).T, names, np.array(values, float) if is_number and len(values) > 1 else None
