"""Groups of duplicates: which of the documents that share buckets are kept, and connected components of pairs.

Pairs are verified by the exact Jaccard similarity of sorted sets of 64-bit hashes, or by containment. Documents go one
after the other, and what is dropped depends on what was kept before it: the one loop that goes in order.
"""

import math

import numpy as np

from gristmill.tasks.kernels.compiled import nb
from gristmill.tasks.kernels.shingles import BASE, START, mix


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


# Containment: a document is dropped only if a kept one holds it.
#
# The rule is that of docs/explanation/deduplication.md, "Containment". After marin (marin-community/marin,
# processing/classification/deduplication/fuzzy_verification.py, rule whitespace_3gram_subset_v4), which has: 3-grams,
# all of which must be held; the ratio of 0.9 below which a text is saturated, then its words must be a run of the
# other's; 10 characters a word, above which a text is under-tokenised. There words are what stands between white space,
# and under-tokenised texts are compared by character 5-grams, at 0.90: here they must be equal.

# Words by which a run is looked up, before all of it is compared.
_FIRST = 3


@nb.njit(nogil=True, cache=True)
def chains(sought, bounds):
    """A hash table of the runs sought[bounds[s]:bounds[s + 1]]: the first run of each slot, int64, a power of two, and
    the run that follows each, int64; -1 for none. A run of no words is in no slot."""
    n = bounds.shape[0] - 1
    bits = 6
    while (1 << bits) < 8 * n:
        bits += 1
    head, following = np.full(1 << bits, -1), np.full(n, -1)
    for s in range(n):
        size = min(bounds[s + 1] - bounds[s], _FIRST)
        if size:
            h = np.uint64(0)
            for k in range(size):
                h = h * BASE + sought[bounds[s] + k]
            slot = mix(h) & np.uint64(head.shape[0] - 1)
            following[s] = head[slot]
            head[slot] = s
    return head, following


@nb.njit(nogil=True, cache=True)
def mark_found(words, ends, sought, bounds, head, following, found):
    """Set `found[s]`, bool, for each run s that stands in words[ends[d]:ends[d + 1]] of a document d without a gap.

    `head`, `following`: what `chains` gives of `sought` and `bounds`.
    """
    last = np.uint64(head.shape[0] - 1)
    for d in range(ends.shape[0] - 1):
        for i in range(ends[d], ends[d + 1]):
            h = np.uint64(0)
            for k in range(min(_FIRST, ends[d + 1] - i)):
                h = h * BASE + words[i + k]
                s = head[mix(h) & last]
                while s >= 0:
                    if not found[s]:
                        begin, size = bounds[s], bounds[s + 1] - bounds[s]
                        at = 0 if i + size <= ends[d + 1] else size + 1
                        while at < size and words[i + at] == sought[begin + at]:
                            at += 1
                        found[s] = at == size
                    s = following[s]


GRAM = 3
SATURATED = 0.9  # unlike 3-grams to their places
CHARACTERS = 10.0  # a word

REASONS = ("longer", "text_lost", "saturated", "under_tokenised")
_LONGER, _LOST, _SATURATED, _UNDER = range(4)


@nb.njit(nogil=True, cache=True)
def sequence_hashes(words, offsets, keys):
    """A hash, uint64, of each document's words in their order, words[offsets[i]:offsets[i + 1]], and its key."""
    out = np.empty(offsets.shape[0] - 1, np.uint64)
    for d in range(out.shape[0]):
        h = START ^ keys[d]
        for i in range(offsets[d], offsets[d + 1]):
            h = mix(h * BASE + words[i])
        out[d] = h
    return out


@nb.njit(nogil=True, cache=True)
def gram_sets(words, offsets, out):
    """Write the sorted unlike 3-grams of each document, uint64, from out[offsets[i]] on; how many: int64, (n,)."""
    counts = np.zeros(offsets.shape[0] - 1, np.int64)
    for d in range(counts.shape[0]):
        begin, n = offsets[d], offsets[d + 1] - offsets[d]
        places = max(n - GRAM + 1, 1) if n else 0
        grams = np.empty(places, np.uint64)
        for i in range(places):
            h = START
            for k in range(min(GRAM, n)):
                h = mix(h * BASE + words[begin + i + k])
            grams[i] = h
        grams.sort()
        for i in range(places):
            if i == 0 or grams[i] != grams[i - 1]:
                out[begin + counts[d]] = grams[i]
                counts[d] += 1
    return counts


@nb.njit(nogil=True, cache=True)
def held_share(x, y):
    """The share of the sorted set `x`, not empty, that `y` has."""
    i, j, same = 0, 0, 0
    while i < x.shape[0] and j < y.shape[0]:
        a, b = x[i], y[j]
        same += a == b
        i += a <= b
        j += b <= a
    return same / x.shape[0]


@nb.njit(nogil=True, cache=True)
def is_run(x, y):
    """Whether `x`, not empty, stands in `y` without a gap (Knuth, Morris and Pratt 1977)."""
    border = np.zeros(x.shape[0], np.int64)
    k = 0
    for i in range(1, x.shape[0]):
        while k and x[i] != x[k]:
            k = border[k - 1]
        k += x[i] == x[k]
        border[i] = k
    k = 0
    for i in range(y.shape[0]):
        while k and y[i] != x[k]:
            k = border[k - 1]
        k += y[i] == x[k]
        if k == x.shape[0]:
            return True
    return False


@nb.njit(nogil=True, cache=True)
def contained(words, offsets, grams, counts, keys, buckets, n_buckets, given, least, limit):
    """For each document, in order, the first kept document before it that holds it, or itself, then it is kept.

    `words` and `offsets`: hashes of the words in their order; `grams`, `counts`: see `gram_sets`; `keys`: a hash of an
    under-tokenised text, else 0; `least`: the share of 3-grams that must be held; the others as `representatives` has
    them.

    Returns representatives, int64; the share of 3-grams held, float64; comparisons made; how many documents are kept
    that shared buckets with more than `limit`; and of the refusal with the largest share, the first of equals: the kept
    document, int64, -1 for none, the share, float64, and the place of the reason in REASONS, int8.
    """
    n, bands = buckets.shape
    representative, similarity = np.arange(n), np.ones(n)
    nearest, share, reason = np.full(n, -1), np.full(n, -1.0), np.zeros(n, np.int8)
    head, tail, following = np.full(n_buckets, -1), np.full(n_buckets, -1), np.full(n * bands, -1)
    at = np.empty(bands, np.int64)
    comparisons, left_out = 0, 0
    for i in range(n):
        if i >= given:
            for b in range(bands):
                at[b] = head[buckets[i, b]] if buckets[i, b] >= 0 else -1
            spent = 0
            while True:
                j = nearest_kept(at, n)
                if j == n:
                    break
                if spent == limit:
                    left_out += 1
                    break
                spent += 1
                held = held_share(
                    grams[offsets[i] : offsets[i] + counts[i]], grams[offsets[j] : offsets[j] + counts[j]]
                )
                why = _refusal(words, offsets, counts, keys, i, j, held, least)
                if why < 0:
                    representative[i], similarity[i] = j, held
                    break
                if held > share[i]:
                    nearest[i], share[i], reason[i] = j, held, why
                passed(at, following, j)
            comparisons += spent
            if representative[i] != i:
                nearest[i] = -1
                continue
        enter(i, buckets, head, tail, following)
    return representative, similarity, comparisons, left_out, nearest, share, reason


@nb.njit(nogil=True, cache=True)
def _refusal(words, offsets, counts, keys, i, j, held, least):
    """The place in REASONS of why `i` is not dropped for `j`, of whose 3-grams `held` are there; -1: it is."""
    x, y = words[offsets[i] : offsets[i + 1]], words[offsets[j] : offsets[j + 1]]
    if x.shape[0] > y.shape[0]:
        return _LONGER
    if held < least:
        return _LOST
    saturated = counts[i] < SATURATED * max(x.shape[0] - GRAM + 1, 1)
    saturated |= counts[j] < SATURATED * max(y.shape[0] - GRAM + 1, 1)
    if saturated and not is_run(x, y):
        return _SATURATED
    return _UNDER if keys[i] != keys[j] else -1


# Connected components by union-find over documents that are numbered by a bitmap.
#
# A position is one of the bits of `bits` (uint64 words, the lowest bit first). Positions that are set have numbers, in
# their order: `ranks` gives how many are set before each word, so a number costs one look into either array. So a
# document takes two bits, and four bytes more if it has an edge.


@nb.njit(nogil=True, cache=True)
def mark(bits, positions):
    """Set the bits at some positions, int64."""
    for i in range(positions.shape[0]):
        bits[positions[i] >> 6] |= np.uint64(1) << np.uint64(positions[i] & 63)


@nb.njit(nogil=True, cache=True)
def ranks(bits):
    """How many bits are set before each word, and in all: int64, one more than there are words."""
    out = np.zeros(bits.shape[0] + 1, np.int64)
    for w in range(bits.shape[0]):
        out[w + 1] = out[w] + _ones(bits[w])
    return out


@nb.njit(nogil=True, cache=True)
def unite(parent, bits, before, first, second):
    """Make the components of each two positions, int64, one. `parent`, uint32, of each number: at first itself.

    The smaller root becomes the parent of the larger, so that the root of a component is its smallest number, whatever
    the order of the edges; paths are halved on the way (Tarjan and van Leeuwen 1984).
    """
    for i in range(first.shape[0]):
        x = _root(parent, _number(bits, before, first[i]))
        y = _root(parent, _number(bits, before, second[i]))
        if x < y:
            parent[y] = x
        elif y < x:
            parent[x] = y


@nb.njit(nogil=True, cache=True)
def label(parent):
    """Put the number of its component in the place of each parent; components are counted by their smallest number.
    Returns how many there are."""
    count = 0
    for i in range(parent.shape[0]):
        if parent[i] == i:
            parent[i] = count
            count += 1
        else:
            parent[i] = parent[parent[i]]  # smaller than i: labelled before
    return count


@nb.njit(nogil=True, cache=True, inline="always")
def _number(bits, before, position):
    word = position >> 6
    below = (np.uint64(1) << np.uint64(position & 63)) - np.uint64(1)
    return before[word] + _ones(bits[word] & below)


@nb.njit(nogil=True, cache=True, inline="always")
def _root(parent, x):
    while parent[x] != x:
        parent[x] = parent[parent[x]]
        x = np.int64(parent[x])
    return x


@nb.njit(nogil=True, cache=True, inline="always")
def _ones(word):
    """How many bits of a word are set."""
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))
