"""Vectors in whole numbers, clusters of them, and which documents of a cluster are near to a kept one.

A vector is divided by its length, multiplied by SCALE and rounded. Products of two such vectors, and all sums on the
way, are whole numbers below 2^24, which float32 holds and adds exactly: so results depend on neither the order of sums,
nor blocks, threads and processors.
"""

import math

import numpy as np

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
    """How many clusters so many documents have: comparing grows with documents times the documents of a cluster,
    finding the cluster with documents times clusters."""
    return max(1, min(-(-documents // CLUSTER_DOCUMENTS), math.isqrt(documents)))


def k_means(vectors: np.ndarray, clusters: int) -> np.ndarray:
    """Spherical k-means: rounded centroids, int16 (at most `clusters`, dimension), of rounded `vectors`, whose first
    unlike ones are the first. A cluster that has lost all of its vectors stays where it was."""
    _, first = np.unique(vectors, axis=0, return_index=True)
    centroids = vectors[np.sort(first)[:clusters]]
    for _ in range(ITERATIONS):
        of = nearest(vectors, centroids)
        sums = np.zeros(centroids.shape, np.int64)
        np.add.at(sums, of, vectors)
        moved = rounded(sums)
        moved = np.where(moved.any(axis=1, keepdims=True), moved, centroids)
        if np.array_equal(moved, centroids):
            break
        centroids = moved
    return centroids


def nearest(vectors: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """int64 (n): for each rounded vector the number of the centroid with the largest product, of equal ones the
    first."""
    against = centroids.astype(np.float32).T
    found = [np.empty(0, np.int64)]
    for begin in range(0, len(vectors), _BLOCK):
        found.append((vectors[begin : begin + _BLOCK].astype(np.float32) @ against).argmax(axis=1))
    return np.concatenate(found)


def duplicates(vectors: np.ndarray, similarity: float) -> tuple[np.ndarray, np.ndarray]:
    """For each of the rounded vectors, in keep order, the first kept one before it that is near to it, or -1, and their
    cosine: int64 (n), float64 (n).

    Holds the vectors as float32 and 1,024 of them times those that are kept. The time is that of all pairs with a kept
    one.
    """
    bound, n = round(similarity * SCALE**2), len(vectors)  # a product of vectors is a whole number
    of, cosine = np.full(n, -1), np.zeros(n)
    kept, n_kept = np.empty(n, np.int64), 0
    kept_vectors = np.empty(vectors.shape, np.float32)
    for begin in range(0, n, _BLOCK):
        block = vectors[begin : begin + _BLOCK].astype(np.float32)
        for at in range(0, n_kept, _BLOCK):
            products = block @ kept_vectors[at : min(at + _BLOCK, n_kept)].T
            near = products >= bound
            rows = np.flatnonzero(near.any(axis=1) & (of[begin : begin + len(block)] < 0))
            first = near[rows].argmax(axis=1)
            of[begin + rows] = kept[at + first]
            cosine[begin + rows] = products[rows, first].astype(np.float64) / SCALE**2
        products = block @ block.T
        near = products >= bound
        is_kept = np.zeros(len(block), bool)
        for row in np.flatnonzero(of[begin : begin + len(block)] < 0):
            before = near[row, :row] & is_kept[:row]
            first = int(before.argmax()) if row else 0
            if row and before[first]:
                of[begin + row], cosine[begin + row] = begin + first, float(products[row, first]) / SCALE**2
            else:
                is_kept[row] = True
        chosen = np.flatnonzero(is_kept)
        kept[n_kept : n_kept + len(chosen)] = begin + chosen
        kept_vectors[n_kept : n_kept + len(chosen)] = block[chosen]
        n_kept += len(chosen)
    return of, cosine
