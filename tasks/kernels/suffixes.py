"""Suffixes of token shards in the order of their bytes.

A token stands for the bytes pieces[bounds[id]:bounds[id + 1]]; the one that ends a document for the byte END, which no
UTF-8 has. A suffix begins with a token and is compared by what its tokens stand for, so that a phrase is found however
its inside was cut into tokens. `order` is uint32: the numbers of the tokens, counted from the shard's first, in the
order of the suffixes that begin with them.
"""

import numba as nb
import numpy as np

END = 0xFF


@nb.njit(nogil=True, cache=True)
def spelled(tokens, bounds, pieces):
    """The bytes that tokens stand for, uint8, and a bitmap of those with which a token begins, uint64 words."""
    size = 0
    for i in range(tokens.shape[0]):
        size += bounds[tokens[i] + 1] - bounds[tokens[i]]
    out = np.empty(size, np.uint8)
    begins = np.zeros((size >> 6) + 1, np.uint64)
    at = 0
    for i in range(tokens.shape[0]):
        begins[at >> 6] |= np.uint64(1) << np.uint64(at & 63)
        for b in range(bounds[tokens[i]], bounds[tokens[i] + 1]):
            out[at] = pieces[b]
            at += 1
    return out, begins


@nb.njit(nogil=True, cache=True)
def range_of(order, tokens, bounds, pieces, phrase):
    """(low, high): the suffixes order[low:high] begin with the phrase, uint8."""
    low, high = 0, order.shape[0]
    while low < high:
        middle = (low + high) >> 1
        if _compared(order[middle], tokens, bounds, pieces, phrase) < 0:
            low = middle + 1
        else:
            high = middle
    first, high = low, order.shape[0]
    while low < high:
        middle = (low + high) >> 1
        if _compared(order[middle], tokens, bounds, pieces, phrase) <= 0:
            low = middle + 1
        else:
            high = middle
    return first, low


@nb.njit(nogil=True, cache=True)
def _compared(token, tokens, bounds, pieces, phrase):
    """0 where the suffix that begins with a token begins with the phrase, else the sign of their order."""
    at = 0
    for t in range(token, tokens.shape[0]):
        for b in range(bounds[tokens[t]], bounds[tokens[t] + 1]):
            if at == phrase.shape[0]:
                return 0
            if pieces[b] != phrase[at]:
                return -1 if pieces[b] < phrase[at] else 1
            at += 1
        if at == phrase.shape[0]:
            return 0
    return -1


@nb.njit(nogil=True, cache=True)
def preceded(found, tokens, bounds, pieces, before, most):
    """Of the tokens with the numbers `found` those behind a token that ends with the bytes `before` and is longer, at
    most `most`: uint32."""
    out = np.empty(found.shape[0], np.uint32)
    count = 0
    size = before.shape[0]
    for i in range(found.shape[0]):
        token = found[i]
        if token == 0:
            continue
        stop = bounds[tokens[token - 1] + 1]
        if stop - bounds[tokens[token - 1]] <= size:
            continue
        same = True
        for b in range(size):
            if pieces[stop - size + b] != before[b]:
                same = False
                break
        if same:
            out[count] = token
            count += 1
            if count == most:
                break
    return out[:count].copy()
