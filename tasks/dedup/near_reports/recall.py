"""Measured recall: of the documents that are alike, how many share a band.

The truth needs pairs that were chosen without regard to bands, and there are too many pairs to compare them all. The
`holdout` of the signatures finds some of them: it is the minimum of a document's set under one permutation that no band
uses, so two documents have the same one with a probability of their Jaccard similarity, banded or not.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import parquet
from gristmill.tasks.dedup.near.documents import ROWS, SHARDS, Location, document_ids, row_of
from gristmill.tasks.dedup.near.settings import MinHash, s_curve
from gristmill.tasks.dedup.near.sign import band_hashes, shingle_sets
from gristmill.tasks.documents.selection import read_rows
from gristmill.tasks.kernels.duplicates.representatives import jaccard
from gristmill.tasks.kernels.shingles import mix

_ENDS = [i / 20 for i in range(21)]  # of the curve's bins
_SET = ["content", "size"]
_FACT = np.dtype([("holdout", np.uint64), ("content", np.uint64), ("size", np.int64), ("doc", np.int64)])


@dataclass(frozen=True)
class Crawl:
    """A crawl that was deduplicated: where its documents are, and those of the earlier crawls before it.

    `number`: its own, the last; `settings`: those of the step; `taken_down`: ids of its documents that a
    takedown list names, of which nothing may be shown.
    """

    number: int
    locations: tuple[Location, ...]
    settings: MinHash
    taken_down: tuple[str, ...] = ()

    @property
    def own(self) -> list[Location]:
        return [location for location in self.locations if location.crawl == self.number]

    def rows(self, docs: np.ndarray, signed: list[str], documents: list[str]) -> Iterator[tuple[pa.Table, pa.Table]]:
        """`id` and further columns of the signatures and of the documents for ascending global ids, shard by shard."""
        numbers = docs // ROWS
        locations = {location.crawl * SHARDS + location.shard: location for location in self.locations}
        for number in np.unique(numbers).tolist():
            location = locations[number]
            facts = read_rows(location.signatures, row_of(docs[numbers == number]), ["id", "at", *signed])
            contents = read_rows(location.documents, facts["at"].to_numpy(), ["id", *documents])
            if not contents["id"].equals(facts["id"]):
                raise LookupError(
                    f"{location.documents} does not hold, row by row, the documents that {location.signatures} names: "
                    "the stages are of different runs"
                )
            yield facts, contents


@dataclass(frozen=True)
class Pairs:
    """Pairs of documents by their global ids, int64, and their Jaccard similarities, float64."""

    first: np.ndarray
    second: np.ndarray
    jaccard: np.ndarray

    def take(self, rows: np.ndarray) -> "Pairs":
        return Pairs(self.first[rows], self.second[rows], self.jaccard[rows])


@dataclass(frozen=True)
class HoldoutPairs:
    """Pairs of documents that have the same hold-out, but unlike sets.

    `group`: the number of their hold-out; `banded`: whether they share a band. They were found among `documents`
    documents, about the `share` of all, whose hold-outs are in a part of the hashes; `copies` repeat another's set.
    """

    pairs: Pairs
    group: np.ndarray
    banded: np.ndarray
    documents: int
    share: float
    copies: int


@dataclass(frozen=True)
class Bin:
    """Pairs of a range of Jaccard similarities: how many of them share a band, and how many should.

    A group counts once, by the share of its pairs in the bin, since its pairs have documents in common: `measured` is
    the mean over the groups, with the ends of Wilson's 95% interval for so many trials, `expected` that of the S-curve
    at each pair's similarity, and `jaccard` that of the similarities.
    """

    low: float
    high: float
    pairs: int
    groups: int
    jaccard: float
    measured: float
    least: float
    most: float
    expected: float


def holdout_pairs(
    crawl: Crawl, documents: int = 2_000_000, sets_each: int = 8, pairs: int = 100_000, held: int = 1 << 30
) -> HoldoutPairs:
    """Pairs with the same hold-out, their similarities, and whether they share a band, but of what was taken down.

    Of a corpus of more than `documents`, those whose hold-outs are in a part of the hashes; of a hold-out the first
    `sets_each` unlike sets by their hashes, each with each; of the hold-outs the first by their hashes, until there are
    `pairs`. None of this looks at bands, or depends on the order of the input.

    Held: about 150 bytes for each of `documents`; `held` bytes of shingle sets, for which all shards are read once;
    of one shard the texts of the documents in pairs.
    """
    total = sum(parquet.rows(location.signatures) for location in crawl.own)
    share = min(1.0, documents / max(total, 1))
    facts = np.concatenate([np.empty(0, _FACT), *(_facts(location, share, crawl.taken_down) for location in crawl.own)])
    facts = facts[np.lexsort((facts["doc"], facts["size"], facts["content"], facts["holdout"]))]
    like = (facts[_SET][1:] == facts[_SET][:-1]) & (facts["holdout"][1:] == facts["holdout"][:-1])
    unlike = facts[np.append(True, ~like)[: len(facts)]]

    begins = np.flatnonzero(np.append(True, unlike["holdout"][1:] != unlike["holdout"][:-1])[: len(unlike)])
    members = np.diff(np.append(begins, len(unlike))).clip(max=sets_each)
    n_groups = np.searchsorted(np.cumsum(members * (members - 1) // 2), pairs, side="right")
    group, first, second = _each_with_each(begins[:n_groups], members[:n_groups])
    similarity, banded = _compared(crawl, unlike[first], unlike[second], held)
    sample = Pairs(unlike["doc"][first], unlike["doc"][second], similarity)
    return HoldoutPairs(sample, group, banded, len(facts), share, len(facts) - len(unlike))


def _facts(location: Location, share: float, taken_down: tuple[str, ...]) -> np.ndarray:
    table = parquet.read_table(location.signatures, ["id", "holdout", "content", "size"])
    # minima crowd at the small end; their hashes are spread evenly
    holdout = mix(table["holdout"].to_numpy())
    size = table["size"].to_numpy()
    gone = pc.is_in(table["id"], pa.array(taken_down, pa.string())).to_numpy()
    rows = np.flatnonzero(~gone & (size > 0) & ((holdout >> np.uint64(32)) < int(share * 2**32)))
    facts = np.empty(len(rows), _FACT)
    facts["holdout"], facts["size"] = holdout[rows], size[rows]
    facts["content"] = table["content"].to_numpy()[rows]
    facts["doc"] = document_ids(location.crawl, location.shard, rows)
    return facts


def _each_with_each(begins: np.ndarray, members: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All pairs within groups that begin at these rows: group, first and second row, group by group."""
    pairs = [np.empty((3, 0), np.int64)]
    for other in range(1, members.max(initial=0)):
        groups = np.flatnonzero(members > other)
        pairs += [np.stack([groups, begins[groups] + one, begins[groups] + other]) for one in range(other)]
    group, first, second = np.concatenate(pairs, axis=1)
    by_group = np.argsort(group, kind="stable")
    return group[by_group], first[by_group], second[by_group]


def _compared(crawl: Crawl, first: np.ndarray, second: np.ndarray, set_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    """Jaccard similarity of each pair, that of the sets themselves, and whether it shares a band."""
    similarity, banded = np.empty(len(first)), np.empty(len(first), bool)
    block = np.cumsum((first["size"] + second["size"]) * 8) // set_bytes
    for number in np.unique(block):
        rows = np.flatnonzero(block == number)
        docs, position = np.unique(np.concatenate([first["doc"][rows], second["doc"][rows]]), return_inverse=True)
        sets, hashes = [], []
        for signed, documents in crawl.rows(docs, ["signature"], ["text"]):
            values, ends = shingle_sets(documents["text"], crawl.settings)
            sets += np.split(values, ends[1:-1])
            hashes.append(band_hashes(signed["signature"], crawl.settings))
        bands = np.concatenate(hashes)
        one, other = position.reshape(2, -1)
        banded[rows] = (bands[one] == bands[other]).any(axis=1)
        similarity[rows] = [jaccard(sets[i], sets[j], 0.0) for i, j in zip(one.tolist(), other.tolist(), strict=True)]
    return similarity, banded


def curve(pairs: HoldoutPairs, settings: MinHash) -> list[Bin]:
    """The measured curve: bins of 0.05, those that have pairs."""
    bins = (share_banded(pairs, settings, low, high) for low, high in zip(_ENDS[:-1], _ENDS[1:], strict=True))
    return [one for one in bins if one is not None]


def share_banded(pairs: HoldoutPairs, settings: MinHash, low: float, high: float = 1.0) -> Bin | None:
    """Of the pairs with low <= J < high, how many share a band; None if there are no such pairs."""
    similarity = pairs.pairs.jaccard
    rows = np.flatnonzero((similarity >= low) & (similarity < high))
    if not len(rows):
        return None
    _, group_index, each = np.unique(pairs.group[rows], return_inverse=True, return_counts=True)
    groups = len(each)

    def mean(values: np.ndarray) -> float:
        return float((np.bincount(group_index, values) / each).mean())

    share = mean(pairs.banded[rows])
    least, most = wilson(share, groups)
    expected = mean(s_curve(settings.bands, settings.rows, similarity[rows]))
    return Bin(low, high, len(rows), groups, mean(similarity[rows]), share, least, most, expected)


def wilson(share: float, trials: int) -> tuple[float, float]:
    """Wilson's 95% interval for a probability (1927, J. Am. Stat. Assoc. 22:209)."""
    z = 1.959964
    middle, scale = share + z * z / (2 * trials), 1 + z * z / trials
    reach = z * (share * (1 - share) / trials + (z / (2 * trials)) ** 2) ** 0.5
    # the share is always inside; a rounding error may say otherwise
    return min(share, max(0.0, (middle - reach) / scale)), max(share, min(1.0, (middle + reach) / scale))
