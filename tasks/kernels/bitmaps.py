"""Bitmaps of sets, by which many pairs are known to be unlike without their values.

Each value of a set toggles one of the bits. Where two bitmaps differ, one of the sets has a value that the other lacks:
so the sets differ by at least as many values as their bitmaps by bits. This is Bitmap-Xor of Sandes, Teodoro and Melo,
"Bitmap filter: speeding up exact set similarity joins with bitwise operations" (2020, https://arxiv.org/abs/1711.07295).
"""

import numba as nb
import numpy as np

# uint64 words of a bitmap: of sets of 500 shingles 1,024 bits rule out most pairs below 0.77 where 0.8 is asked.
WORDS = 16


@nb.njit(nogil=True, cache=True)
def toggled(hashes, start, end, row):
    """Write the bitmap of the set `hashes[start:end]` (uint64, each once) to `row` (uint64)."""
    row[:] = 0
    for i in range(start, end):
        bit = hashes[i] % np.uint64(64 * row.shape[0])
        row[bit >> np.uint64(6)] ^= np.uint64(1) << (bit & np.uint64(63))


@nb.njit(nogil=True, cache=True)
def may_be_like(bitmaps, sizes, members, ends, given, least, most):
    """Of each set whether its Jaccard similarity to one that shares a bucket with it may be `least`: bool, (n_sets,).

    `sizes`, int64, of the sets; bucket `b` has the sets `members[ends[b - 1]:ends[b]]`, int64, ascending. The first
    `given` sets are not compared with each other. Of a bucket of more than `most` sets all may be, so that it costs no
    more than its size.
    """
    found = np.zeros(sizes.shape[0], np.bool_)
    start = 0
    for end in ends:
        if end - start > most:
            for i in range(start, end):
                found[members[i]] = True
        else:
            for i in range(start + 1, end):
                x = members[i]
                if x < given:
                    continue
                for j in range(start, i):
                    y = members[j]
                    if found[x] and found[y]:
                        continue
                    apart = max(_differing(bitmaps[x], bitmaps[y]), abs(sizes[x] - sizes[y]))
                    both = sizes[x] + sizes[y]
                    # of sets that differ by d values it is (both - d) / (both + d)
                    if (both - apart) / (both + apart) >= least:
                        found[x] = found[y] = True
        start = end
    return found


@nb.njit(nogil=True, cache=True, inline="always")
def _differing(x, y):
    """How many bits of two bitmaps differ."""
    count = 0
    for i in range(x.shape[0]):
        count += _ones(x[i] ^ y[i])
    return count


@nb.njit(nogil=True, cache=True, inline="always")
def _ones(word):
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))
