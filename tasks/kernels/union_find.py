"""Connected components by union-find over documents that are numbered by a bitmap.

A position is one of the bits of `bits` (uint64 words, the lowest bit first). Positions that are set have numbers, in
their order: `ranks` gives how many are set before each word, so a number costs one look into either array. So a
document takes two bits, and four bytes more if it has an edge.
"""

import numpy as np

from gristmill.tasks.kernels.compiled import nb


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
