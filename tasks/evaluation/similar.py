"""Texts that are like one of a few given ones, or that contain one: all of them, and no other.

A text with the set of shingles A is like a given one with the set B if their Jaccard similarity |A n B| / |A u B| is at
least a threshold, and contains it if its containment |A n B| / |B| is (Broder 1997, "On the resemblance and containment
of documents"): so a page that quotes an article contains it, and is not like it. Shared shingles are counted, not
estimated by MinHash, since a held-out set needs every such text. The shingles of the given texts are an inverted
index that is made once and that every worker holds: the time of a text does not grow with their number, but for those
that it shares shingles with.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa

from gristmill.storage import files, parquet, sorted_files
from gristmill.tasks.dedup.near.settings import Shingling
from gristmill.tasks.dedup.near.sign import shingle_sets
from gristmill.tasks.documents.selection import select_groups
from gristmill.tasks.kernels.ngrams import bit_table, possible_members

THRESHOLD = 0.8  # that of the step `minhash`
_SHARED = 1 << 22  # shingles that texts share with given ones, counted at a time
_EVERY_HASH = 0, 1 << 64


@dataclass(frozen=True, eq=False)
class Given:
    """`sizes`: shingles of each text, (n,); `hashes`: those of all texts, sorted, each with its text in `owners`."""

    shingling: Shingling
    sizes: np.ndarray
    hashes: np.ndarray
    owners: np.ndarray

    @cached_property
    def table(self) -> np.ndarray:
        """The hashes as a table of bits."""
        return bit_table(self.hashes)


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
    order = sorted_files.order(values)
    return Given(shingling, sizes, values[order], np.repeat(np.arange(len(sizes)), sizes)[order])


def write_given(folder: str, index: Given) -> None:
    """Write what other texts are compared with, for `read_given`. Holds 40 bytes a shingle."""
    parquet.write_table(_sizes_file(folder), pa.table({"size": index.sizes}))
    shingles = pa.table({"hash": index.hashes, "owner": index.owners.astype(np.int32)})
    sorted_files.write(_shingles_file(folder), shingles, "hash")


@lru_cache(1)
def read_given(folder: str, shingling: Shingling) -> Given:
    """What `write_given` wrote, read once by each worker. Holds 14 bytes a shingle."""
    sizes = parquet.read_table(_sizes_file(folder))["size"].to_numpy()
    shingles = sorted_files.read(_shingles_file(folder), *_EVERY_HASH)
    return Given(shingling, sizes, shingles["hash"].to_numpy(), shingles["owner"].to_numpy())


def _sizes_file(folder: str) -> str:
    return files.join(folder, "sizes.parquet")


def _shingles_file(folder: str) -> str:
    return files.join(folder, "shingles.parquet")


def overlaps(index: Given, texts: pa.ChunkedArray, threshold: float) -> Overlaps:
    """All pairs whose containment is at least `threshold` (above 0), and so all of such a Jaccard similarity, which is
    never higher. Holds 10 bytes a shingle of the texts, 40 for each that is given, too, and 60 for `_SHARED` that
    they share with given texts, or for those of one text, if these are more."""
    values, offsets = shingle_sets(texts, index.shingling)
    positions = possible_members(values, index.table)
    first = np.searchsorted(index.hashes, values[positions])
    times = np.searchsorted(index.hashes, values[positions], side="right") - first
    positions, first, times = positions[times > 0], first[times > 0], times[times > 0]
    text = np.searchsorted(offsets, positions, side="right") - 1
    pairs = [(np.empty(0, int), np.empty(0, int), np.empty(0, int))]
    for some in _pieces(text, times):
        ends = np.cumsum(times[some])
        places = np.arange(ends[-1]) - np.repeat(ends - times[some] - first[some], times[some])
        pair = np.repeat(text[some], times[some]) * len(index.sizes) + index.owners[places]
        pair, shared = np.unique(pair, return_counts=True)
        text_of, owner = np.divmod(pair, len(index.sizes))
        enough = shared / index.sizes[owner] >= threshold
        pairs.append((text_of[enough], owner[enough], shared[enough]))
    text_of, owner, shared = (np.concatenate(column) for column in zip(*pairs, strict=True))
    size = np.diff(offsets)[text_of]
    return Overlaps(text_of, owner, shared / (size + index.sizes[owner] - shared), shared / index.sizes[owner])


def _pieces(text: np.ndarray, times: np.ndarray) -> Iterator[slice]:
    """Whole texts with up to `_SHARED` shared shingles, or one with more. `text`: of each shingle, ascending; `times`:
    in how many given texts it is."""
    begins = np.flatnonzero(np.append(True, text[1:] != text[:-1])[: len(text)])
    before = np.append(0, np.cumsum(times))
    while len(begins):
        fit = np.searchsorted(before[np.append(begins[1:], len(text))], before[begins[0]] + _SHARED, side="right")
        fit = max(1, int(fit))
        yield slice(int(begins[0]), int(begins[fit]) if fit < len(begins) else len(text))
        begins = begins[fit:]


@dataclass(frozen=True)
class Likest:
    """For each text: `given`, the one that it is like, or else the one that it contains, the first of the highest
    `value`; -1 and 0 if there is none. `like`: whether it is like it."""

    given: np.ndarray
    value: np.ndarray
    like: np.ndarray


def likest(index: Given, texts: pa.ChunkedArray, threshold: float, least: np.ndarray) -> Likest:
    """`least`: for each given text the fewest shingles with which it counts as contained, int (n,): most of a
    few words may occur in any text. Holds what `overlaps` holds."""
    candidates = overlaps(index, texts, threshold)
    like = candidates.jaccard >= threshold
    counts = like | (index.sizes[candidates.given] >= least[candidates.given])
    value = np.where(like, candidates.jaccard, candidates.containment)
    order = np.lexsort((candidates.given, -value, ~like, candidates.text))
    order = order[counts[order]]
    rows, firsts = np.unique(candidates.text[order], return_index=True)
    best = Likest(np.full(len(texts), -1), np.zeros(len(texts)), np.zeros(len(texts), bool))
    best.given[rows], best.value[rows], best.like[rows] = (
        column[order[firsts]] for column in (candidates.given, value, like)
    )
    return best


def index_folder(folder: str) -> str:
    return files.join(folder, "given")


def index_examples(folder: str, number: int, examples: str, shingling: Shingling) -> dict:
    """Write the shingles of the texts in the file `examples` (columns `id`, `text`). Holds them."""
    write_given(index_folder(folder), given(parquet.read_table(examples, ["text"])["text"], shingling))
    return {}


def find_contained(
    folder: str,
    shard: int,
    documents: str,
    kept: str,
    examples: str,
    shingling: Shingling,
    threshold: float,
    least: int,
) -> dict:
    """The ids of the examples of which a share of `threshold` of the shingles is in one kept document of a shard,
    among those that have `least` shingles. Holds what `read_given` holds, and the texts of a row group."""
    examples_index = read_given(index_folder(folder), shingling)
    names = parquet.read_table(examples, ["id"])["id"]
    contained: set[int] = set()
    for group in select_groups(documents, kept, ["text"]):
        there = np.unique(overlaps(examples_index, group["text"], threshold).given)
        contained.update(there[examples_index.sizes[there] >= least].tolist())
    return {"examples": sorted(set(names.take(pa.array(sorted(contained), pa.int64())).to_pylist()))}
