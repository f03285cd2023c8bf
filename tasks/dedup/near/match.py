"""Second phase: of a range of the band hashes an index for later crawls, and edges between documents that share one.

index/00000.parquet    by `hash`: hash, doc: all band hashes of this crawl in the range
edges/00000.parquet    by `first`: first, second: two documents, the smaller id first; each edge once
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from gristmill.storage import files, parquet, sorted_files
from gristmill.tasks.dedup.near.documents import EarlierShard, document_ids
from gristmill.tasks.dedup.near.settings import Banding, Shingling
from gristmill.tasks.dedup.near.sign import band_hashes, by_this_code
from gristmill.tasks.documents.selection import read_rows

# Band hashes of a partition, about: small crawls have fewer partitions.
PARTITION_HASHES = 1 << 18


def partitions_of(hashes: int, most: int) -> int:
    """Into how many partitions so many band hashes are divided."""
    return min(most, 1 + hashes // PARTITION_HASHES)


def index_file(folder: str, partition: int) -> str:
    return files.join(folder, "index", f"{partition:05d}.parquet")


def edges_file(folder: str, partition: int) -> str:
    return files.join(folder, "edges", f"{partition:05d}.parquet")


def match_partition(
    folder: str, partition: int, partitions: int, crawl: int, bands: list[str], indexes: list[str]
) -> dict:
    """Write the index of a partition of the hashes, and an edge from the first document of each bucket to each other.

    `bands`: the band hashes of this crawl's shards, `crawl` its number; `indexes`: index files of earlier crawls that
    have hashes of the partition. Held: about 90 bytes a band hash of the partition, 60 for each match in an index, and
    some row groups of an index.
    """
    low, high = sorted_files.bounds(partitions)[partition : partition + 2]
    parts = [sorted_files.read(path, low, high) for path in bands]
    hashes = np.concatenate([np.empty(0, np.uint64), *(part["hash"].to_numpy() for part in parts)])
    ids = [document_ids(crawl, shard, part["row"].to_numpy()) for shard, part in enumerate(parts)]
    docs = np.concatenate([np.empty(0, np.int64), *ids])
    del parts, ids
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
    for index in indexes:
        known = sorted_files.find(index, buckets)
        first_doc = firsts[np.searchsorted(buckets, known["hash"].to_numpy())]
        edges.append(np.stack([known["doc"].to_numpy(), first_doc]))
    count = _write_edges(edges_file(folder, partition), edges)
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


def found_again(
    shards: list[EarlierShard], index: Callable[[int, int], list[str]], shingling: Shingling, banding: Banding
) -> bool:
    """Whether an earlier crawl's first documents with a word, signed again, give what is stored of them, and the first
    band of the first is in the index: else hashes were others then, and no document of that crawl would be found.
    `index` gives the files that have hashes from the first of two numbers up to the second."""
    if not by_this_code([shard.signatures for shard in shards], [shard.documents for shard in shards], shingling):
        return False
    for shard in shards:
        [rows] = np.nonzero(parquet.read_table(shard.signatures, ["size"])["size"].to_numpy())
        if len(rows):
            signature = read_rows(shard.signatures, rows[:1], ["signature"])["signature"]
            first = band_hashes(signature, banding)[0, :1]
            doc = document_ids(shard.crawl, shard.shard, rows[:1])
            paths = index(int(first[0]), int(first[0]) + 1)
            return any((sorted_files.find(path, first)["doc"].to_numpy() == doc).any() for path in paths)
    return True
