"""Jaccard similarity of sorted sets of 64-bit hashes, exact, and links between the like sets of a bucket."""

import math

import numba as nb
import numpy as np


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
def similarities(values, offsets, other_values, other_offsets, other):
    """Jaccard similarity, float64, of each set `i` with the set `other[i]` of the others."""
    out = np.empty(offsets.shape[0] - 1, np.float64)
    for i in range(out.shape[0]):
        o = other[i]
        x = values[offsets[i] : offsets[i + 1]]
        y = other_values[other_offsets[o] : other_offsets[o + 1]]
        out[i] = jaccard(x, y, 0.0)
    return out


@nb.njit(nogil=True, cache=True)
def _root(parent, i):
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


@nb.njit(nogil=True, cache=True)
def link_buckets(members, bounds, values, offsets, least, limit):
    """Links that connect, bucket by bucket, the sets whose Jaccard similarity is at least `least`.

    Bucket `k` holds the sets `members[bounds[k]:bounds[k + 1]]`, in an order that depends only on the sets;
    set `s` is `values[offsets[s]:offsets[s + 1]]`, sorted, uint64. Within a bucket each set is compared with
    those before it: first with the newest of each cluster that has formed, the cluster that grew last first,
    then with the others of the clusters that did not match, newest first. A match joins its cluster, of which
    no further set is then compared. After `limit` comparisons a set is compared no more.

    So a bucket of m sets costs at most m * limit comparisons, and about m if most are copies of one template.
    With at most `limit` + 1 sets no comparison is left out: the links then connect exactly what all pairs
    would. What is linked in a larger bucket depends on that bucket alone. Pairs that other buckets have
    connected are not compared again where that changes nothing, which is in the smaller buckets.

    Returns first sets, second sets (int64), similarities (float64), comparisons made, and pairs left out: not
    compared and not connected by this bucket. Held: 8 bytes a set and 48 bytes a member.
    """
    first = np.empty(members.shape[0], np.int64)
    second = np.empty(members.shape[0], np.int64)
    similarity = np.empty(members.shape[0], np.float64)
    links, comparisons, left_out = 0, 0, 0

    largest = 0
    for k in range(bounds.shape[0] - 1):
        largest = max(largest, bounds[k + 1] - bounds[k])
    parent = np.arange(offsets.shape[0] - 1)
    # A cluster is a chain of places in the bucket, newest first, and is named by the place that joined it
    # last.
    older = np.empty(largest, np.int64)
    oldest = np.empty(largest, np.int64)
    size = np.empty(largest, np.int64)
    after = np.empty(largest, np.int64)

    for k in range(bounds.shape[0] - 1):
        low = bounds[k]
        whole = bounds[k + 1] - low <= limit + 1
        head = -1
        for x in range(bounds[k + 1] - low):
            sx = members[low + x]
            older[x], oldest[x], size[x] = -1, x, 1
            spent, failed = 0, 0
            for sweep in range(2):
                before, c = -1, head
                while c != -1 and spent < limit:
                    y = c if sweep == 0 else older[c]
                    matched = False
                    walked = 0
                    while y != -1 and spent < limit:
                        sy = members[low + y]
                        if whole and _root(parent, sx) == _root(parent, sy):
                            matched = True
                            break
                        spent += 1
                        score = jaccard(
                            values[offsets[sy] : offsets[sy + 1]],
                            values[offsets[sx] : offsets[sx + 1]],
                            least,
                        )
                        if score >= 0:
                            first[links], second[links], similarity[links] = sy, sx, score
                            links += 1
                            parent[_root(parent, sx)] = _root(parent, sy)
                            matched = True
                            break
                        walked += 1
                        y = -1 if sweep == 0 else older[y]
                    following = after[c]
                    if matched:
                        # The failures in a cluster that matched in the end are not of pairs still apart.
                        failed -= sweep
                        older[oldest[x]] = c
                        oldest[x] = oldest[c]
                        size[x] += size[c]
                        if before == -1:
                            head = following
                        else:
                            after[before] = following
                    else:
                        failed += walked
                        before = c
                    c = following
            comparisons += spent
            left_out += x - (size[x] - 1) - failed
            after[x] = head
            head = x
    return first[:links], second[:links], similarity[:links], comparisons, left_out
