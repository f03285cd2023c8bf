"""How much of a document repeats: duplicate parts, the most frequent n-gram, duplicate n-grams.

All three count in one open-addressing hash table (linear probing, at most half full) whose size follows the
document: two to four slots per item, of 8 bytes, or 16 where occurrences are counted. It is reused for the
whole batch and grows to fit the longest document.
"""

from collections import namedtuple

import numba as nb
import numpy as np

from tasks.kernels.scan import BASE, MIX

INVERSE = np.uint64(pow(int(BASE), -1, 2**64))

SHORT = 64
# BASE and INVERSE to the power of the length of a word in bytes; longer words take several steps.
POWERS = np.array([pow(int(BASE), k, 2**64) for k in range(SHORT)], np.uint64)
INVERSES = np.array([pow(int(INVERSE), k, 2**64) for k in range(SHORT)], np.uint64)

Grams = namedtuple("Grams", "hash chars prefix power")
Grams.__doc__ = """Scratch to hash and measure n-grams.

hash: the n-gram that begins at each word, its words kept apart; chars: int64, n+1 entries, code points of the
words before; prefix and power: n+1 entries, so that `(prefix[j] - prefix[i]) * power[j]` is the hash that
`scan.polynomial` gives to the bytes of the words i to j - 1 written together.
"""


@nb.njit(nogil=True, cache=True)
def grams(words):
    n = words + 1
    return Grams(np.empty(n, np.uint64), np.empty(n, np.int64), np.empty(n, np.uint64), np.empty(n, np.uint64))


@nb.njit(nogil=True, cache=True)
def clear(table, items, width):
    """(table, shift): empty slots of `width` entries for `items` keys, in a larger table if need be."""
    shift = np.uint64(60)
    slots = 16
    while slots < 2 * items:
        slots *= 2
        shift -= np.uint64(1)
    if len(table) < slots * width:
        table = np.empty(slots * width, np.uint64)
    table[: slots * width] = 0
    return table, shift


@nb.njit(nogil=True, cache=True)
def _seen(table, shift, key):
    """Whether the table holds the key; it does afterwards. 0 marks a free slot, so key 0 is stored as 1."""
    last = (np.uint64(1) << (np.uint64(64) - shift)) - np.uint64(1)
    if key == 0:
        key = np.uint64(1)
    slot = (key * MIX) >> shift
    while table[slot] != 0:
        if table[slot] == key:
            return True
        slot = (slot + np.uint64(1)) & last
    table[slot] = key
    return False


@nb.njit(nogil=True, cache=True)
def duplicate_parts(parts, n, table):
    """(elements, code points, table) of the parts that are equal to an earlier one.

    Definition: `find_duplicates` of datatrove, src/datatrove/pipeline/filters/gopher_repetition_filter.py.
    """
    table, shift = clear(table, n, 1)
    elements = 0
    chars = 0
    for i in range(n):
        if _seen(table, shift, parts.hash[i]):
            elements += 1
            chars += parts.chars[i]
    return elements, chars, table


@nb.njit(nogil=True, cache=True)
def _power(powers, exponent):
    result = np.uint64(1)
    while exponent >= SHORT:
        result *= powers[SHORT - 1]
        exponent -= SHORT - 1
    return result * powers[exponent]


@nb.njit(nogil=True, cache=True)
def prepare(words, n, out):
    """Fill `out` for the n words of a document, which are then its 1-grams; returns `out` or a larger one."""
    if len(out.hash) < n + 1:
        out = grams(2 * n)
    chars = 0
    prefix = np.uint64(0)
    power = np.uint64(1)
    inverse = np.uint64(1)
    out.chars[0] = chars
    out.prefix[0] = prefix
    out.power[0] = power
    for i in range(n):
        size = words.stop[i] - words.start[i]
        inverse *= _power(INVERSES, size)
        power *= _power(POWERS, size)
        prefix += words.hash[i] * inverse
        chars += words.chars[i]
        out.chars[i + 1] = chars
        out.prefix[i + 1] = prefix
        out.power[i + 1] = power
        out.hash[i] = words.hash[i]
    return out


@nb.njit(nogil=True, cache=True)
def top_gram(words, n, out, k, table):
    """(code points, table) of the most frequent k-gram, joined by single spaces, times its count.

    Of several with the same count the one that appears first is taken; a document whose k-grams are all
    different counts the first one once. Definition: `find_top_duplicate` of datatrove (same file), a
    `Counter.most_common(1)`. `out.hash` must hold the (k-1)-grams and holds the k-grams afterwards.
    """
    items = n - k + 1
    if items < 1:
        return 0, table
    table, shift = clear(table, items, 2)
    last = (np.uint64(1) << (np.uint64(64) - shift)) - np.uint64(1)
    best = 0
    first = 0
    for i in range(items):
        h = (out.hash[i] * MIX) ^ words.hash[i + k - 1]
        h ^= h >> np.uint64(32)
        out.hash[i] = h
        # A slot holds the key and, 32 bits each, its count and its first word; it is free if the count is 0.
        slot = (h * MIX) >> shift
        entry = slot << np.uint64(1)
        while table[entry + np.uint64(1)] != 0 and table[entry] != h:
            slot = (slot + np.uint64(1)) & last
            entry = slot << np.uint64(1)
        value = table[entry + np.uint64(1)]
        if value == 0:
            table[entry] = h
            value = np.uint64(i)
        value += np.uint64(1 << 32)
        table[entry + np.uint64(1)] = value
        count = np.int64(value >> np.uint64(32))
        if count >= best:
            begin = np.int64(value & np.uint64(0xFFFFFFFF))
            if count > best or begin < first:
                best = count
                first = begin
    return (out.chars[first + k] - out.chars[first] + k - 1) * best, table


@nb.njit(nogil=True, cache=True)
def duplicate_grams(n, out, k, table):
    """(code points, table) of the words in k-grams that have appeared before, counted from left to right.

    After such a k-gram the count goes on behind it, so no word counts twice. k-grams are equal if their
    words, written together without spaces, are. Definition: `find_all_duplicate` of datatrove (same file).
    """
    items = n - k + 1
    if items < 1:
        return 0, table
    table, shift = clear(table, items, 1)
    chars = 0
    i = 0
    while i < items:
        j = i + k
        h = (out.prefix[j] - out.prefix[i]) * out.power[j]
        if _seen(table, shift, h):
            chars += out.chars[j] - out.chars[i]
            i = j
        else:
            i += 1
    return chars, table
