"""What near-duplicate removal did: its clusters in numbers, and pairs of documents to look at."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from gristmill.storage import parquet, sorted_files
from gristmill.tasks.dedup.near.documents import crawl_of
from gristmill.tasks.dedup.near_reports.recall import Crawl, Pairs

DECILES = 11  # ten of the similarity, from 0.0-0.1 to 0.9-1.0, and equal sets

_LARGEST_CLUSTERS = pa.schema([("doc", pa.int64()), ("representative", pa.string()), ("cluster_size", pa.int64())])
_DRAWN = np.dtype(
    [("first", np.int64), ("second", np.int64), ("jaccard", float), ("turn", np.int64), ("draw", np.uint64)]
)


@dataclass(frozen=True)
class Clusters:
    """What was decided. A cluster is a representative with all that were dropped for it.

    `sizes`, `counts`: how many clusters have each size; `documents`: those of this crawl that are in one; `largest`:
    the largest clusters, `doc`, `representative`, `cluster_size`; `dropped`: of each decile some documents (first)
    with their representatives (second), of so many as `in_decile` says; none where documents were not compared.
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
    """The pairs with a number that depends on their ids alone, and with their turn: how many pairs of the same decile
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
    """Of every decile the first `each`: one of every owner, before a second of any."""
    deciles = decile(sample["jaccard"])
    order = np.lexsort((sample["draw"], sample["turn"], deciles))
    begins = np.searchsorted(deciles[order], np.arange(DECILES))
    return sample[order[np.arange(len(order)) - begins[deciles[order]] < each]]


def _pairs(sample: np.ndarray) -> Pairs:
    return Pairs(sample["first"], sample["second"], sample["jaccard"])


def examples(crawl: Crawl, dropped: Pairs, below: Pairs, each: int, characters: int) -> list[list[Example]]:
    """The pairs with their documents: of each decile at most `each`, the least similar first.

    In the decile of the threshold half of them were dropped and half not, as far as there are so many. Held: these
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
