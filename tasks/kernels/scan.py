"""Words, lines and paragraphs of a document: spans, lengths in code points, 64-bit hashes; one pass each.

A word is what `str.split()` gives: a run of code points that are not `str.isspace`. Every kernel works on the
bytes of one document, `data[begin:end]`, and writes into scratch arrays that are reused for the whole batch.
Two spans count as equal if their 64-bit hashes are: in a document of a million distinct words a pair is
wrongly taken as equal with a probability of about 3e-8.
"""

from collections import namedtuple
from functools import cache

import numba as nb
import numpy as np

from tasks.kernels import codepoints
from tasks.kernels.buffers import block, byte
from tasks.kernels.codepoints import decode

# Bits of the table that the scan reads. A rule may use the six higher ones for its own sets of characters.
SPACE = np.uint8(1)
BREAK = np.uint8(2)

# The boundaries of `str.splitlines` (Python library reference); "\r\n" is one.
LINE_BREAKS = "\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029"

# 2**64 / golden ratio, as in SplitMix64; being 5 modulo 8 it has the longest period of an odd multiplier.
BASE = np.uint64(0x9E3779B97F4A7C15)
# The odd constants of SplitMix64's finalizer (Steele, Lea, Flood 2014).
MIX = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)

# Eight bytes at once: a byte of `x` is 0 where `(x - ONES) & ~x & HIGH` has its lowest bit (Mycroft 1987).
ONES = np.uint64(0x0101010101010101)
HIGH = np.uint64(0x8080808080808080)
NEWLINES = np.uint64(0x0A0A0A0A0A0A0A0A)

Words = namedtuple("Words", "start stop chars hash bits")
Words.__doc__ = """Scratch: one entry for each word of a document.

start, stop: int64, bytes; chars: int32, code points; hash: uint64; bits: uint8, the union of the table's bits
of the word's characters, and BREAK if the word is the first one of its line.
"""

Parts = namedtuple("Parts", "chars hash")
Parts.__doc__ = "Scratch: length in code points (int64) and hash (uint64) of each part of a document."


@cache
def white_space() -> np.ndarray:
    """SPACE and BREAK of every code point: uint8, shape (0x110000,); callers add their own bits to a copy."""
    table = np.where(codepoints.classes() == codepoints.SPACE, SPACE, np.uint8(0))
    table[[ord(c) for c in LINE_BREAKS]] |= BREAK
    return table


@nb.njit(nogil=True, cache=True)
def scratch(offsets):
    """Words that fit every document: 15 bytes of address space per byte of the longest document.

    The pages are touched only as words are written, so what is held is 29 bytes per word of the longest
    document (about five per byte of English text).
    """
    size = 1
    for d in range(len(offsets) - 1):
        size = max(size, (offsets[d + 1] - offsets[d] + 1) // 2)
    return Words(
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int32),
        np.empty(size, np.uint64),
        np.empty(size, np.uint8),
    )


@nb.njit(nogil=True, cache=True)
def words(data, begin, end, table, out):
    """Fill `out` with the words of a document; returns (words, lines, code points).

    The hash of a word is the polynomial of its bytes plus one in BASE, modulo 2**64, so that hashes of
    concatenated words follow from those of the words. Lines are counted as `str.splitlines` does.
    """
    n = 0
    lines = 0
    chars = 0
    bits = BREAK
    last = 0
    i = begin
    while i < end:
        c, j = decode(data, i)
        mark = byte(table, c)
        if mark & SPACE:
            if mark & BREAK:
                if not (c == 10 and last == 13):
                    lines += 1
                bits = BREAK
            last = c
            chars += 1
            i = j
            continue
        out.start[n] = i
        size = 0
        h = np.uint64(0)
        while True:
            bits |= mark
            size += 1
            h = h * BASE + np.uint64(byte(data, i)) + np.uint64(1)
            i += 1
            while i < j:
                h = h * BASE + np.uint64(byte(data, i)) + np.uint64(1)
                i += 1
            if i >= end:
                break
            c, j = decode(data, i)
            mark = byte(table, c)
            if mark & SPACE:
                break
        out.stop[n] = i
        out.chars[n] = size
        out.hash[n] = h
        out.bits[n] = bits
        n += 1
        chars += size
        bits = np.uint8(0)
        last = 0
    if end > begin and not table[last] & BREAK:
        lines += 1
    return n, lines, chars


@nb.njit(nogil=True, cache=True)
def polynomial(data, begin, end):
    """The hash that `words` gives to a word of these bytes."""
    h = np.uint64(0)
    for i in range(begin, end):
        h = h * BASE + np.uint64(data[i]) + np.uint64(1)
    return h


@nb.njit(nogil=True, cache=True)
def line(data, begin, end):
    r"""(stop, code points, hash) of the bytes from `begin` up to the next "\n" or `end`, eight a step."""
    h = np.uint64(0)
    continuing = 0
    i = begin
    while i + 8 <= end:
        b = block(data, i)
        x = b ^ NEWLINES
        if (x - ONES) & ~x & HIGH:
            break
        continues = (b & ~(b << np.uint64(1)) & HIGH) >> np.uint64(7)
        continuing += np.int64((continues * ONES) >> np.uint64(56))
        h = (h ^ b) * MIX
        h ^= h >> np.uint64(32)
        i += 8
    left = min(end - i, 8)
    if i + 8 <= len(data):
        b = block(data, i)
    else:
        b = np.uint64(0)
        for k in range(left):
            b |= np.uint64(byte(data, i + k)) << np.uint64(8 * k)
    inside = ~np.uint64(0)
    if left < 8:
        inside = (np.uint64(1) << np.uint64(8 * left)) - np.uint64(1)
    x = b ^ NEWLINES
    x = (x - ONES) & ~x & HIGH & inside
    if x:
        inside = ((x & (~x + np.uint64(1))) >> np.uint64(7)) - np.uint64(1)
    b &= inside
    i += np.int64(((inside & ONES) * ONES) >> np.uint64(56))
    continues = (b & ~(b << np.uint64(1)) & HIGH) >> np.uint64(7)
    continuing += np.int64((continues * ONES) >> np.uint64(56))
    h = (h ^ b ^ np.uint64(i - begin) * BASE) * MIX_2
    return i, i - begin - continuing, h ^ (h >> np.uint64(31))


@nb.njit(nogil=True, cache=True)
def strip(data, begin, end, table):
    """(begin, end) without the white space at both ends, as `str.strip()` leaves it."""
    while begin < end:
        c, j = decode(data, begin)
        if not table[c] & SPACE:
            break
        begin = j
    while begin < end:
        i = end - 1
        while byte(data, i) & 0xC0 == 0x80:
            i -= 1
        c, _ = decode(data, i)
        if not table[c] & SPACE:
            break
        end = i
    return begin, end


@nb.njit(nogil=True, cache=True)
def _longer(out):
    n = len(out.hash)
    chars = np.empty(2 * n, np.int64)
    hashes = np.empty(2 * n, np.uint64)
    for i in range(n):
        chars[i] = out.chars[i]
        hashes[i] = out.hash[i]
    return Parts(chars, hashes)


@nb.njit(nogil=True, cache=True)
def parts(data, begin, end, newlines, out):
    r"""The parts that `re.split(r"\n{newlines,}", text)` gives, for 1 (lines) or 2 (paragraphs).

    An empty document is one empty part; parts are empty only at the ends. Returns (parts, `out`, or a larger
    scratch that replaces it).
    """
    n = 0
    i = begin
    chars = 0
    h = np.uint64(1)
    while True:
        stop, size, hashed = line(data, i, end)
        chars += size
        h = h * BASE + hashed
        i = stop
        while i < end and byte(data, i) == 10:
            i += 1
        if 0 < i - stop < newlines:
            chars += i - stop
            continue
        if n == len(out.hash):
            out = _longer(out)
        out.chars[n] = chars
        out.hash[n] = h
        n += 1
        if i == stop:
            return n, out
        chars = 0
        h = np.uint64(1)
