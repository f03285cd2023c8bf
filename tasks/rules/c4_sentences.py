"""Sentences of lines by Punkt (Kiss and Strunk 2006) with the English model of NLTK, by which C4 and FineWeb were made.

Punkt looks at one mark at a time: at the word before it and at the one behind. A sentence ends behind a word of two
letters or more that is no abbreviation, behind a bracket or quote that closes, and behind a number before a capital,
whatever else stands around. Such marks are found by a kernel; the library is asked about what stands between two of
them, and only if that has another mark. So the numbers are the library's.

NLTK itself differs in one thing: of several marks at the end of a line, as in `Wow!!!`, it takes the last for a
sentence.
"""

import re
from functools import cache

import numpy as np
from punkt import PunktSentenceTokenizer, load_model

from gristmill.tasks.kernels.buffers import byte
from gristmill.tasks.kernels.compiled import nb
from gristmill.tasks.kernels.scan import FIELD

_WORD_BYTES = 8  # bytes of a word that are compared with those of the model: those of a machine word
_FULL_STOP, _SPACE = 0x2E, 0x20
# Marks that stand alone one behind the other, as in "! ! ! !": only its ends have neighbors that decide anything.
_ALONE = re.compile(r"((?:[?!] ){2})(?:[?!] )+((?:[?!] ){2})")

# What a byte may be. Apart are those that Punkt never has inside a word; some of them close a sentence.
_LETTER, _DIGIT, _INNER, _MARK, _APART, _CLOSING, _HYPHEN, _OTHER = (np.uint8(1 << b) for b in range(8))


def sentences(data: np.ndarray, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """Sentences in each of the lines `data[start[i]:stop[i]]` of UTF-8, which have no break inside: int64."""
    splitter, short, after_numbers = _punkt()
    counts, line, begin, end = _known(data, start, stop, _kinds(), short, after_numbers)
    for i, a, b in zip(line.tolist(), begin.tolist(), end.tolist(), strict=True):
        piece = _ALONE.sub(r"\1\2", data[a:b].tobytes().decode())
        counts[i] += sum(1 for _ in splitter.span_tokenize(piece))
    return counts


@cache
def _punkt() -> tuple[PunktSentenceTokenizer, np.ndarray, np.ndarray]:
    """The splitter; the words behind which a full stop may end nothing, and those before which one behind a number
    may not: their first eight letters, up to another character, as a number (uint64), sorted."""
    model = load_model("english")
    short = [*model.abbrev_types, *(first for first, _ in model.collocations)]
    after_numbers = [second for _, second in model.collocations]
    return PunktSentenceTokenizer(model), _words(short), _words(after_numbers)


def _words(words: list[str]) -> np.ndarray:
    letters = [re.match("[a-z]*", word)[0].encode()[:_WORD_BYTES] for word in words]  # type: ignore[index]  # it may be empty
    return np.unique([int.from_bytes(word, "big") for word in letters]).astype(np.uint64)


@cache
def _kinds() -> np.ndarray:
    """Kind of each byte, uint8. A letter is one of ASCII, or a byte of U+00C0 to U+04FF, among which is no white space,
    digit or mark for Punkt; inner are those behind which a mark ends nothing, as in 3.14 and example.com."""
    kinds = np.full(256, _OTHER)
    kinds[[b for b in range(128) if chr(b).isalpha()]] = _LETTER
    kinds[0x80:0xC0] = kinds[0xC3:0xD4] = _LETTER
    kinds[[b for b in range(128) if chr(b).isdigit()]] = _DIGIT
    kinds[list(b",/_=%&+")] = _INNER
    kinds[list(b".?!")] = _MARK
    kinds[list(b";*:@({[")] = _APART
    kinds[list(b")\"}]'")] = _APART | _CLOSING
    kinds[ord("-")] = _HYPHEN
    return kinds


@nb.njit(nogil=True, cache=True)
def _known(data, start, stop, kinds, short, after_numbers):
    """(sentences of each line that are known; line, start, stop of each piece that has others): int64 all."""
    counts = np.zeros(len(start), np.int64)
    most = 0
    for m in range(len(start)):
        for i in range(start[m], stop[m]):
            most += kinds[byte(data, i)] == _MARK
    line, begins, ends = np.empty((3, most + len(start)), np.int64)
    n = 0
    for m in range(len(start)):
        begin, i, end = start[m], start[m], stop[m]
        is_known = True
        real = False  # has a letter or digit: a piece without one may be no sentence
        word, inside = i, np.uint8(0)  # the word before: where it begins, and the kinds of its bytes
        parted = False  # the run without white space has a mark that may end a sentence inside
        while i < end:
            b = byte(data, i)
            kind = kinds[b]
            if kind & (_LETTER | _DIGIT):
                real |= b < 0x80 or b >= 0xC3
                inside |= kind
                i += 1
            elif kind & (_APART | _HYPHEN) or b == _SPACE:
                parted &= b != _SPACE
                i += 1
                word, inside = i, np.uint8(0)
            elif kind != _MARK:
                size = _quote(data, i, end)[0]
                if size:
                    word, inside = i + size, np.uint8(0)
                else:
                    inside |= _OTHER
                i += max(size, 1)
            elif i + 1 == end:
                i += 1
            elif kinds[byte(data, i + 1)] & (_LETTER | _DIGIT | _INNER):
                inside |= _OTHER
                i += 1
            else:
                behind = _behind_closing(data, i + 1, end, kinds)
                k = behind
                while k < end and byte(data, k) == _SPACE:
                    k += 1
                if k == end and (behind == end or behind == i + 1):
                    break  # what follows, if anything, belongs to this sentence
                if behind < k < end and real and not parted and _begins(data, k, end, kinds):
                    if _ends(data, word, i, inside, behind, k, end, kinds, short, after_numbers):
                        if is_known:
                            counts[m] += 1
                        else:
                            line[n], begins[n], ends[n] = m, begin, behind
                            n += 1
                        begin, i, is_known, real = k, k, True, False
                        word, inside = k, np.uint8(0)
                        continue
                is_known = False
                parted = True
                inside |= _OTHER
                i += 1
        if is_known and real:
            counts[m] += 1
        elif begin < end:
            line[n], begins[n], ends[n] = m, begin, end
            n += 1
    return counts, line[:n], begins[:n], ends[:n]


@nb.njit(nogil=True, cache=True)
def _begins(data, i, end, kinds):
    """Whether what is here surely stays with the sentence that it begins: no white space, mark or closing quote."""
    b = byte(data, i)
    if b == 0x22 or b == 0x27:
        return i + 1 < end and byte(data, i + 1) < 0x80 and kinds[byte(data, i + 1)] & (_LETTER | _DIGIT) != 0
    if b < 0x80:
        return b > _SPACE and kinds[b] & (_MARK | _CLOSING) == 0
    if b == 0xE2:
        size, closes = _quote(data, i, end)
        return size > 0 and not closes
    return kinds[b] == _LETTER and b >= 0xC3


@nb.njit(nogil=True, cache=True)
def _quote(data, i, end):
    """(bytes of the single or double quote U+2018, U+2019, U+201C or U+201D here, or 0; whether it closes)."""
    if i + 2 < end and byte(data, i) == 0xE2 and byte(data, i + 1) == 0x80:
        last = byte(data, i + 2)
        if last == 0x98 or last == 0x99 or last == 0x9C or last == 0x9D:
            return 3, last == 0x99 or last == 0x9D
    return 0, False


@nb.njit(nogil=True, cache=True)
def _behind_closing(data, i, end, kinds):
    """Behind the quotes and brackets here that Punkt leaves with the sentence before."""
    while i < end:
        if kinds[byte(data, i)] & _CLOSING:
            i += 1
            continue
        size, closes = _quote(data, i, end)
        if not closes:
            break
        i += size
    return i


@nb.njit(nogil=True, cache=True)
def _ends(data, word, i, inside, behind, following, end, kinds, short, after_numbers):
    """Whether a sentence surely ends with the mark at i, by the word before it and what follows white space."""
    is_closed = behind > i + 1
    if inside == 0:
        return not is_closed and i > 0 and kinds[byte(data, i - 1)] & _CLOSING != 0
    if inside & ~(_LETTER | _DIGIT):
        return False
    if byte(data, i) != _FULL_STOP or inside == _LETTER | _DIGIT:
        return True
    if inside == _LETTER:
        return not _may_be(data, word, i, short)
    if is_closed or not 0x41 <= byte(data, following) <= 0x5A:
        return False
    last = following
    while last < end and kinds[byte(data, last)] == _LETTER:
        last += 1
    return not _may_be(data, following, last, after_numbers)


@nb.njit(nogil=True, cache=True)
def _may_be(data, start, stop, words):
    """Whether a word of letters is one letter, or begins with the first eight bytes of one of the words."""
    size = 0
    word = np.uint64(0)
    for i in range(start, stop):
        b = byte(data, i)
        size += b < 0x80 or b >= 0xC0
        if i < start + _WORD_BYTES:
            word = word << np.uint64(8) | np.uint64(b | 0x20)
    if size < 2:
        return True
    low, high = 0, len(words)
    while low < high:
        middle = (low + high) // 2
        if words[middle] < word:
            low = middle + 1
        else:
            high = middle
    return low < len(words) and words[low] == word


_CITED = (b"edit]", b"citation needed]")


@nb.njit(nogil=True, cache=True)
def longest_fields(line_words, lines, bits, chars):
    """Code points of the longest field of each of the `lines` (bool) that are asked for, int64; else 0."""
    longest = np.zeros(len(lines), np.int64)
    for m in np.flatnonzero(lines):
        size = 0
        for w in range(line_words[m], line_words[m + 1]):
            size = np.int64(chars[w]) + (0 if bits[w] & FIELD else size)
            longest[m] = max(longest[m], size)
    return longest


@nb.njit(nogil=True, cache=True)
def closed_citations(data, end, start):
    """Behind a citation in `data[start[i]:end[i]]`, or 0, int64; whether it is ASCII, if not it may be no citation."""
    stop = np.zeros(len(start), np.int64)
    ascii_only = np.ones(len(start), np.bool_)
    for s in range(len(start)):
        i = start[s] + 1
        while i < end[s] and (0x30 <= data[i] <= 0x39 or data[i] >= 0x80):
            ascii_only[s] &= data[i] < 0x80
            i += 1
        if i < end[s] and data[i] == 0x5D:
            stop[s] = i + 1
            continue
        for word in _CITED:
            i = start[s] + 1 + len(word)
            if i <= end[s]:
                same = True
                for k in range(len(word)):
                    same &= data[start[s] + 1 + k] == word[k]
                if same:
                    stop[s] = i
    return stop, ascii_only
