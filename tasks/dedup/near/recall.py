"""What near-duplicate removal did: its clusters, and measured recall: of the documents that are alike, how many share
a band.

The truth needs pairs that were chosen without regard to bands, and there are too many pairs to compare them all. The
`holdout` of the signatures finds some of them: it is the minimum of a document's set under one permutation that no band
uses, so two documents have the same one with a probability of their Jaccard similarity, banded or not.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from gristmill.storage import parquet, sorted_files
from gristmill.tasks.dedup.near.documents import ROWS, SHARDS, Location, crawl_of, document_ids, row_of
from gristmill.tasks.dedup.near.settings import MinHash, s_curve
from gristmill.tasks.dedup.near.sign import band_hashes, shingle_sets
from gristmill.tasks.documents.selection import read_rows
from gristmill.tasks.kernels.duplicates import jaccard
from gristmill.tasks.kernels.shingles import mix

_ENDS = [i / 20 for i in range(21)]  # of the curve's bins
_SET = ["content", "size"]
_FACT = np.dtype([("holdout", np.uint64), ("content", np.uint64), ("size", np.int64), ("doc", np.int64)])


@dataclass(frozen=True)
class Crawl:
    """A crawl that was deduplicated: where its documents are, and the documents of earlier crawls.

    `number`: its own, the last; `settings`: the settings of the step; `taken_down`: ids of its documents that a
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
    at each pair's similarity, and `jaccard` the mean of the similarities.
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
    """The exact Jaccard similarity of each pair, computed from the sets, and whether the pair shares a band."""
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
    """How many of the pairs with low <= J < high share a band; None if there are no such pairs."""
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


# What near-duplicate removal did: its clusters in numbers, and pairs of documents to look at.


DECILES = 11  # ten of the similarity, from 0.0-0.1 to 0.9-1.0, and equal sets

_LARGEST_CLUSTERS = pa.schema([("doc", pa.int64()), ("representative", pa.string()), ("cluster_size", pa.int64())])
_DRAWN = np.dtype(
    [("first", np.int64), ("second", np.int64), ("jaccard", float), ("turn", np.int64), ("draw", np.uint64)]
)


@dataclass(frozen=True)
class Clusters:
    """What was decided. A cluster is a representative with all that were dropped for it.

    `sizes`, `counts`: how many clusters have each size; `documents`: documents of this crawl that are in one;
    `largest`: the largest clusters, `doc`, `representative`, `cluster_size`; `dropped`: of each decile some documents
    (first) with their representatives (second), of so many as `in_decile` says; none where documents were not compared.
    """

    sizes: np.ndarray
    counts: np.ndarray
    documents: int
    largest: pa.Table
    dropped: Pairs
    in_decile: np.ndarray


@dataclass(frozen=True)
class Document:
    """`date`: when it was published as the page says, else when it was crawled; `text`: the beginning of it."""

    id: str
    source: str
    url: str | None
    title: str | None
    date: str | None
    characters: int
    text: str


@dataclass(frozen=True)
class Example:
    """A pair to look at. If `first` was dropped, `second` is its representative."""

    jaccard: float
    dropped: bool
    first: Document
    second: Document


def count_pairs(folder: str, shard: int, kept: str) -> dict:
    """The pairs within the clusters whose kept document is in a shard. `kept`: its part with `cluster_size`."""
    sizes = parquet.read_table(kept, ["cluster_size"])["cluster_size"].to_numpy()
    return {"pairs": int((sizes * (sizes - 1) // 2).sum())}


def clusters(decided: list[str], crawl: int, largest: int, each: int) -> Clusters:
    """Read what was decided, file by file: the `largest` clusters, and `each` pairs of a decile. Holds one file."""
    count_of: dict[int, int] = {}
    documents = 0
    tops, sample = _LARGEST_CLUSTERS.empty_table(), np.empty(0, _DRAWN)
    in_decile = np.zeros(DECILES, np.int64)
    for path in decided:
        table = sorted_files.read(path, 0, np.iinfo(np.int64).max)
        docs, is_kept = table["doc"].to_numpy(), pc.equal(table["doc"], table["kept_doc"])
        documents += int((crawl_of(docs) == crawl).sum())
        representatives = table.filter(is_kept)
        for size, count in zip(*np.unique(representatives["cluster_size"].to_numpy(), return_counts=True), strict=True):
            count_of[int(size)] = count_of.get(int(size), 0) + int(count)
        order = [("cluster_size", "descending"), ("representative", "ascending")]
        tops = pa.concat_tables([tops, representatives.select(_LARGEST_CLUSTERS.names)]).sort_by(order)[:largest]

        gone = table.filter(pc.and_not(pc.is_valid(table["jaccard"]), is_kept))
        owner = gone["kept_doc"].to_numpy()
        pairs = Pairs(gone["doc"].to_numpy(), owner, gone["jaccard"].to_numpy())
        in_decile += np.bincount(decile(pairs.jaccard), minlength=DECILES)
        new = _draw(pairs, owner, gone["id"].to_pylist(), gone["representative"].to_pylist())
        sample = _first(np.concatenate([sample, new]), each)
    sizes = np.array(sorted(count_of), np.int64)
    counts = np.array([count_of[size] for size in sizes.tolist()], np.int64)
    return Clusters(sizes, counts, documents, tops, _pairs(sample), in_decile)


def below_threshold(crawl: Crawl, pairs: Pairs, group: np.ndarray, each: int) -> tuple[Pairs, np.ndarray]:
    """Some of the pairs that are below the threshold, of each decile, and how many there are of each; none where there
    is no threshold."""
    threshold = crawl.settings.threshold
    unlike = np.flatnonzero(pairs.jaccard < (0 if threshold is None else threshold))
    pairs = pairs.take(unlike)
    docs, position = np.unique(np.concatenate([pairs.first, pairs.second]), return_inverse=True)
    ids = [name for signed, _ in crawl.rows(docs, [], []) for name in signed["id"].to_pylist()]
    one, other = position.reshape(2, -1).tolist()
    sample = _draw(pairs, group[unlike], [ids[i] for i in one], [ids[i] for i in other])
    return _pairs(_first(sample, each)), np.bincount(decile(pairs.jaccard), minlength=DECILES)


def decile(similarity: np.ndarray) -> np.ndarray:
    """0 for less than 0.1, ..., 9 for 0.9 and more, 10 for 1."""
    return np.searchsorted(np.arange(DECILES) / 10, similarity, side="right") - 1


def _draw(pairs: Pairs, owner: np.ndarray, ids: list[str], others: list[str]) -> np.ndarray:
    """The pairs with a number that depends only on their ids, and with their rank: how many pairs of the same decile
    and owner have a smaller one."""
    sample = np.empty(len(owner), _DRAWN)
    sample["first"], sample["second"], sample["jaccard"] = pairs.first, pairs.second, pairs.jaccard
    both = zip(ids, others, strict=True)
    sample["draw"] = [xxhash.xxh3_64_intdigest(f"{one} {other}".encode()) for one, other in both]
    deciles = decile(pairs.jaccard)
    order = np.lexsort((sample["draw"], owner, deciles))
    begins = np.ones(len(order), bool)
    begins[1:] = (deciles[order][1:] != deciles[order][:-1]) | (owner[order][1:] != owner[order][:-1])
    sample["turn"][order] = np.arange(len(order)) - np.flatnonzero(begins)[np.cumsum(begins) - 1]
    return sample


def _first(sample: np.ndarray, each: int) -> np.ndarray:
    """The first `each` documents of every decile: one of every owner, before a second of any."""
    deciles = decile(sample["jaccard"])
    order = np.lexsort((sample["draw"], sample["turn"], deciles))
    begins = np.searchsorted(deciles[order], np.arange(DECILES))
    return sample[order[np.arange(len(order)) - begins[deciles[order]] < each]]


def _pairs(sample: np.ndarray) -> Pairs:
    return Pairs(sample["first"], sample["second"], sample["jaccard"])


def examples(crawl: Crawl, dropped: Pairs, below: Pairs, each: int, characters: int) -> list[list[Example]]:
    """The pairs with their documents: of each decile at most `each`, the least similar first.

    In the decile of the threshold half of them were dropped and half not, if there are enough. Held: these
    documents, of each text the first `characters`, and the texts of those of one shard.
    """
    document_of = documents(
        crawl, np.concatenate([dropped.first, dropped.second, below.first, below.second]), characters
    )

    def seen(pairs: Pairs, number: int, gone: bool) -> list[Example]:
        some = pairs.take(np.flatnonzero(decile(pairs.jaccard) == number))
        rows = zip(some.jaccard.tolist(), some.first.tolist(), some.second.tolist(), strict=True)
        return [Example(similarity, gone, document_of[one], document_of[other]) for similarity, one, other in rows]

    by_decile = []
    for number in range(DECILES):
        gone, others = seen(dropped, number, True), seen(below, number, False)
        gone = gone[: max(each - len(others), each // 2)]
        selection = gone + others[: each - len(gone)]
        by_decile.append(sorted(selection, key=lambda one: (one.jaccard, one.first.id, one.second.id)))
    return by_decile


def documents(crawl: Crawl, docs: np.ndarray, characters: int) -> dict[int, Document]:
    """The documents with these global ids, with the first `characters` of their texts."""
    docs = np.unique(docs)
    columns = ["source", "url", "title", "published", "date", "characters", "text"]
    summaries = []
    for _, rows in crawl.rows(docs, [], columns):
        short = pc.utf8_slice_codeunits(rows["text"], 0, characters)
        for row in rows.set_column(rows.column_names.index("text"), "text", short).to_pylist():
            dated = row["published"] or row["date"]
            summaries.append(
                Document(row["id"], row["source"], row["url"], row["title"], dated, row["characters"], row["text"])
            )
    return dict(zip(docs.tolist(), summaries, strict=True))
