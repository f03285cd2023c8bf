"""Suffixes of token shards, looked up token by token.

`order` is uint32: the numbers of a shard's tokens, counted from its first, in the order of the suffixes that begin with
them. Tokens are compared by their `ranks`, int32 by id, which follow the bytes that tokens stand for: so those that
begin with some bytes follow each other.
"""

import numba as nb
import numpy as np


@nb.njit(nogil=True, cache=True)
def narrowed(order, tokens, ranks, low, high, depth, first, last):
    """(low, high): of the suffixes order[low:high], which share `depth` tokens, those whose next one has a rank from
    `first` to before `last`."""
    end = high
    while low < high:
        middle = (low + high) >> 1
        if _rank(order[middle] + depth, tokens, ranks) < first:
            low = middle + 1
        else:
            high = middle
    begin, high = low, end
    while low < high:
        middle = (low + high) >> 1
        if _rank(order[middle] + depth, tokens, ranks) < last:
            low = middle + 1
        else:
            high = middle
    return begin, low


@nb.njit(nogil=True, cache=True, inline="always")
def _rank(token, tokens, ranks):
    """-1 behind the last token."""
    return np.int64(ranks[tokens[token]]) if token < tokens.shape[0] else np.int64(-1)


@nb.njit(nogil=True, cache=True)
def preceded(found, tokens, bounds, pieces, before, most):
    """Of the tokens with the numbers `found` those behind a token that ends with the bytes `before` and is longer, at
    most `most`: uint32. Token i stands for pieces[bounds[i]:bounds[i + 1]]."""
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
