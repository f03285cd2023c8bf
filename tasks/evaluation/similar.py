"""Texts that are like one of a few given ones: all pairs of a Jaccard similarity of at least a threshold, no other.

Unlike MinHash this misses none, which a held-out set needs; it is quick because the given texts are few. A set A is
like B with J(A, B) >= t only if they share at least t |B| shingles, so A has at least one of any
|B| - ceil(t |B|) + 1 of B's: of each B so many are looked up, the rarest (prefix filter; Chaudhuri, Ganti and Kaushik
2006, "A primitive operator for similarity joins in data cleaning"). What is found is compared in full.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tasks.dedup.near.settings import Shingling
from tasks.dedup.near.sign import shingle_sets

_ROUNDING = 1e-9  # of t |B|, which may lie above a whole number by the last bit


@dataclass(frozen=True)
class Given:
    """Sets of shingles, one after the other, and their n+1 offsets; `hashes`: those that are looked up, sorted, each
    with its set in `owners`."""

    shingling: Shingling
    threshold: float
    values: np.ndarray
    offsets: np.ndarray
    hashes: np.ndarray
    owners: np.ndarray


def given(texts: pa.ChunkedArray, shingling: Shingling, threshold: float) -> Given:
    """What other texts are compared with. A text without a word is like none. Holds 50 bytes a shingle."""
    values, offsets = shingle_sets(texts, shingling)
    sizes = np.diff(offsets)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    _, number, count = np.unique(values, return_inverse=True, return_counts=True)
    rarest_first = np.lexsort((values, count[number], owner))
    place = np.arange(len(values)) - offsets[:-1][owner]
    looked_up = rarest_first[place < (sizes - np.ceil(threshold * sizes - _ROUNDING) + 1)[owner]]
    looked_up = looked_up[np.argsort(values[looked_up], kind="stable")]
    return Given(shingling, threshold, values, offsets, values[looked_up], owner[looked_up])


def most_similar(known: Given, texts: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """For each text the given one that it is most like, int64, the first of several, or -1 if it is like none; and
    their Jaccard similarity, float64, 0 for none. Holds 30 bytes a shingle of the texts."""
    best, similarity = np.full(len(texts), -1), np.zeros(len(texts))
    if not len(known.hashes) or not len(texts):
        return best, similarity
    values, offsets = shingle_sets(texts, known.shingling)
    at = np.searchsorted(known.hashes, values)
    [hits] = np.nonzero(known.hashes[np.minimum(at, len(known.hashes) - 1)] == values)
    first, end = at[hits], np.searchsorted(known.hashes, values[hits], side="right")
    text = np.repeat(np.searchsorted(offsets, hits, side="right") - 1, end - first)
    within = np.arange(len(text)) - np.repeat(np.cumsum(end - first) - (end - first), end - first)
    owner = known.owners[np.repeat(first, end - first) + within]
    pairs = np.unique(np.stack([text, owner], axis=1), axis=0)
    for i, j in pairs.tolist():
        a = values[offsets[i] : offsets[i + 1]]
        b = known.values[known.offsets[j] : known.offsets[j + 1]]
        if min(len(a), len(b)) < (known.threshold - _ROUNDING) * max(len(a), len(b)):
            continue
        same = len(np.intersect1d(a, b, assume_unique=True))
        jaccard = same / (len(a) + len(b) - same)
        if jaccard >= known.threshold and jaccard > similarity[i]:
            best[i], similarity[i] = j, jaccard
    return best, similarity
