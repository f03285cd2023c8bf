"""Properties of Unicode code points as flat tables, and the UTF-8 decoder that indexes them."""

import unicodedata
from functools import cache

import numba as nb
import numpy as np

from gristmill.tasks.kernels.buffers import byte

CODE_POINTS = 0x110000

SPACE, LETTER, MARK, DIGIT, PUNCTUATION, SYMBOL, OTHER = range(7)

_BY_CATEGORY = {"L": LETTER, "M": MARK, "N": DIGIT, "P": PUNCTUATION, "S": SYMBOL, "Z": SPACE, "C": OTHER}
_CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn".split()


def classify(character: str) -> int:
    """The class of one character: `str.isspace` first, then the major general category (Unicode, UAX #44)."""
    return SPACE if character.isspace() else _BY_CATEGORY[unicodedata.category(character)[0]]


@cache
def classes() -> np.ndarray:
    """Class of every code point: uint8, shape (0x110000,), 1.1 MB, made once per process (see `classify`)."""
    general = map(unicodedata.category, map(chr, range(CODE_POINTS)))
    by_category = {category: _BY_CATEGORY[category[0]] for category in _CATEGORIES}
    table = np.fromiter(map(by_category.__getitem__, general), np.uint8, CODE_POINTS)
    spaces = np.fromiter(map(str.isspace, map(chr, range(CODE_POINTS))), np.bool_, CODE_POINTS)
    table[spaces] = SPACE
    return table


@cache
def lowercase() -> np.ndarray:
    """Lower case of every code point if that is a single code point, else itself: uint32, (0x110000,)."""
    table = np.arange(CODE_POINTS, dtype=np.uint32)
    for c in range(CODE_POINTS):
        lower = chr(c).lower()
        if len(lower) == 1:
            table[c] = ord(lower)
    return table


@nb.njit(nogil=True, cache=True)
def decode(data, i):
    """(code point, next index), int64, of the UTF-8 sequence at `i`, which Arrow has validated before."""
    b = np.int64(byte(data, i))
    if b < 0x80:
        return b, i + 1
    c = np.int64(byte(data, i + 1)) & 0x3F
    if b < 0xE0:
        return (b & 0x1F) << 6 | c, i + 2
    c = c << 6 | np.int64(byte(data, i + 2)) & 0x3F
    if b < 0xF0:
        return (b & 0x0F) << 12 | c, i + 3
    return (b & 0x07) << 18 | c << 6 | np.int64(byte(data, i + 3)) & 0x3F, i + 4
