"""What stands between separators: white-space words, and the lines and paragraphs between line feeds.

Nothing of `scan` is used, whose words and lines are others: these are Python's `str.split`, `str.strip` and
`str.isspace`, and the separators of fastText.
"""

from functools import cache

import numpy as np

from gristmill.tasks.kernels.buffers import block, byte
from gristmill.tasks.kernels.characters import CODE_POINTS, decode
from gristmill.tasks.kernels.compiled import nb
from gristmill.tasks.kernels.scan import continuations, hash_bytes
from gristmill.tasks.kernels.segmentation import CLASSES, IS_LETTER, IS_NUMBER, SPACE, characters

# The bits of a code point. Those of a word: LETTER, it has one (`str.isalpha`); LEADING, it begins with a letter or
# number (`str.isalnum`).
SEPARATOR, LETTER, LEADING = (np.uint8(1 << b) for b in range(3))

# Dictionary::readWord of fastText, src/dictionary.cc.
_FASTTEXT = " \n\r\t\v\f\0"


@cache
def by_white_space() -> np.ndarray:
    """Bits of every code point, the separators being those of `str.split`: uint8, (0x110000,)."""
    kinds = characters()
    return _bits(kinds % CLASSES == SPACE)


@cache
def by_fasttext() -> np.ndarray:
    """Bits of every code point, the separators being those of fastText: uint8, (0x110000,)."""
    separators = np.zeros(CODE_POINTS, bool)
    separators[list(map(ord, _FASTTEXT))] = True
    return _bits(separators)


def _bits(separators: np.ndarray) -> np.ndarray:
    kinds = characters()
    letter, number = (kinds & IS_LETTER) != 0, (kinds & IS_NUMBER) != 0
    return (separators * SEPARATOR + letter * LETTER + (letter | number) * LEADING).astype(np.uint8)


@nb.njit(nogil=True, cache=True)
def words_between(data, documents, table):
    """(bounds, start, stop, code points, bits) of the words between separators.

    The words of document d are those from bounds[d] to bounds[d + 1], at `data[start[i]:stop[i]]`: int64, int64,
    int64, int32, uint8. `table`: the bits of every code point.
    """
    # between two words stands a byte at least
    most = (documents[-1] - documents[0]) // 2 + len(documents)
    bounds = np.zeros(len(documents), np.int64)
    start, stop = np.empty((2, most), np.int64)
    chars, bits = np.empty(most, np.int32), np.empty(most, np.uint8)
    n = 0
    for d in range(len(documents) - 1):
        i, end = documents[d], documents[d + 1]
        size, some = 0, np.uint8(0)
        while i < end:
            c, following = decode(data, i)
            kind = table[c]
            if kind & SEPARATOR:
                if size:
                    stop[n], chars[n], bits[n] = i, size, some
                    n += 1
                    size = 0
            else:
                if size == 0:
                    start[n] = i
                    some = kind & LEADING
                size += 1
                some |= kind & LETTER
            i = following
        if size:
            stop[n], chars[n], bits[n] = end, size, some
            n += 1
        bounds[d + 1] = n
    return bounds, start[:n], stop[:n], chars[:n], bits[:n]


@nb.njit(nogil=True, cache=True)
def leading_words(data, documents, table):
    """How many of `words_between` begin with a letter or number, for each document: int64."""
    out = np.zeros(len(documents) - 1, np.int64)
    for d in range(len(out)):
        i, end = documents[d], documents[d + 1]
        total, parted = np.int64(0), SEPARATOR
        while i < end:
            c, i = decode(data, i)
            # no branch on where words begin, which a processor cannot foresee
            total += parted & np.uint8(table[c] // LEADING)
            parted = table[c] & SEPARATOR
        out[d] = total
    return out


def between_line_feeds(
    data: np.ndarray, documents: np.ndarray, feeds: int, table: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(bounds, start, stop, code points, hashes) of what stands between so many line feeds in a row, stripped of white
    space, where something is left.

    Of three feeds in a row the first two part, as in `re.split`. Arrays as of `words_between`; hashes are uint64.
    """
    places = np.flatnonzero(data[documents[0] : documents[-1]] == 0x0A) + documents[0]
    return _between(data, documents, places, feeds, table)


@nb.njit(nogil=True, cache=True)
def _between(data, documents, places, feeds, table):
    most = len(places) + len(documents)
    bounds = np.zeros(len(documents), np.int64)
    start, stop = np.empty((2, most), np.int64)
    chars, hashes = np.empty(most, np.int32), np.empty(most, np.uint64)
    n, at = 0, 0
    for d in range(len(documents) - 1):
        begin, end = documents[d], documents[d + 1]
        run, i = 0, begin - 1
        while i < end:
            before = i
            i = end
            if at < len(places) and places[at] < end:
                i = places[at]
                at += 1
            run = run + 1 if i == before + 1 else 1
            if run < feeds and i < end:
                continue
            first, last = _stripped(data, begin, i, table)
            begin, run = i + 1, 0
            if first < last:
                start[n], stop[n] = first, last
                chars[n], hashes[n] = _code_points(data, first, last), hash_bytes(data, first, last)
                n += 1
        bounds[d + 1] = n
    return bounds, start[:n], stop[:n], chars[:n], hashes[:n]


@nb.njit(nogil=True, cache=True)
def leading(data, start, table):
    """Which places have a letter or number: bool."""
    out = np.empty(len(start), np.bool_)
    for i in range(len(start)):
        out[i] = table[decode(data, start[i])[0]] & LEADING
    return out


@nb.njit(nogil=True, cache=True)
def _stripped(data, begin, end, table):
    """The span without separators at its ends."""
    while begin < end:
        c, following = decode(data, begin)
        if not table[c] & SEPARATOR:
            break
        begin = following
    while begin < end:
        last = end - 1
        while byte(data, last) & 0xC0 == 0x80:
            last -= 1
        if not table[decode(data, last)[0]] & SEPARATOR:
            break
        end = last
    return begin, end


@nb.njit(nogil=True, cache=True)
def _code_points(data, begin, end):
    count = 0
    i = begin
    while i + 8 <= end:
        count += 8 - continuations(block(data, i))
        i += 8
    while i < end:
        count += byte(data, i) & 0xC0 != 0x80
        i += 1
    return count
