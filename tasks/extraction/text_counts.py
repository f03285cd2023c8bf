"""Counts in the text of a block: characters, words, ends of sentences, and the words that menus and notices have."""

from typing import NamedTuple

import numba as nb
import numpy as np

from gristmill.tasks.extraction.vocabulary import CUES, EDGE, FNV, PRIME, SYMBOLS, automaton
from gristmill.tasks.kernels.buffers import byte

_CUES, _CUE_BITS = automaton(CUES, True)


class TextCounts(NamedTuple):
    """Counts in the text of each block, float32.

    chars: code points that are no white space, an entity counting as one. words: what white space separates. marks:
    ends of sentences. upper: words that begin with a capital; short: words of at most three small letters. foreign:
    code points beyond ASCII. ending: how it ends (3 like a sentence, 2 like a clause, 1 with a colon, 0 otherwise).
    lower: it begins with a small letter. year: words of four digits. signs: separators such as `|`. title: words that
    the page's title has too.
    """

    chars: np.ndarray
    words: np.ndarray
    marks: np.ndarray
    commas: np.ndarray
    digits: np.ndarray
    upper: np.ndarray
    short: np.ndarray
    foreign: np.ndarray
    ending: np.ndarray
    lower: np.ndarray
    lines: np.ndarray
    year: np.ndarray
    signs: np.ndarray
    title: np.ndarray


@nb.njit(nogil=True, cache=True)
def title_words(data, begin, end):
    """A hash table (uint64, 64 slots, 0 for none) of the words of more than three characters in a page's title."""
    words = np.zeros(64, np.uint64)
    h = FNV
    size = 0
    for i in range(begin, end + 1):
        b = byte(data, i) if i < end else np.uint8(32)
        if b >= 128 or SYMBOLS[b] != EDGE or 48 <= b <= 57:
            h = (h ^ np.uint64(b | 32 if 65 <= b <= 90 else b)) * PRIME
            size += 1
        elif size:
            if size > 3:
                slot = np.int64(h & np.uint64(63))
                for _ in range(8):
                    if words[slot] == 0 or words[slot] == h:
                        words[slot] = h
                        break
                    slot = (slot + 1) & 63
            h = FNV
            size = 0
    return words


@nb.njit(nogil=True, cache=True)
def count_text(text, begin, end, titled, out, k):
    """Fill entry `k` of `out`, a `TextCounts`, from `text[begin:end]`; returns (bits of CUES, hash of the text).

    titled: of `title_words`.
    """
    cues = np.uint64(0)
    whole = FNV
    state = np.int64(_CUES[0, EDGE])
    word = FNV
    letters = 0
    smalls = 0
    digits = 0
    inside = False
    first = True
    last = np.uint8(0)
    i = begin
    while i <= end:
        b = byte(text, i) if i < end else np.uint8(32)
        space = b <= 32
        symbol = SYMBOLS[b]
        if i < end or symbol == EDGE:
            following = np.int64(_CUES[state, symbol])
            if not (symbol == EDGE and space and last <= 32):
                state = following
                cues |= _CUE_BITS[state]
        if space:
            if inside:
                out.words[k] += 1
                if smalls == letters and 0 < letters <= 3:
                    out.short[k] += 1
                if last == 46 or last == 33 or last == 63:
                    out.marks[k] += 1
                if digits == 4 and letters == 0:
                    out.year[k] += 1
                inside = False
            if letters + digits > 3:
                slot = np.int64(word & np.uint64(63))
                for _ in range(8):
                    if titled[slot] == word:
                        out.title[k] += 1
                        break
                    if titled[slot] == 0:
                        break
                    slot = (slot + 1) & 63
            word = FNV
            letters = smalls = digits = 0
            if b == 10 and i < end:
                out.lines[k] += 1
            last = b
            i += 1
            continue
        whole = (whole ^ np.uint64(b)) * PRIME
        if b == 38:  # an entity is one character
            j = i + 1
            while (
                j < end
                and j < i + 10
                and (SYMBOLS[byte(text, j)] != EDGE or 48 <= byte(text, j) <= 57 or byte(text, j) == 35)
            ):
                j += 1
            if j < end and byte(text, j) == 59 and j > i + 1:
                i = j
        out.chars[k] += (b & 0xC0) != 0x80
        if not inside:
            inside = True
            if 65 <= b <= 90:
                out.upper[k] += 1
            if first:
                out.lower[k] = 97 <= b <= 122
                first = False
        if symbol != EDGE or b >= 128:
            letters += (b & 0xC0) != 0x80
            smalls += 97 <= b <= 122
            word = (word ^ np.uint64(b | 32 if 65 <= b <= 90 else b)) * PRIME
            out.foreign[k] += b >= 0xC0
            if b == 0xE3 and i + 2 < end and byte(text, i + 1) == 0x80:
                out.marks[k] += byte(text, i + 2) == 0x82
                out.commas[k] += byte(text, i + 2) == 0x81
            elif b == 0xEF and i + 2 < end and byte(text, i + 1) == 0xBC:
                out.marks[k] += byte(text, i + 2) == 0x81 or byte(text, i + 2) == 0x9F
                out.commas[k] += byte(text, i + 2) == 0x8C
        elif 48 <= b <= 57:
            digits += 1
            out.digits[k] += 1
            word = (word ^ np.uint64(b)) * PRIME
        elif b == 44 or b == 59:
            out.commas[k] += 1
        elif b == 124 or b == 62 or b == 47 or b == 42:
            out.signs[k] += 1
        last = b
        i += 1
    i = end - 1
    while i > begin and (byte(text, i) == 34 or byte(text, i) == 41 or byte(text, i) == 39 or byte(text, i) <= 32):
        i -= 1
    b = byte(text, i) if i >= begin else np.uint8(0)
    if b == 46 or b == 33 or b == 63 or b == 0x82:
        out.ending[k] = 3
    elif b == 44 or b == 59:
        out.ending[k] = 2
    elif b == 58:
        out.ending[k] = 1
    return cues, whole
