"""Which of the documents that share buckets are kept where a document is dropped only if a kept one holds it.

The rule is that of docs/deduplication.md, "Containment". After marin (marin-community/marin,
processing/classification/deduplication/fuzzy_verification.py, rule whitespace_3gram_subset_v4), which has: 3-grams,
all of which must be held; the ratio of 0.9 below which a text is saturated, then its words must be a run of the
other's; 10 characters a word, above which a text is under-tokenised. There words are what stands between white space,
and under-tokenised texts are compared by character 5-grams, at 0.90: here they must be equal.
"""

import numpy as np

from gristmill.tasks.kernels.compiled import nb
from gristmill.tasks.kernels.duplicates.representatives import enter, nearest_kept, passed
from gristmill.tasks.kernels.shingles import BASE, START, mix

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
