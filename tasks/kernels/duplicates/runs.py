"""Which of some runs of words stand in documents, as hashes of words in their order (`kernels.ngrams.word_hashes`)."""

import numpy as np

from gristmill.tasks.kernels.compiled import nb
from gristmill.tasks.kernels.shingles import BASE, mix

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
