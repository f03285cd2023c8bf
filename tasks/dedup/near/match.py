"""Second phase: of a range of the band hashes an index for later crawls, and edges between documents that share one.

index/00000.parquet    by `hash`: hash, doc: all band hashes of this crawl in the range
edges/00000.parquet    by `first`: first, second: two documents, the smaller id first; each edge once
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from gristmill.storage import files, parquet, sorted_files
from gristmill.tasks.dedup.exchange import KeyRanges, SortedFiles
from gristmill.tasks.dedup.near.documents import EarlierShard, document_ids
from gristmill.tasks.dedup.near.settings import Banding, Shingling
from gristmill.tasks.dedup.near.sign import band_hashes, by_this_code
from gristmill.tasks.documents.selection import read_rows


@dataclass(frozen=True)
class Index:
    """The band hashes of an earlier crawl: the folder of its stage `candidates`, and its partitions of the hashes."""

    folder: str
    partitions: int

    def having(self, low: int, high: int) -> list[str]:
        """The files that have hashes from `low` up to `high`."""
        ends = enumerate(pairwise(KeyRanges(self.partitions).ends()))
        return [index_file(self.folder, p) for p, (begin, end) in ends if begin < high and end > low]


def index_file(folder: str, partition: int) -> str:
    return files.join(folder, "index", f"{partition:05d}.parquet")


def edges_files(folder: str, partitions: int) -> SortedFiles:
    return SortedFiles(files.join(folder, "edges"), partitions)


def match_partition(
    folder: str, partition: int, ranges: KeyRanges, crawl: int, bands: SortedFiles, earlier: tuple[Index, ...]
) -> dict:
    """Write the index of a partition of the hashes, and an edge from the first document of each bucket to each other.

    `bands`: the band hashes of this crawl, `crawl` its number. Held: about 90 bytes a band hash of the partition, 60
    for each match in an index, and some row groups of an index.
    """
    low, high = ranges.bounds(partition)
    parts = list(bands.each(low, high))
    hashes = np.concatenate([np.empty(0, np.uint64), *(part["hash"].to_numpy() for part in parts)])
    docs = np.concatenate([np.empty(0, np.int64), *(part["doc"].to_numpy() for part in parts)])
    docs = document_ids(crawl, 0, docs)  # which are of crawl 0
    del parts
    by_hash = sorted_files.order(hashes)
    hashes, docs = hashes[by_hash], docs[by_hash]
    del by_hash
    sorted_files.write(index_file(folder, partition), pa.table({"hash": hashes, "doc": docs}), "hash")

    begins = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)])
    size = np.diff(np.append(begins, len(hashes)))
    buckets, firsts = hashes[begins], docs[begins]
    first_doc = np.repeat(firsts, size)
    others = first_doc != docs
    edges = [np.stack([first_doc[others], docs[others]])]
    del first_doc, others, hashes, docs
    for index in (path for crawl_before in earlier for path in crawl_before.having(low, high)):
        matches = sorted_files.find(index, buckets)
        first_doc = firsts[np.searchsorted(buckets, matches["hash"].to_numpy())]
        edges.append(np.stack([matches["doc"].to_numpy(), first_doc]))
    count = _write_edges(edges_files(folder, partition + 1).path(partition), edges)
    return {"buckets": int((size > 1).sum()), "largest": int(size.max(initial=0)), "edges": count}


def _write_edges(path: str, edges: list[np.ndarray]) -> int:
    """Write each edge, (2, n) of its documents, once; returns how many there are. Empties the list."""
    first, second = np.concatenate(edges, axis=1)
    edges.clear()
    by_edge = np.lexsort((second, first))
    first, second = first[by_edge], second[by_edge]
    fresh = np.append(True, (first[1:] != first[:-1]) | (second[1:] != second[:-1]))[: len(first)]
    sorted_files.write(path, pa.table({"first": first[fresh], "second": second[fresh]}), "first")
    return int(fresh.sum())


def found_again(shards: list[EarlierShard], index: Index, shingling: Shingling, banding: Banding) -> bool:
    """Whether an earlier crawl's first documents with a word, signed again, give what is stored of them, and the first
    band of the first is in the index: else hashes were others then, and no document of that crawl would be found."""
    if not by_this_code([shard.signatures for shard in shards], [shard.documents for shard in shards], shingling):
        return False
    for shard in shards:
        [rows] = np.nonzero(parquet.read_table(shard.signatures, ["size"])["size"].to_numpy())
        if len(rows):
            signature = read_rows(shard.signatures, rows[:1], ["signature"])["signature"]
            first = band_hashes(signature, banding)[0, :1]
            doc = document_ids(shard.crawl, shard.shard, rows[:1])
            paths = index.having(int(first[0]), int(first[0]) + 1)
            return any((sorted_files.find(path, first)["doc"].to_numpy() == doc).any() for path in paths)
    return True
