"""Sentences of lines by Punkt (Kiss and Strunk 2006) with the English model of NLTK, by which C4 and FineWeb were made.

Punkt looks at one mark at a time: at the word before it and at the one behind. Behind a word of two letters or more
that is no abbreviation a sentence ends, whatever follows. These marks are found by a kernel; the library is asked
about what stands between two of them, and only if that has another mark. So the numbers are the library's.
"""

from functools import cache

import numba as nb
import numpy as np
from punkt import PunktSentenceTokenizer, load_model

from tasks.kernels.buffers import byte

_LONGEST = 8  # bytes of a word that is compared with abbreviations: those of a machine word
_FULL_STOP, _SPACE = 0x2E, 0x20

# What a byte may be.
_LETTER, _DIGIT, _INNER, _MARK = (np.uint8(1 << b) for b in range(4))


def sentences(data: np.ndarray, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """Sentences in each of the lines `data[start[i]:stop[i]]` of UTF-8, which have no break inside: int64."""
    splitter, abbreviations = _punkt()
    counts, line, begin, end = _known(data, start, stop, _kinds(), abbreviations)
    for i, a, b in zip(line.tolist(), begin.tolist(), end.tolist(), strict=True):
        counts[i] += sum(1 for _ in splitter.span_tokenize(data[a:b].tobytes().decode()))
    return counts


@cache
def _punkt() -> tuple[PunktSentenceTokenizer, np.ndarray]:
    """The splitter; its abbreviations that are words of ASCII letters, as `_known` writes them: uint64, sorted."""
    model = load_model("english")
    words = [word.encode() for word in model.abbrev_types if word.isascii() and word.isalpha()]
    words += [first.encode() for first, _ in model.collocations if first.isascii() and first.isalpha()]
    if long := [word for word in words if len(word) > _LONGEST]:
        raise ValueError(f"Punkt's abbreviation {long[0]!r} has more than {_LONGEST} letters; raise _LONGEST")
    return PunktSentenceTokenizer(model), np.unique([int.from_bytes(word, "big") for word in words]).astype(np.uint64)


@cache
def _kinds() -> np.ndarray:
    """Kind of each byte, uint8. A letter is one of ASCII, or a byte of U+00C0 to U+04FF, among which is no white space,
    digit or mark for Punkt; inner are those behind which a mark ends nothing, as in 3.14 and example.com."""
    kinds = np.zeros(256, np.uint8)
    kinds[[b for b in range(128) if chr(b).isalpha()]] = _LETTER
    kinds[0x80:0xC0] = kinds[0xC3:0xD4] = _LETTER
    kinds[[b for b in range(128) if chr(b).isdigit()]] = _DIGIT
    kinds[list(b",/_=%&+")] = _INNER
    kinds[list(b".?!")] = _MARK
    return kinds


@nb.njit(nogil=True, cache=True)
def _known(data, start, stop, kinds, abbreviations):
    """(sentences of each line that are known; line, start, stop of each piece that has others): int64 all."""
    counts = np.zeros(len(start), np.int64)
    most = 0
    for m in range(len(start)):
        for i in range(start[m], stop[m]):
            most += kinds[byte(data, i)] == _MARK
    line, begins, ends = np.empty((3, most + len(start)), np.int64)
    n = 0
    for m in range(len(start)):
        begin, i = start[m], start[m]
        known = True
        real = False  # has a letter or digit: a piece without one may be no sentence
        word = i  # where the run without spaces began, if it is of letters only, else -1
        while i < stop[m]:
            b = byte(data, i)
            kind = kinds[b]
            if kind & (_LETTER | _DIGIT):
                real |= b < 0x80 or b >= 0xC3
                if kind == _DIGIT:
                    word = -1
            elif b == _SPACE:
                word = i + 1
            elif kind == _MARK and i + 1 < stop[m]:
                after = byte(data, i + 1)
                if after == _SPACE:
                    k = i + 2
                    while k < stop[m] and byte(data, k) == _SPACE:
                        k += 1
                    if k < stop[m]:
                        ended = word >= 0 and i - word >= 1 and _starts(byte(data, k), kinds)
                        if ended and b == _FULL_STOP:
                            ended = not _may_be_short(data, word, i, abbreviations)
                        if ended:
                            if known:
                                counts[m] += 1
                            else:
                                line[n], begins[n], ends[n] = m, begin, i + 1
                                n += 1
                            begin, word, known, real = k, k, True, False
                            i = k
                            continue
                        known = False
                elif not (kinds[after] & (_DIGIT | _INNER) or (kinds[after] == _LETTER and _starts(after, kinds))):
                    known = False
                word = -1
            else:
                word = -1
            i += 1
        if known and real:
            counts[m] += 1
        elif begin < stop[m]:
            line[n], begins[n], ends[n] = m, begin, stop[m]
            n += 1
    return counts, line[:n], begins[:n], ends[:n]


@nb.njit(nogil=True, cache=True)
def _starts(b, kinds):
    """Whether this is the first byte of a letter, or a digit: what Punkt never moves to the sentence before."""
    return kinds[b] == _DIGIT or (kinds[b] == _LETTER and (b < 0x80 or b >= 0xC3))


@nb.njit(nogil=True, cache=True)
def _may_be_short(data, start, stop, abbreviations):
    """Whether a word of letters is one letter, or one of the abbreviations."""
    size = 0
    word = np.uint64(0)
    for i in range(start, stop):
        b = byte(data, i)
        size += b < 0x80 or b >= 0xC0
        word = word << np.uint64(8) | np.uint64(b | 0x20)
    if size < 2 or stop - start > _LONGEST:
        return size < 2
    low, high = 0, len(abbreviations)
    while low < high:
        middle = (low + high) // 2
        if abbreviations[middle] < word:
            low = middle + 1
        else:
            high = middle
    return low < len(abbreviations) and abbreviations[low] == word
