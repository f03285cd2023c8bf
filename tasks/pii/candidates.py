"""Where personal data may stand: one pass over the bytes of a batch, which most text leaves without a candidate.

What a candidate is, is decided by single characters only (shapes below); whether it is personal data is decided by
the modules of the kinds, which look at candidates alone. Every byte is visited at most a fixed number of times, so
that the pass is linear in the text whatever stands in it.
"""

from dataclasses import dataclass
from functools import cache

import numba as nb
import numpy as np

from tasks.kernels.buffers import byte

# The shapes.
MAILBOX = 0  # local part, @, domain with a point in it
QUAD = 1  # four groups of one to three digits with points between them
HEXTETS = 2  # four hexadecimal digits, the first 2 or 3, not behind a colon; then more of them and two colons
NUMBER = 3  # 7 or more digits in groups, in which only a phone or card number's separators stand
ACCOUNT = 4  # two capital letters, two digits, then capital letters and digits, 15 or more in all
KEY = 5  # 20 or more characters of a key, the first three of them like a known key's

# Bits of a byte's class.
_WORD = np.uint8(1)  # ASCII letter, digit, underscore
_DIGIT = np.uint8(2)
_LOCAL = np.uint8(4)  # may stand in the local part of an address
_DOMAIN = np.uint8(8)  # may stand in its domain
_HEX = np.uint8(16)
_UPPER = np.uint8(32)
_KEY = np.uint8(64)  # may stand in a key

_LONGEST_LOCAL = 64  # RFC 5321, 4.5.3.1
_LONGEST_DOMAIN = 255
_SHORTEST_ACCOUNT, _LONGEST_ACCOUNT = 15, 34  # ISO 13616
_LONGEST_HEXTETS = 45  # RFC 4291 with an IPv4 address at the end
_SHORTEST_KEY, _LONGEST_KEY = 20, 400
_LONGEST_NUMBER = 64  # a longer one is a row of a table or a matrix
_FEWEST_DIGITS = 7


@cache
def _classes() -> np.ndarray:
    table = np.zeros(256, np.uint8)
    letters = b"abcdefghijklmnopqrstuvwxyz"
    digits = b"0123456789"
    alphanumeric = letters + letters.upper() + digits
    for bit, members in (
        (_WORD, alphanumeric + b"_"),
        (_DIGIT, digits),
        (_LOCAL, alphanumeric + b"._%+-"),
        (_DOMAIN, alphanumeric + b".-"),
        (_HEX, digits + b"abcdefABCDEF"),
        (_UPPER, letters.upper()),
        (_KEY, alphanumeric + b"_-."),
    ):
        table[list(members)] |= bit
    return table


@nb.njit(nogil=True, cache=True)
def _has(data, i, classes, bit):
    """Whether the byte at `i` is of the class `bit`; `i` may be beside the text."""
    return 0 <= i < len(data) and (byte(classes, np.int64(byte(data, i))) & bit) != 0


@nb.njit(nogil=True, cache=True)
def _run(data, i, end, classes, bit):
    """The end of the run of bytes of the class `bit` that begins at `i`."""
    while i < end and byte(classes, np.int64(byte(data, i))) & bit:
        i += 1
    return i


@nb.njit(nogil=True, cache=True)
def _mailbox(data, begin, at, end, classes):
    """(start, stop) of the address around the @ at `at`; the stop is 0 if there is none."""
    left = at
    while left > begin and at - left <= _LONGEST_LOCAL and _has(data, left - 1, classes, _LOCAL):
        left -= 1
    right = _run(data, at + 1, min(end, at + 2 + _LONGEST_DOMAIN), classes, _DOMAIN)
    point = False
    for i in range(at + 2, right):
        point |= byte(data, i) == 0x2E
    fits = point and 0 < at - left <= _LONGEST_LOCAL and right - at - 1 <= _LONGEST_DOMAIN
    return left, right if fits else 0


@nb.njit(nogil=True, cache=True)
def _account(data, start, end, classes):
    """The stop of the account number at `start`, with single spaces in it; 0 if there is none."""
    for k in range(4):
        if not _has(data, start + k, classes, _UPPER if k < 2 else _DIGIT):
            return 0
    size = 0
    stop = i = start
    while i < end and size < _LONGEST_ACCOUNT:
        if _has(data, i, classes, _UPPER | _DIGIT):
            size += 1
            stop = i + 1
        elif byte(data, i) != 0x20 or stop != i:
            break
        i += 1
    return stop if size >= _SHORTEST_ACCOUNT else 0


@nb.njit(nogil=True, cache=True)
def _hextets(data, begin, start, end, classes):
    """The stop of the hexadecimal groups from `start` on; 0 if they are none."""
    b = byte(data, start)
    if (b != 0x32 and b != 0x33) or (start > begin and byte(data, start - 1) == 0x3A):
        return 0
    colons = 0
    i = start
    while i < end and i - start < _LONGEST_HEXTETS and (_has(data, i, classes, _HEX) or byte(data, i) == 0x3A):
        colons += byte(data, i) == 0x3A
        i += 1
    return i if colons >= 2 else 0


@nb.njit(nogil=True, cache=True)
def _quad(data, start, end, classes):
    """The stop of the four groups of digits from `start` on; 0 if they are none."""
    i = start
    for k in range(4):
        stop = _run(data, i, min(end, i + 4), classes, _DIGIT)
        if not 1 <= stop - i <= 3:
            return 0
        if k == 3:
            return stop
        if stop >= end or byte(data, stop) != 0x2E:
            return 0
        i = stop + 1
    return 0


@nb.njit(nogil=True, cache=True)
def _separator(data, i, end):
    """Length of the separator of a number at `i`, or 0: space - . / ( ), no-break space, U+2010 to U+2015."""
    if i >= end:
        return 0
    b = byte(data, i)
    if b == 0x20 or b == 0x2D or b == 0x2E or b == 0x2F or b == 0x28 or b == 0x29:
        return 1
    if b == 0xC2 and i + 1 < end and byte(data, i + 1) == 0xA0:
        return 2
    if b == 0xE2 and i + 2 < end and byte(data, i + 1) == 0x80:
        return 3 if 0x90 <= byte(data, i + 2) <= 0x95 else 0
    return 0


@nb.njit(nogil=True, cache=True)
def _next_group(data, i, end, classes, signed):
    """Where the next group of digits of a number begins, whose last one ends at `i`; -1 if that was its last.

    Between two stand one to four separators. A parenthesis behind a space opens another number, unless this one has
    had its country code only.
    """
    for _ in range(4):
        size = _separator(data, i, end)
        if not size:
            return -1
        i += size
        if i < end and _has(data, i, classes, _DIGIT):
            if byte(data, i - 1) == 0x28 and byte(data, i - 2) == 0x20 and not signed:
                return -1
            stop = _run(data, i, end, classes, _DIGIT)
            return -1 if stop < end and _has(data, stop, classes, _WORD) else i
    return -1


@nb.njit(nogil=True, cache=True)
def _begins(data, i, pairs):
    """Whether the first and second byte, and the second and third, are those of a key."""
    a, b, c = np.int64(byte(data, i)), np.int64(byte(data, i + 1)), np.int64(byte(data, i + 2))
    return (byte(pairs, a << 8 | b) & 1) != 0 and (byte(pairs, b << 8 | c) & 2) != 0


@nb.njit(nogil=True, cache=True)
def _put(columns, found, document, start, stop, shape):
    """The number of candidates with this one, which is written down if there is room."""
    if found < columns.shape[1]:
        columns[0, found] = document
        columns[1, found] = start
        columns[2, found] = stop
        columns[3, found] = shape
    return found + 1


@nb.njit(nogil=True, cache=True)
def _find(data, documents, classes, pairs, columns):
    """Fill `columns`, int64 of shape (4, room): documents, starts, stops, shapes; returns how many there are."""
    found = 0
    for d in range(len(documents) - 1):
        begin, end = documents[d], documents[d + 1]
        i = begin
        while i < end:
            b = byte(data, i)
            if not byte(classes, np.int64(b)) & _WORD:
                if b == 0x40:
                    start, stop = _mailbox(data, begin, i, end, classes)
                    if stop:
                        found = _put(columns, found, d, start, stop, MAILBOX)
                i += 1
                continue
            first = i
            some = np.uint8(0)
            every = np.uint8(255)
            while i < end:
                c = byte(classes, np.int64(byte(data, i)))
                if not c & _WORD:
                    break
                some |= c
                every &= c
                i += 1
            if first + _SHORTEST_KEY <= end and _begins(data, first, pairs):
                # it must begin a run of a key's characters: so no byte is looked at for two keys
                if first == begin or not _has(data, first - 1, classes, _KEY):
                    stop = _run(data, first, min(end, first + _LONGEST_KEY), classes, _KEY)
                    if stop - first >= _SHORTEST_KEY:
                        found = _put(columns, found, d, first, stop, KEY)
            if not some & _DIGIT:
                continue
            if not every & _DIGIT:
                stop = _hextets(data, begin, first, end, classes) if i - first == 4 and every & _HEX else 0
                if stop:
                    found = _put(columns, found, d, first, stop, HEXTETS)
                stop = _account(data, first, end, classes) if i - first >= 4 else 0
                if stop:
                    found = _put(columns, found, d, first, stop, ACCOUNT)
                continue
            signed = first > begin and byte(data, first - 1) == 0x2B
            group = first
            digits = 0
            while group >= 0:
                i = _run(data, group, end, classes, _DIGIT)
                digits += i - group
                stop = _hextets(data, begin, group, end, classes) if i - group == 4 else 0
                if stop:
                    found = _put(columns, found, d, group, stop, HEXTETS)
                stop = _quad(data, group, end, classes)
                if stop and (group == begin or byte(data, group - 1) != 0x2E):
                    found = _put(columns, found, d, group, stop, QUAD)
                group = _next_group(data, i, end, classes, signed and group == first)
            if digits >= _FEWEST_DIGITS and i - first <= _LONGEST_NUMBER:
                found = _put(columns, found, d, first, i, NUMBER)
    return found


@dataclass(frozen=True)
class Candidates:
    """Bytes `start` to `stop` of the batch's data, in document `document`, have the shape `shape`; all int64."""

    document: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    shape: np.ndarray


def candidates(data: np.ndarray, documents: np.ndarray, key_beginnings: tuple[bytes, ...]) -> Candidates:
    """The candidates in the texts `data[documents[d]:documents[d + 1]]`; `key_beginnings`: of all known keys.

    Holds 32 bytes for every candidate or every 64 bytes of text, whichever are more.
    """
    pairs = np.zeros(1 << 16, np.uint8)
    for beginning in key_beginnings:
        pairs[int.from_bytes(beginning[:2], "big")] |= 1
        pairs[int.from_bytes(beginning[1:3], "big")] |= 2
    room = len(data) // 64 + 256
    while True:
        columns = np.empty((4, room), np.int64)
        found = _find(data, documents, _classes(), pairs, columns)
        if found <= room:
            return Candidates(*columns[:, :found])
        room = found
