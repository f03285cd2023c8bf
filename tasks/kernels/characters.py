"""Properties of Unicode code points as flat tables, the UTF-8 decoder that indexes them, and what words consist of.

Letters, marks and digits are parts of words, lower-cased code point by code point. What Unicode shows by nothing
(INVISIBLE) leaves no trace: neither does it part words nor is it a part of them. Everything else separates.

Scripts without spaces (UNSPACED) part no words. In them each letter, mark and digit is a word of its own. They are the
scripts whose letters have the Line_Break classes SA, ID, CJ, AK and AS, so that a line may end between two of them
(UAX #14): Ahom, Balinese, Batak, Bopomofo, Brahmi, Cham, Grantha, Han, Hiragana, Javanese, Katakana, Kawi, Khmer, Lao,
Makasar, Myanmar, New Tai Lue, Nushu, Tai Le, Tai Tham, Tai Viet, Tangut, Thai, Yi; and of Common and Inherited what
these alone use by Script_Extensions, as the prolonged sound mark. Not Tibetan, which parts syllables by a tsheg, nor
Hangul, which has spaces.

Other marks without a script are what they are elsewhere, letters of words: behind a character of these scripts, as a
variation selector (U+FE00 to U+FE0F) or an accent, they are a word. Composed and decomposed forms are unlike, as in all
scripts: the step `normalize` makes them one (NFC).
"""

import unicodedata
from functools import cache

import numpy as np

from gristmill.tasks.kernels.buffers import byte
from gristmill.tasks.kernels.compiled import nb

CODE_POINTS = 0x110000

SPACE, LETTER, MARK, DIGIT, PUNCTUATION, SYMBOL, OTHER = range(7)

_BY_CATEGORY = {"L": LETTER, "M": MARK, "N": DIGIT, "P": PUNCTUATION, "S": SYMBOL, "Z": SPACE, "C": OTHER}
_CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn".split()


def classify(character: str) -> int:
    """The class of one character: `str.isspace` first, then the major general category (Unicode, UAX #44)."""
    return SPACE if character.isspace() else _BY_CATEGORY[unicodedata.category(character)[0]]


# Code points that may be something else than OTHER, or have a lower case: planes 0 to 3 and 14 hold all that Unicode
# has assigned, and 15 and 16 are private use (Unicode, 2.8 and 23.5). A test compares the tables with all code points.
_ASSIGNED = (range(0x40000), range(0xE0000, 0xF0000))
_CASED = range(0x20000)


@cache
def classes() -> np.ndarray:
    """Class of every code point: uint8, shape (0x110000,), 1.1 MB, made once per process (see `classify`)."""
    by_category = {category: _BY_CATEGORY[category[0]] for category in _CATEGORIES}
    table = np.full(CODE_POINTS, OTHER, np.uint8)
    for points in _ASSIGNED:
        characters = "".join(map(chr, points))
        general = map(unicodedata.category, characters)
        found = np.fromiter(map(by_category.__getitem__, general), np.uint8, len(points))
        found[np.fromiter(map(str.isspace, characters), np.bool_, len(points))] = SPACE
        table[points.start : points.stop] = found
    return table


@cache
def lowercase() -> np.ndarray:
    """Lower case of every code point if that is a single code point, else itself: uint32, (0x110000,)."""
    table = np.arange(CODE_POINTS, dtype=np.uint32)
    lower = list(map(str.lower, map(chr, _CASED)))
    table[: len(_CASED)] = [ord(one) if len(one) == 1 else c for c, one in enumerate(lower)]
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


# Default_Ignorable_Code_Point (DerivedCoreProperties.txt) among formats (Cf) and in plane 14: soft hyphen, zero-width
# space, joiner and non-joiner, word joiner, byte order mark, directional marks; tags, ideographic variation selectors.
INVISIBLE = "AD 61C 180E 200B-200F 202A-202E 2060-206F FEFF 1BCA0-1BCA3 1D173-1D17A E0000-E0FFF"
# Scripts.txt, ScriptExtensions.txt. Ranges end with blocks where nothing but symbols and punctuation lies between.
UNSPACED = (
    "E01-EDF 1000-109D 1780-17F9 1950-19DA 1A20-1AA7 1B00-1B73 1BC0-1BF3 3005-302D 3031-312F 3192-3229 3280-3289 "
    "3400-A48C A980-AADD F900-FAD9 FF66-FF9F 11000-1107F 11300-11339 1133C-11374 116D0-116E3 11700-11746 11EE0-11EF6 "
    "11F00-11F5A 16FE0-16FE3 16FF0-18AFF 18D00-1B2FB 1D360-1D371 20000-3FFFD"
)
NO_TRACE = np.uint32(0xFFFFFFFF)


def among(ranges: str) -> np.ndarray:
    """Whether each code point is in a list as the Unicode Character Database writes it: bool, (0x110000,)."""
    found = np.zeros(CODE_POINTS, bool)
    for span in ranges.split():
        first, _, last = span.partition("-")
        found[int(first, 16) : int(last or first, 16) + 1] = True
    return found


@cache
def word_characters() -> np.ndarray:
    """Lower case of every code point that is part of words, NO_TRACE, or 0 for all others: uint32, (0x110000,), 4.5 MB.

    Made once per process.
    """
    lower = np.where(np.isin(classes(), (LETTER, MARK, DIGIT)), lowercase(), np.uint32(0)).astype(np.uint32)
    lower[among(INVISIBLE)] = NO_TRACE
    return lower


@cache
def written(unspaced: bool) -> np.ndarray:
    """What of every code point is written between words: uint64, (0x110000,), 9 MB, made once per process.

    The lowest six bytes are the UTF-8 of `word_characters`, or a zero for what separates; with `unspaced` a zero
    stands before and behind each character of UNSPACED. The highest byte is how many bytes that are.
    """
    lower = word_characters()
    points = np.flatnonzero((lower != 0) & (lower != NO_TRACE))
    c = lower[points].astype(np.uint64)
    last, third, second = (np.uint64(0x80) | c >> np.uint64(shift) & np.uint64(0x3F) for shift in (0, 6, 12))

    def joined(*values: np.ndarray) -> np.ndarray:
        return np.bitwise_or.reduce([value << np.uint64(8 * k) for k, value in enumerate(values)])

    two = joined(np.uint64(0xC0) | c >> np.uint64(6), last)
    three = joined(np.uint64(0xE0) | c >> np.uint64(12), third, last)
    four = joined(np.uint64(0xF0) | c >> np.uint64(18), second, third, last)
    text = np.select([c < 0x80, c < 0x800, c < 0x10000], [c, two, three], four)
    size = np.select([c < 0x80, c < 0x800, c < 0x10000], [1, 2, 3], 4).astype(np.uint64)
    if unspaced:
        alone = among(UNSPACED)[points]
        text = np.where(alone, text << np.uint64(8), text)
        size = np.where(alone, size + np.uint64(2), size)
    table = np.where(lower == NO_TRACE, np.uint64(0), np.uint64(1 << 56))
    table[points] = text | size << np.uint64(56)
    return table
