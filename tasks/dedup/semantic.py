"""What is decided by vectors that the step `embedding` has stored: semantic duplicates, and the balance of clusters."""

import math
from math import ceil
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from pydantic import Field

from gristmill.storage import files, ledger, parquet
from gristmill.storage.schema import SELECTION
from gristmill.tasks.dedup import exchange, order
from gristmill.tasks.dedup.exchange import CollectedShards, KeyRanges, SortedFiles
from gristmill.tasks.dedup.order import Criterion, KeepOrder
from gristmill.tasks.documents.selection import gather
from gristmill.tasks.documents.step import CorpusStep
from gristmill.tasks.models.embedders import vectors_of

# With the rounding of up to 16,384 dimensions, (SCALE + 64)^2 < 2^24. A cosine is off by 1e-4 about.
SCALE = 4000
DIMENSIONS = 1 << 14
# Of a cluster in the mean, while there are fewer clusters than the root of the documents.
CLUSTER_DOCUMENTS = 1 << 12
# Documents that centroids are learned from, for each cluster: faiss warns below 39 and takes 256 at most.
SAMPLED = 64
ITERATIONS = 10
_BLOCK = 1 << 10


def rounded(vectors: np.ndarray) -> np.ndarray:
    """int16 (n, dimension) of vectors of any length; of a zero vector zeros. Raises ValueError for more dimensions than
    DIMENSIONS."""
    if vectors.shape[1] > DIMENSIONS:
        raise ValueError(
            f"vectors have {vectors.shape[1]} dimensions, and semantic_dedup compares {DIMENSIONS} at most"
        )
    exact = vectors.astype(np.float64)
    # divided by the largest first, since squares of small numbers would be lost
    exact /= np.maximum(np.abs(exact).max(axis=1, keepdims=True, initial=0), np.finfo(np.float64).tiny)
    lengths = np.sqrt(np.square(exact).sum(axis=1, keepdims=True))
    return np.rint(exact * (SCALE / np.maximum(lengths, 1))).astype(np.int16)


def clusters_of(documents: int) -> int:
    """The number of clusters for a number of documents: comparing grows with documents times the documents of a
    cluster, finding the cluster with documents times clusters."""
    return max(1, min(-(-documents // CLUSTER_DOCUMENTS), math.isqrt(documents)))


def k_means(vectors: np.ndarray, clusters: int) -> np.ndarray:
    """Spherical k-means: rounded centroids, int16 (at most `clusters`, dimension), of rounded `vectors`, whose first
    unlike ones are the first. A cluster that has lost all of its vectors stays where it was."""
    _, first = np.unique(vectors, axis=0, return_index=True)
    centroids = vectors[np.sort(first)[:clusters]]
    for _ in range(ITERATIONS):
        owner = nearest(vectors, centroids)
        sums = np.zeros(centroids.shape, np.int64)
        np.add.at(sums, owner, vectors)
        means = rounded(sums)
        means = np.where(means.any(axis=1, keepdims=True), means, centroids)
        if np.array_equal(means, centroids):
            break
        centroids = means
    return centroids


def nearest(vectors: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """int64 (n): for each rounded vector the number of the centroid with the largest product, of equal ones the
    first."""
    against = centroids.astype(np.float32).T
    clusters = [np.empty(0, np.int64)]
    for begin in range(0, len(vectors), _BLOCK):
        clusters.append((vectors[begin : begin + _BLOCK].astype(np.float32) @ against).argmax(axis=1))
    return np.concatenate(clusters)


def duplicates(vectors: np.ndarray, similarity: float) -> tuple[np.ndarray, np.ndarray]:
    """For each of the rounded vectors, in keep order, the first kept one before it that is near to it, or -1, and their
    cosine: int64 (n), float64 (n).

    Holds the vectors as float32 and 1,024 of them times the kept ones. The time is proportional to all pairs with a
    kept one.
    """
    bound, n = round(similarity * SCALE**2), len(vectors)  # a product of vectors is a whole number
    original, cosine = np.full(n, -1), np.zeros(n)
    kept, n_kept = np.empty(n, np.int64), 0
    kept_vectors = np.empty(vectors.shape, np.float32)
    for begin in range(0, n, _BLOCK):
        block = vectors[begin : begin + _BLOCK].astype(np.float32)
        for start in range(0, n_kept, _BLOCK):
            products = block @ kept_vectors[start : min(start + _BLOCK, n_kept)].T
            near = products >= bound
            rows = np.flatnonzero(near.any(axis=1) & (original[begin : begin + len(block)] < 0))
            first = near[rows].argmax(axis=1)
            original[begin + rows] = kept[start + first]
            cosine[begin + rows] = products[rows, first].astype(np.float64) / SCALE**2
        products = block @ block.T
        near = products >= bound
        is_kept = np.zeros(len(block), bool)
        for row in np.flatnonzero(original[begin : begin + len(block)] < 0):
            before = near[row, :row] & is_kept[:row]
            first = int(before.argmax()) if row else 0
            if row and before[first]:
                original[begin + row], cosine[begin + row] = begin + first, float(products[row, first]) / SCALE**2
            else:
                is_kept[row] = True
        new_rows = np.flatnonzero(is_kept)
        kept[n_kept : n_kept + len(new_rows)] = begin + new_rows
        kept_vectors[n_kept : n_kept + len(new_rows)] = block[new_rows]
        n_kept += len(new_rows)
    return original, cosine


class Clustered(KeepOrder, CorpusStep):
    """A step that divides vectors into clusters, and decides within each."""

    clusters: int | None = Field(
        None,
        ge=1,
        le=1 << 20,
        description="Number of clusters of vectors. null: one per 4,096 documents, and above 17 million "
        "documents the square root of their number. Fewer clusters are larger and take longer.",
    )


class SemanticDedup(Clustered):
    """Keep one of the documents with nearly the same vector (SemDeDup, Abbas et al. 2023, arXiv 2303.09540).

    The step `embedding` must come first. Its vectors are divided into clusters, and compared with all others in their
    cluster. In keep order, a document is dropped if its cosine similarity with an earlier kept document is at least
    `similarity`. So each dropped document has a kept one that is this similar. Documents without a vector are kept:
    those of reference sources of `embedding`, and those without a token.
    """

    step: Literal["semantic_dedup"] = "semantic_dedup"
    similarity: float = Field(
        0.95,
        gt=0,
        le=1,
        description="Cosine similarity at which documents are duplicates. A good value depends on the embedder.",
    )
    keep: tuple[Criterion, ...] = Field(("longest",), description=KeepOrder.model_fields["keep"].description)


class Diversify(Clustered):
    """Limit the number of documents per cluster of vectors, so that the most frequent content takes a smaller share.

    After the balanced sampling of Vo et al. 2024 (arXiv 2405.15613), with one level of k-means instead of several.
    The step `embedding` must come first. `keep` decides which documents of a full cluster stay, and then their ids. Ids
    are hashes, so by default this is a random sample. Documents without a vector are kept: those of reference sources
    of `embedding`, and those without a token.
    """

    step: Literal["diversify"] = "diversify"
    most: float = Field(
        1.0,
        gt=0,
        description="Maximum number of documents to keep per cluster, as a multiple of the mean cluster size.",
    )
    keep: tuple[Criterion, ...] = Field(
        (),
        description="Criteria that decide which documents of a full cluster are kept, the most important "
        "first; ties go to the smallest id.",
    )


# Semantic duplicates, and the balance of clusters, as phases over the
# shards of a corpus:
#
#     sample/00000.parquet          hash, vector: the documents that centroids are learned from
#     centroids.parquet             vector
#     vectors/00000.parquet         by `cluster`: cluster, vector, id, order_0, ..., shard: a row for each document
#     dropped/00000.parquet         by `shard`: shard, id, detail, representative: the rows of a range of clusters
#     part-00000.parquet, ledger/   the kept documents of a shard, and why the others are gone
#
# Which documents are drawn follows from their ids, and which of two is kept from the keep order: so neither shards nor
# workers decide anything. Vectors are rounded to 16 bits (`clusters`). A phase holds the vectors of a shard, or the
# sample, or a range of clusters.


# What a shard's range holds for a document that is dropped.
DROPPED_BYTES = 300


def vector_bytes(dimension: int) -> int:
    """What a job holds for a document of its clusters: its vector in 16 and in 32 bits, twice, and its row."""
    return 12 * dimension + 200


def draw_shard(folder: str, number: int, vectors: str, kept: str, share: float) -> dict:
    """Write the vectors of about this share of the shard's documents. `vectors`: the part with them.

    Returns `documents` with a vector, and their `dimension`.
    """
    ids, matrix = _vectors(vectors, kept)
    hashes = np.fromiter((xxhash.xxh3_64_intdigest(each.encode()) for each in ids.to_pylist()), np.uint64, len(ids))
    is_drawn = hashes < share * 2.0**64 if share < 1 else np.ones(len(ids), bool)
    rows = pa.table({"hash": hashes[is_drawn], "vector": _column(matrix[is_drawn])})
    exchange.write(sample_files(folder, number + 1).path(number), rows, "hash", None)
    return {"documents": len(ids), "dimension": matrix.shape[1]}


def find_centroids(folder: str, _: int, sample: SortedFiles, clusters: int) -> dict:
    """Write the centroids of the sample. Holds it in 16 bits, and the products of 1,024 documents with all of them."""
    rows = pa.concat_tables(sample.each(0, 1 << 64))
    rows = rows.take(pc.sort_indices(rows["hash"]))
    centroids = k_means(vectors_of(rows), clusters)
    parquet.write_table(centroids_path(folder), pa.table({"vector": _column(centroids)}))
    return {"clusters": max(1, len(centroids))}


def assign_shard(
    folder: str,
    number: int,
    shard: int,
    vectors: str,
    documents: str,
    kept: str,
    signals: tuple[str, ...],
    source: int,
    settings: Clustered,
    ranges: KeyRanges | None,
) -> dict:
    """Write the documents of a shard by their clusters. `signals`: its parts with the signal `best`; `source`: the
    number of its source; `ranges`: see `exchange.write`."""
    ids, matrix = _vectors(vectors, kept)
    ordered = gather((*signals, documents), kept, order.columns(settings))
    ordered = ordered.take(pc.index_in(ids, ordered["id"].combine_chunks()))
    ordered = order.keyed(ordered, source, settings)
    centroids = vectors_of(parquet.read_table(centroids_path(folder)))
    columns = {"cluster": nearest(matrix, centroids), "vector": _column(matrix), "id": ids}
    columns |= {name: ordered[name] for name in order.order_names(settings)}
    columns["shard"] = np.full(len(ids), shard, np.int64)
    exchange.write(vectors_files(folder, number + 1).path(number), pa.table(columns), "cluster", ranges)
    return {"rows": len(ids)}


def choose(
    folder: str,
    partition: int,
    ranges: KeyRanges,
    vectors: SortedFiles,
    shards: KeyRanges | None,
    settings: SemanticDedup,
) -> dict:
    """Which documents of a range of clusters are dropped, and for which other. `shards`: the ranges by which the file
    is read, see `exchange.write`.

    Returns counts: dropped documents, and documents of the largest cluster, whose vectors are held.
    """
    rows, begins, ends = _by_cluster(pa.concat_tables(vectors.each(*ranges.bounds(partition))), settings)
    matrix = vectors_of(rows)
    original, cosine = np.full(len(rows), -1), np.zeros(len(rows))
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        first, cosine[begin:end] = duplicates(matrix[begin:end], settings.similarity)
        original[begin:end] = np.where(first < 0, -1, begin + first)
    gone = original >= 0
    losses = pa.table(
        {
            "shard": rows["shard"].filter(gone),
            "id": rows["id"].filter(gone),
            "detail": pa.array([f"cosine {each:.4f}" for each in cosine[gone].tolist()], pa.string()),
            "representative": rows["id"].take(original[gone]),
        }
    )
    exchange.write(dropped_files(folder, partition + 1).path(partition), losses, "shard", shards)
    return {"dropped": len(losses), "largest": int((ends - begins).max(initial=0))}


def balance(
    folder: str,
    partition: int,
    ranges: KeyRanges,
    vectors: SortedFiles,
    shards: KeyRanges | None,
    settings: Diversify,
    mean: float,
) -> dict:
    """Which documents of a range of clusters are dropped: of each cluster, in keep order, those after `most` times
    `mean`, the average number of documents in a cluster. `shards`, and what is returned: as for `choose`."""
    columns = ["cluster", "id", *order.order_names(settings), "shard"]
    table = pa.concat_tables(each.select(columns) for each in vectors.each(*ranges.bounds(partition)))
    rows, begins, ends = _by_cluster(table, settings)
    most, sizes = ceil(settings.most * mean), ends - begins
    place = np.arange(len(rows)) - np.repeat(begins, sizes)
    gone = rows.append_column("size", pa.array(np.repeat(sizes, sizes))).filter(pa.array(place >= most))
    cluster_sizes = zip(gone["cluster"].to_pylist(), gone["size"].to_pylist(), strict=True)
    details = [f"cluster {cluster} has {size} documents, of which {most} stay" for cluster, size in cluster_sizes]
    detail = pa.array(details, pa.string())
    representative = pa.nulls(len(gone), pa.string())
    names = ["shard", "id", "detail", "representative"]
    losses = pa.table([gone["shard"], gone["id"], detail, representative], names=names)
    exchange.write(dropped_files(folder, partition + 1).path(partition), losses, "shard", shards)
    return {"dropped": len(losses), "largest": int(sizes.max(initial=0))}


def _by_cluster(rows: pa.Table, settings: Clustered) -> tuple[pa.Table, np.ndarray, np.ndarray]:
    """Rows by cluster and in keep order, and where the rows of each cluster begin and end: int64 (clusters,)."""
    rank = np.empty(len(rows), np.int64)
    rank[order.ranking(rows, settings)] = np.arange(len(rows))
    rows = rows.take(np.lexsort((rank, rows["cluster"].to_numpy())))
    cluster = rows["cluster"].to_numpy()
    begins = np.flatnonzero(np.append(True, cluster[1:] != cluster[:-1])[: len(cluster)])
    return rows, begins, np.append(begins[1:], len(cluster))[: len(begins)]


def split_shard(folder: str, shard: int, kept: str, verdicts: CollectedShards, step: str, rule: str) -> dict:
    """Write the kept documents of a shard; the ledger has for each dropped one why, and which one stays for it."""
    arriving = parquet.read_table(kept, SELECTION.names)
    verdict_rows = verdicts.read(shard)
    verdict_rows = verdict_rows.take(pc.sort_indices(pc.index_in(verdict_rows["id"], arriving["id"].combine_chunks())))
    reasons = {name: verdict_rows[name] for name in ("detail", "representative")}
    losses = ledger.drops(step, rule, verdict_rows["id"], **reasons)
    return ledger.write_selection(folder, shard, arriving, [(step, losses)])


def sample_files(folder: str, shards: int) -> SortedFiles:
    return SortedFiles(files.join(folder, "sample"), shards)


def centroids_path(folder: str) -> str:
    return files.join(folder, "centroids.parquet")


def vectors_files(folder: str, shards: int) -> SortedFiles:
    return SortedFiles(files.join(folder, "vectors"), shards)


def dropped_files(folder: str, partitions: int) -> SortedFiles:
    return SortedFiles(files.join(folder, "dropped"), partitions)


def _vectors(vectors: str, kept: str) -> tuple[pa.Array, np.ndarray]:
    """(ids, rounded vectors) of the documents of a selection that have a vector other than zero."""
    table = parquet.read_table(vectors, ["id", "vector"])
    kept_ids = parquet.read_table(kept, ["id"])["id"]
    table = table.filter(pc.is_in(table["id"], kept_ids.combine_chunks()))
    matrix = rounded(vectors_of(table))
    compared = matrix.any(axis=1)
    return table["id"].combine_chunks().filter(pa.array(compared)), matrix[compared]


def _column(vectors: np.ndarray) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
