"""Which words of documents are in a list, and how many different ones."""

import numba as nb
import numpy as np

from gristmill.tasks.kernels.scan import MIX


@nb.njit(nogil=True, cache=True)
def different_members(bounds, hashes, which, list_bounds, lists):
    """(how many different ones: int64, one entry a document; which words are in its list: bool, one entry a word).

    bounds, hashes: the words of document d are those from bounds[d] to bounds[d + 1], their hashes (uint64); which: the
    list of each document, int64; list_bounds, lists: the hashes of the words of list k, all different, are
    lists[list_bounds[k]:list_bounds[k + 1]].
    """
    longest = 0
    for k in range(len(list_bounds) - 1):
        longest = max(longest, list_bounds[k + 1] - list_bounds[k])
    bits = 4
    while (1 << bits) < 8 * longest:
        bits += 1
    shift = np.uint64(64 - bits)
    last = np.uint64((1 << bits) - 1)
    # open addressing: the place of a word in `lists`, counted from 1; 0 is free
    tables = np.zeros((len(list_bounds) - 1, 1 << bits), np.uint32)
    for k in range(len(list_bounds) - 1):
        for i in range(list_bounds[k], list_bounds[k + 1]):
            slot = (lists[i] * MIX) >> shift
            while tables[k, slot] != 0:
                slot = (slot + np.uint64(1)) & last
            tables[k, slot] = i + 1
    seen = np.full(len(lists), -1, np.int64)
    count = np.zeros(len(bounds) - 1, np.int64)
    member = np.zeros(len(hashes), np.bool_)
    for d in range(len(count)):
        table = tables[which[d]]
        for w in range(bounds[d], bounds[d + 1]):
            slot = (hashes[w] * MIX) >> shift
            while table[slot] != 0:
                i = table[slot] - np.uint32(1)
                if lists[i] == hashes[w]:
                    member[w] = True
                    count[d] += seen[i] != d
                    seen[i] = d
                    break
                slot = (slot + np.uint64(1)) & last
    return count, member
