"""Exact search for texts that are near-duplicates of some reference texts, or that contain one.

A text with the set of shingles A is like a reference text with the set B if their Jaccard similarity |A n B| / |A u B|
is at least a threshold, and contains it if its containment |A n B| / |B| is (Broder 1997, "On the resemblance and
containment of documents"): a page that quotes an article contains it, and is not like it. Shared shingles are counted,
not estimated by MinHash, since a held-out set needs every such text. The shingles of the reference texts are an
inverted index that is made once and that every worker holds, so the time of a text depends only on the reference texts
with which it shares shingles.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import files, parquet, sorted_files
from gristmill.tasks.dedup.near.settings import Shingling
from gristmill.tasks.dedup.near.sign import shingle_sets
from gristmill.tasks.documents.selection import select_groups
from gristmill.tasks.kernels.ngrams import bit_table, possible_members

THRESHOLD = 0.8  # as in the step `minhash`
_SHARED = 1 << 22  # shingles that texts share with reference texts, counted at a time
_EVERY_HASH = 0, 1 << 64


@dataclass(frozen=True, eq=False)
class TextIndex:
    """`sizes`: shingles of each text, (n,); `hashes`: of all texts, sorted, each with its text in `owners`."""

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
    """Pairs of a text and a reference text, in this order, as indices. `jaccard`, `containment`: float64."""

    text: np.ndarray
    reference: np.ndarray
    jaccard: np.ndarray
    containment: np.ndarray


def index_of(texts: pa.ChunkedArray, shingling: Shingling) -> TextIndex:
    """The index of some reference texts. A text without a word has no shingle. Holds 40 bytes a shingle."""
    values, offsets = shingle_sets(texts, shingling)
    sizes = np.diff(offsets)
    order = sorted_files.order(values)
    return TextIndex(shingling, sizes, values[order], np.repeat(np.arange(len(sizes)), sizes)[order])


def write_index(folder: str, index: TextIndex) -> None:
    """Write an index into a folder, for `read_index`. Holds 40 bytes a shingle."""
    parquet.write_table(_sizes_file(folder), pa.table({"size": index.sizes}))
    shingles = pa.table({"hash": index.hashes, "owner": index.owners.astype(np.int32)})
    sorted_files.write(_shingles_file(folder), shingles, "hash")


@lru_cache(1)
def read_index(folder: str, shingling: Shingling) -> TextIndex:
    """What `write_index` wrote, read once by each worker. Holds 14 bytes a shingle."""
    sizes = parquet.read_table(_sizes_file(folder))["size"].to_numpy()
    shingles = sorted_files.read(_shingles_file(folder), *_EVERY_HASH)
    return TextIndex(shingling, sizes, shingles["hash"].to_numpy(), shingles["owner"].to_numpy())


def _sizes_file(folder: str) -> str:
    return files.join(folder, "sizes.parquet")


def _shingles_file(folder: str) -> str:
    return files.join(folder, "shingles.parquet")


def overlaps(index: TextIndex, texts: pa.ChunkedArray, threshold: float) -> Overlaps:
    """All pairs whose containment is at least `threshold` (above 0), and so all of such a Jaccard similarity, which is
    never higher. Holds 10 bytes a shingle of the texts, 40 for each that reference texts have, and 60 for `_SHARED`
    that they share with these, or for those of one text, if these are more."""
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
    in how many reference texts it is."""
    begins = np.flatnonzero(np.append(True, text[1:] != text[:-1])[: len(text)])
    before = np.append(0, np.cumsum(times))
    while len(begins):
        fit = np.searchsorted(before[np.append(begins[1:], len(text))], before[begins[0]] + _SHARED, side="right")
        fit = max(1, int(fit))
        yield slice(int(begins[0]), int(begins[fit]) if fit < len(begins) else len(text))
        begins = begins[fit:]


@dataclass(frozen=True)
class Likest:
    """For each text: `reference`, the index of the reference text that it is like, or else that it contains, the first
    of the highest `value`; -1 and 0 if there is none. `like`: whether it is like it."""

    reference: np.ndarray
    value: np.ndarray
    like: np.ndarray


def likest(index: TextIndex, texts: pa.ChunkedArray, threshold: float, least: np.ndarray) -> Likest:
    """The best match of each text. `least`: for each reference text the fewest shingles with which it counts as
    contained, int (n,), since most of a few words may occur in any text. Holds what `overlaps` holds."""
    candidates = overlaps(index, texts, threshold)
    like = candidates.jaccard >= threshold
    counts = like | (index.sizes[candidates.reference] >= least[candidates.reference])
    value = np.where(like, candidates.jaccard, candidates.containment)
    order = np.lexsort((candidates.reference, -value, ~like, candidates.text))
    order = order[counts[order]]
    rows, firsts = np.unique(candidates.text[order], return_index=True)
    best = Likest(np.full(len(texts), -1), np.zeros(len(texts)), np.zeros(len(texts), bool))
    best.reference[rows], best.value[rows], best.like[rows] = (
        column[order[firsts]] for column in (candidates.reference, value, like)
    )
    return best


def likest_by_id(
    index: TextIndex,
    forms: tuple[str, ...],
    kept: str,
    threshold: float,
    least: np.ndarray,
    wordless: pa.Array | None = None,
) -> dict[str, tuple[bool, float, int]]:
    """By id, for each document of a selection that is like a reference text or contains one: whether it is like it, the
    similarity or containment, and the index of the reference text. Of several forms of a document the best one counts.

    `forms`: the parts with the texts of the documents, which the part `kept` names; `least`: see `likest`; `wordless`:
    the reference texts without a shingle, null for others: a text that equals one is like it. Holds the index, and the
    texts and shingles of a row group.
    """
    best: dict[str, tuple[bool, float, int]] = {}
    for form in forms:
        for group in select_groups(form, kept, ["text"]):
            matches = likest(index, group["text"], threshold, least)
            if wordless is not None:
                same = pc.index_in(group["text"], wordless).fill_null(-1).to_numpy()
                matches.reference[same >= 0] = same[same >= 0]
                matches.value[same >= 0], matches.like[same >= 0] = 1.0, True
            [rows] = np.nonzero(matches.reference >= 0)
            ids = group["id"].take(pa.array(rows)).to_pylist()
            columns = (matches.like[rows], matches.value[rows], matches.reference[rows])
            for document, like, value, number in zip(ids, *(column.tolist() for column in columns), strict=True):
                if document not in best or best[document][:2] < (like, value):
                    best[document] = like, value, number
    return best


def index_folder(folder: str) -> str:
    return files.join(folder, "given")


def index_examples(folder: str, number: int, examples: str, shingling: Shingling) -> dict:
    """Write the shingles of the texts in the file `examples` (columns `id`, `text`). Holds them."""
    write_index(index_folder(folder), index_of(parquet.read_table(examples, ["text"])["text"], shingling))
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
    among those that have `least` shingles. Holds what `read_index` holds, and the texts of a row group."""
    examples_index = read_index(index_folder(folder), shingling)
    names = parquet.read_table(examples, ["id"])["id"]
    contained: set[int] = set()
    for group in select_groups(documents, kept, ["text"]):
        there = np.unique(overlaps(examples_index, group["text"], threshold).reference)
        contained.update(there[examples_index.sizes[there] >= least].tolist())
    return {"examples": sorted(set(names.take(pa.array(sorted(contained), pa.int64())).to_pylist()))}
