"""Suffixes of token shards, looked up token by token.

`order` is uint32: the numbers of a shard's tokens, counted from its first, in the order of the suffixes that begin with
them. Tokens are compared by their `ranks`, int32 by id, which follow the bytes that tokens stand for: so those that
begin with some bytes follow each other.

Strings of bytes are given as `bounds`, int64, and `data`, uint8: the i-th is data[bounds[i]:bounds[i + 1]].
"""

import numpy as np

from gristmill.tasks.kernels.compiled import nb


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
    """-1 behind the last token, and for one that there is not, as damaged files have: nothing else is read."""
    known = token < tokens.shape[0] and tokens[token] < ranks.shape[0]
    return np.int64(ranks[tokens[token]]) if known else np.int64(-1)


@nb.njit(nogil=True, cache=True)
def begun(order, tokens, ranks, low, high, bounds, data, phrase):
    """int64 (ranges, 2): of the suffixes order[low:high] those that begin with the bytes `phrase`, uint8, a range for
    each way in which tokens cut it. `bounds`, `data`: what tokens stand for, by rank."""
    found, count = np.empty((4, 2), np.int64), 0
    # ranges whose suffixes share so many tokens with the phrase, which end at this byte of it
    waiting, top = np.empty((16, 4), np.int64), 1
    waiting[0] = low, high, 0, 0
    while top:
        top -= 1
        low, high, depth, at = waiting[top]
        first, last = 0, bounds.shape[0] - 1
        for size in range(1, phrase.shape[0] - at + 1):
            first, last = _with_byte(bounds, data, first, last, size - 1, phrase[at + size - 1])
            if first == last:
                break
            if at + size == phrase.shape[0]:
                begin, end = narrowed(order, tokens, ranks, low, high, depth, first, last)
                if begin < end:
                    if count == found.shape[0]:
                        found = _doubled(found)
                    found[count] = begin, end
                    count += 1
                break
            for rank in range(first, last):
                if bounds[rank + 1] - bounds[rank] > size:
                    break
                begin, end = narrowed(order, tokens, ranks, low, high, depth, rank, rank + 1)
                if begin < end:
                    if top == waiting.shape[0]:
                        waiting = _doubled(waiting)
                    waiting[top] = begin, end, depth + 1, at + size
                    top += 1
    return found[:count].copy()


@nb.njit(nogil=True, cache=True)
def ended(bounds, data, phrase):
    """int64: the numbers of bytes with which a phrase begins, fewer than all, that some token ends with and is longer.
    `bounds`, `data`: what tokens stand for from the last byte to the first, sorted."""
    found, count = np.empty(phrase.shape[0], np.int64), 0
    for size in range(1, phrase.shape[0]):
        first, last = 0, bounds.shape[0] - 1
        for back in range(size):
            first, last = _with_byte(bounds, data, first, last, back, phrase[size - 1 - back])
            if first == last:
                break
        # of strings that begin alike those that are no longer come first
        if first < last and bounds[last] - bounds[last - 1] > size:
            found[count] = size
            count += 1
    return found[:count].copy()


@nb.njit(nogil=True, cache=True)
def _with_byte(bounds, data, first, last, at, byte):
    """(first, last): of the sorted strings first to before last, which share their first `at` bytes, those that go on
    with a byte."""
    end = last
    while first < last:
        middle = (first + last) >> 1
        if _byte(bounds, data, middle, at) < byte:
            first = middle + 1
        else:
            last = middle
    begin, last = first, end
    while first < last:
        middle = (first + last) >> 1
        if _byte(bounds, data, middle, at) <= byte:
            first = middle + 1
        else:
            last = middle
    return begin, first


@nb.njit(nogil=True, cache=True, inline="always")
def _byte(bounds, data, string, at):
    """-1 behind the last byte."""
    place = bounds[string] + at
    return np.int64(data[place]) if place < bounds[string + 1] else np.int64(-1)


@nb.njit(nogil=True, cache=True)
def _doubled(rows):
    more = np.empty((2 * rows.shape[0], rows.shape[1]), np.int64)
    more[: rows.shape[0]] = rows
    return more


@nb.njit(nogil=True, cache=True)
def preceded(found, tokens, bounds, pieces, before, most):
    """Of the tokens with the numbers `found` those behind a token that ends with the bytes `before` and is longer, at
    most `most`: uint32. Token i stands for pieces[bounds[i]:bounds[i + 1]]."""
    out = np.empty(found.shape[0], np.uint32)
    count = 0
    size = before.shape[0]
    for i in range(found.shape[0]):
        token = found[i]
        # beyond the last, or of no token that there is: of damaged files
        if token == 0 or token > tokens.shape[0] or tokens[token - 1] >= bounds.shape[0] - 1:
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
