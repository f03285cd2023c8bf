"""Which of the documents that share buckets are kept, and for which the others go: the one loop that goes in order.

Pairs are verified by the exact Jaccard similarity of sorted sets of 64-bit hashes.
"""

import math

import numpy as np

from gristmill.tasks.kernels.compiled import nb


@nb.njit(nogil=True, cache=True)
def jaccard(x, y, least):
    """Jaccard similarity of two sorted sets (uint64), or -1.0 if it is below `least`.

    `least` is above 0 and one of the sets is not empty, or it is 0 and both have values.
    """
    nx, ny = x.shape[0], y.shape[0]
    if min(nx, ny) / max(nx, ny) < least:
        return -1.0
    # The fewest common values that can reach `least`, less a rounding error; the quotient at the end decides.
    need = math.ceil(least * (nx + ny) / (1.0 + least) - 1e-6)
    i, j, same = 0, 0, 0
    while i < nx and j < ny:
        a, b = x[i], y[j]
        same += a == b
        i += a <= b
        j += b <= a
        if i - same > nx - need or j - same > ny - need:
            return -1.0
    similarity = same / (nx + ny - same)
    return similarity if similarity >= least else -1.0


@nb.njit(nogil=True, cache=True)
def representatives(values, offsets, buckets, n_buckets, given, least, limit):
    """For each set, in order, its representative: the first kept set before it that is like it, or itself, then kept.

    Set `i` is `values[offsets[i]:offsets[i + 1]]`, sorted, uint64; `buckets` is int64, (n, bands): the bucket of each
    band, or -1. Two sets are like each other if they share a bucket and their Jaccard similarity is at least `least`;
    a set without values is like none. The first `given` sets are kept without being compared. A set is compared with at
    most `limit` kept sets, the first.

    Returns int64 (n,), the representatives; float64 (n,), the similarity to them; comparisons made; and how many sets
    are kept that shared buckets with more than `limit` kept sets. Held: 8 bytes a band of each set and 16 a bucket. A
    bucket of any size costs a set at most `limit` comparisons, and one where the first kept set is like it.
    """
    n, bands = buckets.shape
    representative = np.arange(n)
    similarity = np.ones(n)
    # The kept sets of a bucket are a chain of entries, first to last; entry `i * bands + b` is of set i.
    head = np.full(n_buckets, -1)
    tail = np.full(n_buckets, -1)
    following = np.full(n * bands, -1)
    at = np.empty(bands, np.int64)
    comparisons, left_out = 0, 0
    for i in range(n):
        if i >= given:
            for b in range(bands):
                at[b] = head[buckets[i, b]] if buckets[i, b] >= 0 else -1
            x = values[offsets[i] : offsets[i + 1]]
            spent = 0
            while True:
                nearest = nearest_kept(at, n)
                if nearest == n:
                    break
                if spent == limit:
                    left_out += 1
                    break
                spent += 1
                score = jaccard(values[offsets[nearest] : offsets[nearest + 1]], x, least) if len(x) else -1.0
                if score >= 0:
                    representative[i], similarity[i] = nearest, score
                    break
                passed(at, following, nearest)
            comparisons += spent
            if representative[i] != i:
                continue
        enter(i, buckets, head, tail, following)
    return representative, similarity, comparisons, left_out


@nb.njit(nogil=True, cache=True)
def nearest_kept(at, n):
    """The first set among the entries `at` of the chains, one a band, -1 behind their ends; `n` where there is none."""
    nearest = n
    for b in range(at.shape[0]):
        if at[b] >= 0:
            nearest = min(nearest, at[b] // at.shape[0])
    return nearest


@nb.njit(nogil=True, cache=True)
def passed(at, following, kept):
    """Go on from the entries of one set to those that follow."""
    for b in range(at.shape[0]):
        if at[b] >= 0 and at[b] // at.shape[0] == kept:
            at[b] = following[at[b]]


@nb.njit(nogil=True, cache=True)
def enter(i, buckets, head, tail, following):
    """Put the set `i` at the ends of the chains of its buckets."""
    bands = buckets.shape[1]
    for b in range(bands):
        bucket = buckets[i, b]
        if bucket >= 0:
            entry = i * bands + b
            if tail[bucket] >= 0:
                following[tail[bucket]] = entry
            else:
                head[bucket] = entry
            tail[bucket] = entry
