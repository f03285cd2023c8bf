"""What repeats within a document: equal spans, runs of equal lines, n-grams of words.

Spans are equal if their 64-bit hashes are, n-grams if the hashes of their words are, one by one.
"""

import numpy as np

from gristmill.tasks.kernels.buffers import byte
from gristmill.tasks.kernels.compiled import nb
from gristmill.tasks.kernels.scan import BASE, MIX, MIX_2

# The lengths of the n-grams that `repeated_grams` looks at.
GRAMS = range(2, 11)
_LENGTHS = len(GRAMS)

# Keys whose table, at most half full, stays in a core's nearer caches; more are divided into parts of half that size.
_PART = 1 << 14

# What is known of an n-gram: two bits, and above them how often it occurs, kept at its first place.
_REPEATED, _APPEARED, _ONE = np.uint32(1), np.uint32(2), np.uint32(4)

# The key of no n-gram: documents have fewer words.
_GONE = ~np.uint64(0)


@nb.njit(nogil=True, cache=True)
def _spread(key):
    """A hash whose high bits are even, also for keys that count up."""
    h = key * MIX
    return (h ^ (h >> np.uint64(32))) * MIX_2


@nb.njit(nogil=True, cache=True)
def _look_up(keys, n, used, table, late, out):
    """`_first_equal` in one table, by the bits of the hashes behind the first `used`.

    A slot belongs to the first key that comes to it. This takes no branch that could not be foreseen; the few keys
    that find another in their slot are looked up afterwards in a table with linear probing.
    """
    bits = 4
    while (1 << bits) < 2 * n:
        bits += 1
    shift = np.uint64(64 - bits)
    last = np.uint64((1 << bits) - 1)
    used = np.uint64(used)
    table[: 1 << bits] = 0
    others = np.uint64(0)
    for i in range(n):
        slot = (_spread(keys[i]) << used) >> shift
        owner = table[slot]
        like = np.uint32(i + 1) if owner == 0 else owner
        table[slot] = like
        like -= np.uint32(1)
        out[i] = like
        late[others] = i
        others += np.uint64(keys[like] != keys[i])
    if others:
        table[: 1 << bits] = 0
    for k in range(others):
        i = late[k]
        key = keys[i]
        slot = (_spread(key) << used) >> shift
        while True:
            owner = table[slot]
            if owner == 0:
                table[slot] = i + np.uint32(1)
                out[i] = i
                break
            if keys[owner - np.uint32(1)] == key:
                out[i] = owner - np.uint32(1)
                break
            slot = (slot + np.uint64(1)) & last


@nb.njit(nogil=True, cache=True)
def _first_equal(keys, n, table, late, parted, origin, found, out):
    """out[i]: the index of the first of keys[:n] that equals keys[i]; what is between is scratch.

    Linear also where the keys do not fit the caches: they are first divided by the high bits of their hashes.
    """
    if n <= _PART:
        _look_up(keys, n, 0, table, late, out)
        return
    bits = 1
    while (n >> bits) > _PART // 2:
        bits += 1
    shift = np.uint64(64 - bits)
    ends = np.zeros((1 << bits) + 1, np.uint64)
    for i in range(n):
        ends[(_spread(keys[i]) >> shift) + np.uint64(1)] += np.uint64(1)
    for part in range(1 << bits):
        ends[part + 1] += ends[part]
    for i in range(n):
        part = _spread(keys[i]) >> shift
        at = ends[part]
        parted[at] = keys[i]
        origin[at] = i
        ends[part] = at + np.uint64(1)
    begin = 0
    for part in range(1 << bits):
        end = np.int64(ends[part])
        _look_up(parted[begin:end], end - begin, bits, table, late, found)
        inside = origin[begin:end]
        for i in range(end - begin):
            out[inside[i]] = inside[found[i]]
        begin = end


@nb.njit(nogil=True, cache=True)
def _scratch(bounds):
    """Arrays for `_first_equal` that fit the longest part of `bounds`; pages are touched only as they are needed."""
    n = 1
    for d in range(len(bounds) - 1):
        n = max(n, bounds[d + 1] - bounds[d])
    late, origin, found, first = np.empty((4, n), np.uint32)
    return np.empty(max(4 * n, 16), np.uint32), late, np.empty(n, np.uint64), origin, found, first


@nb.njit(nogil=True, cache=True)
def equal_to_earlier(bounds, hashes):
    """Which spans (lines, paragraphs) are equal to an earlier one of their document: bool, one entry a span.

    hashes: uint64 of each span; those of document d are hashes[bounds[d]:bounds[d + 1]].
    """
    out = np.empty(len(hashes), np.bool_)
    table, late, parted, origin, found, first = _scratch(bounds)
    for d in range(len(bounds) - 1):
        begin, end = bounds[d], bounds[d + 1]
        _first_equal(hashes[begin:end], end - begin, table, late, parted, origin, found, first)
        for i in range(end - begin):
            out[begin + i] = first[i] != i
    return out


@nb.njit(nogil=True, cache=True)
def equal_to_another(bounds, hashes):
    """Which spans are equal to an earlier or a later one of their document, arguments as of `equal_to_earlier`."""
    out = np.zeros(len(hashes), np.bool_)
    table, late, parted, origin, found, first = _scratch(bounds)
    for d in range(len(bounds) - 1):
        begin, end = bounds[d], bounds[d + 1]
        _first_equal(hashes[begin:end], end - begin, table, late, parted, origin, found, first)
        for i in range(end - begin):
            if first[i] != i:
                out[begin + i] = out[begin + first[i]] = True
    return out


@nb.njit(nogil=True, cache=True)
def equal_in_a_row(data, bounds, start, stop):
    """For each span how many before it, and itself, are the same bytes in a row: int64; 0 for an empty span.

    Empty spans are passed over: the spans at either side of them are neighbours.
    """
    out = np.zeros(len(start), np.int64)
    for d in range(len(bounds) - 1):
        before = -1
        for i in range(bounds[d], bounds[d + 1]):
            size = stop[i] - start[i]
            if size == 0:
                continue
            out[i] = 1
            if before >= 0 and stop[before] - start[before] == size:
                k = 0
                while k < size and byte(data, start[before] + k) == byte(data, start[i] + k):
                    k += 1
                if k == size:
                    out[i] = out[before] + 1
            before = i
    return out


@nb.njit(nogil=True, cache=True)
def _mark(marks, chars, first, n, bit):
    """Set the bit of n words; returns their code points."""
    total = 0
    for i in range(first, first + n):
        marks[i] |= bit
        total += chars[i]
    return total


@nb.njit(nogil=True, cache=True)
def _narrow(keys, place, first, tally, n, onward, late_first, waiting, table, late, parted, origin, found):
    """From the n places that are looked at for one length of n-gram to those for the next, in place; how many.

    Loops without branches, since whether an n-gram is repeated cannot be foreseen, and with few jumps in memory.
    """
    kept = np.uint64(0)
    for i in range(n - 1):
        like, here = first[i], place[i]
        stays = (tally[i] & tally[i + 1] & _REPEATED) & np.uint32(place[i + 1] == here + 1)
        key = np.uint64(like) << np.uint64(32) | np.uint64(first[i + 1])
        onward[i, 0] = key if stays else _GONE
        onward[i, 1] = kept
        keys[kept] = key
        place[kept] = here
        first[kept] = like
        kept += np.uint64(stays)
    if n > 0:
        onward[n - 1, 0] = _GONE
    # most n-grams go on as the first one like them does; only the others have to be looked up
    pending = np.uint64(0)
    for i in range(kept):
        key, like = keys[i], first[i]
        first[i] = onward[like, 1]
        waiting[pending] = i
        keys[pending] = key
        pending += np.uint64(onward[like, 0] != key)
    if pending:
        _first_equal(keys, np.int64(pending), table, late, parted, origin, found, late_first)
        for i in range(pending):
            first[waiting[i]] = waiting[late_first[i]]
    return np.int64(kept)


@nb.njit(nogil=True, cache=True)
def _first_most_frequent(place, first, tally, n, marks, chars, begin, k, bit):
    """Code points of the most frequent k-gram, be it there once, of several the first, joined by spaces, times its
    count."""
    times, best = np.uint32(1), -1
    for i in range(n):
        if tally[i] // _ONE > times:
            times, best = tally[i] // _ONE, i
    total = 0
    if best < 0:
        total = _mark(marks, chars, begin, k, bit)
    else:
        for i in range(best, n):
            if first[i] == best:
                total = _mark(marks, chars, begin + place[i], k, bit)
    return (total + k - 1) * np.int64(times)


@nb.njit(nogil=True, cache=True)
def _longest_most_frequent(place, first, tally, n, marks, chars, begin, k, bit):
    """Code points of the most frequent k-gram, of several the longest, times its count; 0 if all are there once."""
    times = np.uint32(1)
    for i in range(n):
        times = max(times, tally[i] // _ONE)
    if times == 1:
        return 0
    most, best = -1, 0
    for i in range(n):
        if tally[i] // _ONE == times:
            at = begin + place[i]
            size = 0
            for w in range(at, at + k):
                size += chars[w]
            if size > most:
                most, best = size, i
    for i in range(best, n):
        if first[i] == best:
            _mark(marks, chars, begin + place[i], k, bit)
    return most * np.int64(times)


@nb.njit(nogil=True, cache=True)
def _in_later_copies(place, first, tally, n, marks, chars, begin, k, bit):
    """Code points of the k-grams that have appeared before; behind one the count goes on at its end, and what was
    passed over has not appeared."""
    total = 0
    free = np.uint32(0)
    for i in range(n):
        if tally[i] & _REPEATED and place[i] >= free:
            if tally[first[i]] & _APPEARED:
                total += _mark(marks, chars, begin + place[i], k, bit)
                free = place[i] + k
            else:
                tally[first[i]] |= _APPEARED
    return total


@nb.njit(nogil=True, cache=True)
def _in_copies(place, tally, n, marks, chars, begin, k, bit):
    """Code points of the words in k-grams that are there twice, in each copy, no word counted twice."""
    total = 0
    free = 0
    for i in range(n):
        if tally[i] & _REPEATED:
            at = np.int64(place[i])
            new = max(free, at)
            free = at + k
            total += _mark(marks, chars, begin + new, free - new, bit)
    return total


@nb.njit(nogil=True, cache=True)
def repeated_grams(bounds, hashes, chars, all_copies):
    """(code points, marks) of the repeated n-grams of words, for each n of `GRAMS`.

    bounds, hashes, chars: the words of document d are those from bounds[d] to bounds[d + 1], their hashes (uint64) and
    code points (int32). Code points: int64, shape (documents, 9); marks: uint16, one entry a word, bit n is set
    if the word is in one of the n-grams that count. Without `all_copies` by datatrove's definitions
    (gopher_repetition_filter.py):

    - n = 2, 3, 4, `find_top_duplicate`: the most frequent n-gram, of several the one that appears first, its words
      joined by single spaces, times its count, be it 1;
    - n = 5 to 10, `find_all_duplicate`: from left to right the n-grams that have appeared before; after one the
      count goes on behind it, so no word counts twice, and the n-grams passed over have not appeared.

    With `all_copies` by DCLM's (`repetition_filter`, baselines/mappers/filters/content_filters.py), where an n-gram
    that occurs once does not count:

    - n = 2, 3, 4: the most frequent n-gram, of several the one with the most code points, times its count;
    - n = 5 to 10: all words in n-grams that occur twice, those of the first copy too, each word once.

    An n-gram occurs twice only if the two (n-1)-grams in it do, so for each n only the places where these are found
    repeated are looked at: few beyond n = 4 where little repeats. Held besides what is returned: about 60 bytes for a
    word of the longest document.
    """
    documents = len(bounds) - 1
    out = np.zeros((documents, _LENGTHS), np.int64)
    marks = np.zeros(len(hashes), np.uint16)
    table, late, parted, origin, found, first = _scratch(bounds)
    longest = len(parted)
    keys = np.empty(longest, np.uint64)
    onward = np.empty((longest, 2), np.uint64)
    place, tally, waiting, late_first = np.empty((4, longest), np.uint32)
    for d in range(documents):
        begin = bounds[d]
        n = bounds[d + 1] - begin
        left = n - 1
        for i in range(left):
            h = hashes[begin + i] * BASE
            keys[i] = (h ^ (h >> np.uint64(32))) * MIX + hashes[begin + i + 1]
            place[i] = i
        if left > 0:
            _first_equal(keys, left, table, late, parted, origin, found, first)
        for k in range(2, min(n, 10) + 1):
            bit = np.uint16(1 << k)
            tally[:left] = 0
            for i in range(left):
                like = first[i]
                again = np.uint32(like != i)
                tally[i] |= again
                tally[like] = (tally[like] | again) + _ONE
            if k < 5:
                if all_copies:
                    out[d, k - 2] = _longest_most_frequent(place, first, tally, left, marks, chars, begin, k, bit)
                else:
                    out[d, k - 2] = _first_most_frequent(place, first, tally, left, marks, chars, begin, k, bit)
            elif all_copies:
                out[d, k - 2] = _in_copies(place, tally, left, marks, chars, begin, k, bit)
            else:
                out[d, k - 2] = _in_later_copies(place, first, tally, left, marks, chars, begin, k, bit)
            left = _narrow(
                keys, place, first, tally, left, onward, late_first, waiting, table, late, parted, origin, found
            )
            if left == 0 and k >= 4:
                break
    return out, marks
