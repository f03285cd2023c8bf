"""Stage two: of the documents that share a band, which are as similar as the settings ask."""

import logging

import numpy as np
import pyarrow as pa

from storage import files, shards
from tasks.dedup.minhash import MinHash
from tasks.dedup.signatures import band_path, gather, node, sets
from tasks.kernels.jaccard import link_buckets

log = logging.getLogger(__name__)


def link_path(folder: str, partition: int) -> str:
    return files.join(folder, "links", f"partition-{partition:02d}.parquet")


def link(folder: str, signed: str, partition: int, n_shards: int, settings: MinHash) -> dict[str, int]:
    """Write the links of one partition: `shard`, `row`, `other_shard`, `other_row`, `jaccard` (>= threshold).

    A bucket is the documents with equal hash in a band. Documents with equal sets are linked to one of them,
    which stands for them all; the unlike sets of a bucket are compared by `kernels.jaccard.link_buckets`, so
    no bucket costs quadratic time. In buckets of more than `comparisons` + 1 unlike sets some pairs may be
    left out; they are counted and logged. Connected components of the links of all partitions do not depend
    on how many partitions there are, nor on the order of shards.

    Returns counts: documents that share a bucket, their unlike sets, buckets, documents in the largest
    bucket, comparisons, links, pairs left out. Held: about 100 bytes a band row of the partition, the
    shingles of one shard at a time, and, twice, the sets of the partition's buckets with unlike sets,
    8 bytes a shingle.
    """
    rows = pa.concat_tables([shards.read_table(band_path(folder, partition, s)) for s in range(n_shards)])
    nodes, place, bucket = _buckets(rows)
    holder, rank = _unlike_sets(signed, nodes)
    first, second, similarity, comparisons, left_out = _links(signed, holder, rank[place], bucket, settings)
    copies = nodes != holder[rank]
    first = np.concatenate([holder[rank[copies]], first])
    second = np.concatenate([nodes[copies], second])
    if left_out:
        log.warning(
            "partition %d: %d pairs in buckets of more than %d unlike sets were not compared; "
            "raise `comparisons` to compare them",
            partition,
            left_out,
            settings.comparisons + 1,
        )
    table = {
        "shard": (first >> 32).astype(np.int32),
        "row": (first & 0xFFFFFFFF).astype(np.int32),
        "other_shard": (second >> 32).astype(np.int32),
        "other_row": (second & 0xFFFFFFFF).astype(np.int32),
        "jaccard": np.concatenate([np.ones(np.count_nonzero(copies)), similarity]),
    }
    shards.write_table(link_path(folder, partition), pa.table(table))
    sharing = np.bincount(bucket)
    return {
        "documents": len(nodes),
        "sets": len(holder),
        "buckets": len(sharing),
        "largest": int(sharing.max(initial=0)),
        "comparisons": comparisons,
        "links": len(first),
        "left_out": left_out,
    }


def _buckets(rows: pa.Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Documents that share a bucket (sorted nodes); document and bucket of each of their band rows."""
    band, hashes = rows["band"].to_numpy(), rows["hash"].to_numpy()
    order = np.lexsort((hashes, band))
    band, hashes = band[order], hashes[order]
    begins = np.ones(len(order), bool)
    begins[1:] = (band[1:] != band[:-1]) | (hashes[1:] != hashes[:-1])
    bucket = np.cumsum(begins) - 1
    shared = np.bincount(bucket)[bucket] > 1
    order = order[shared]
    nodes = node(rows["shard"].to_numpy()[order], rows["row"].to_numpy()[order])
    nodes, place = np.unique(nodes, return_inverse=True)
    return nodes, place, np.cumsum(begins[shared]) - 1


def _unlike_sets(signed: str, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One node for each unlike set, and the set of each node. Sets are numbered by size, then content."""
    if not len(nodes):
        return nodes, nodes
    facts = gather(signed, nodes, ["size", "content"])
    size, content = facts["size"].to_numpy(), facts["content"].to_numpy()
    order = np.lexsort((nodes, content, size))
    begins = np.ones(len(order), bool)
    begins[1:] = (content[order][1:] != content[order][:-1]) | (size[order][1:] != size[order][:-1])
    rank = np.empty(len(nodes), np.int64)
    rank[order] = np.cumsum(begins) - 1
    return nodes[order[begins]], rank


def _links(
    signed: str, holder: np.ndarray, member: np.ndarray, bucket: np.ndarray, settings: MinHash
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int, int]:
    """Links between unlike sets, as nodes; `member` is the set and `bucket` the bucket of each band row."""
    bucket, member = np.divmod(np.unique(bucket * len(holder) + member), len(holder))
    several = np.bincount(bucket)[bucket] > 1
    bucket, member = bucket[several], member[several]
    if not len(member):
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), 0, 0
    needed = np.sort(holder[np.unique(member)])
    values, offsets = sets(gather(signed, needed, ["shingles"])["shingles"])
    bounds = np.append(np.flatnonzero(np.diff(bucket, prepend=-1)), len(bucket))
    first, second, similarity, comparisons, left_out = link_buckets(
        np.searchsorted(needed, holder[member]),
        bounds,
        values,
        offsets,
        settings.threshold,
        settings.comparisons,
    )
    return needed[first], needed[second], similarity, comparisons, left_out
