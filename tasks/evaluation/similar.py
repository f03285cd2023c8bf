"""Texts that are like one of a few given ones, or that contain one: all of them, and no other.

A text with the set of shingles A is like a given one with the set B if their Jaccard similarity |A n B| / |A u B| is at
least a threshold, and contains it if its containment |A n B| / |B| is (Broder 1997, "On the resemblance and containment
of documents"): so a page that quotes an article contains it, and is not like it. Shared shingles are counted, not
estimated by MinHash, since a held-out set needs every such text; that is quick because the given texts are few.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from gristmill.tasks.dedup.near.settings import Shingling
from gristmill.tasks.dedup.near.sign import shingle_sets

THRESHOLD = 0.8  # that of the step `minhash`


@dataclass(frozen=True)
class Given:
    """`sizes`: shingles of each text, (n,); `hashes`: those of all texts, sorted, each with its text in `owners`."""

    shingling: Shingling
    sizes: np.ndarray
    hashes: np.ndarray
    owners: np.ndarray


@dataclass(frozen=True)
class Overlaps:
    """Pairs of a text and a given one, by text and then by given one. `jaccard`, `containment`: float64."""

    text: np.ndarray
    given: np.ndarray
    jaccard: np.ndarray
    containment: np.ndarray


def given(texts: pa.ChunkedArray, shingling: Shingling) -> Given:
    """What other texts are compared with. A text without a word has no shingle. Holds 40 bytes a shingle."""
    values, offsets = shingle_sets(texts, shingling)
    sizes = np.diff(offsets)
    order = np.argsort(values, kind="stable")
    return Given(shingling, sizes, values[order], np.repeat(np.arange(len(sizes)), sizes)[order])


def overlaps(known: Given, texts: pa.ChunkedArray, threshold: float) -> Overlaps:
    """All pairs whose containment is at least `threshold` (above 0), and so all of such a Jaccard similarity, which is
    never higher. Holds 30 bytes a shingle of the texts, and what one of them shares with all given ones."""
    values, offsets = shingle_sets(texts, known.shingling)
    first = np.searchsorted(known.hashes, values)
    times = np.searchsorted(known.hashes, values, side="right") - first
    pairs: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for at in range(len(texts)):
        [hits] = np.nonzero(times[offsets[at] : offsets[at + 1]])
        hits += offsets[at]
        ends = np.cumsum(times[hits])
        places = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - times[hits] - first[hits], times[hits])
        owners, shared = np.unique(known.owners[places], return_counts=True)
        enough = shared / known.sizes[owners] >= threshold
        pairs.append((np.full(enough.sum(), at), owners[enough], shared[enough]))
    if not pairs:
        return Overlaps(*np.empty((2, 0), int), *np.empty((2, 0)))
    text, owner, shared = (np.concatenate(column) for column in zip(*pairs, strict=True))
    size = np.diff(offsets)[text]
    return Overlaps(text, owner, shared / (size + known.sizes[owner] - shared), shared / known.sizes[owner])


@dataclass(frozen=True)
class Likest:
    """For each text: `given`, the one that it is like, or else the one that it contains, the first of the highest
    `value`; -1 and 0 if there is none. `like`: whether it is like it."""

    given: np.ndarray
    value: np.ndarray
    like: np.ndarray


def likest(known: Given, texts: pa.ChunkedArray, threshold: float, least: np.ndarray) -> Likest:
    """`least`: for each given text the fewest shingles with which it counts as contained, int (n,): of a few words the
    most may stand in any text. Holds what `overlaps` holds."""
    found = overlaps(known, texts, threshold)
    like = found.jaccard >= threshold
    counts = like | (known.sizes[found.given] >= least[found.given])
    value = np.where(like, found.jaccard, found.containment)
    order = np.lexsort((found.given, -value, ~like, found.text))
    order = order[counts[order]]
    rows, at = np.unique(found.text[order], return_index=True)
    best = Likest(np.full(len(texts), -1), np.zeros(len(texts)), np.zeros(len(texts), bool))
    best.given[rows], best.value[rows], best.like[rows] = (column[order[at]] for column in (found.given, value, like))
    return best
