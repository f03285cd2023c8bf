"""Words, lines, paragraphs and sentences of a batch of documents: one pass over the UTF-8 bytes, then columns.

- word: a segment by Unicode word segmentation, in scripts without spaces by rules of our own (see `segmentation`).
  White space is left out, and so is U+200B, which only parts words. Punctuation marks and symbols are words.
- field: what `str.split()` gives and has a word: a run of words without white space between.
- line: what `str.splitlines()` gives; blank if it has no word. Paragraph: a maximal run of lines not blank.
- sentence: ends with its line, or with terminal punctuation (Sentence_Terminal) and the closing quotes and brackets
  at it, if white space follows, or anything after a mark that is not ASCII; but not with a full stop before a
  lower-case letter. After rules SB6-SB11 of UAX #29, with less context; in number they are ICU's within 1 %.
- character: code point.

Two spans count as equal if their 64-bit hashes are: in a document of a million distinct words a pair is wrongly
taken as equal with a probability of about 3e-8.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
import pyarrow as pa

from gristmill.tasks.kernels.buffers import block, byte, utf8
from gristmill.tasks.kernels.characters import decode
from gristmill.tasks.kernels.compiled import nb
from gristmill.tasks.kernels.segmentation import (
    ALPHABETIC,
    ATTACHED,
    CLASSES,
    HEBREW,
    IGNORED,
    IS_BREAK,
    IS_CAPITAL,
    IS_CLOSING,
    IS_LETTER,
    IS_LOWER,
    IS_MARK,
    IS_NUMBER,
    IS_SYMBOL,
    IS_TERMINAL,
    IS_VOWEL,
    JOIN,
    JOIN_BEFORE_HEBREW,
    JOIN_BEFORE_NUMBER,
    JOIN_EQUAL,
    JOIN_PAIR,
    JOIN_UNLESS_VOWEL,
    NUMERIC,
    OTHER,
    PART,
    SEPARATOR,
    characters,
    neighbours,
)

# The bits of a word. LETTER: it has one (`str.isalpha`). REAL: it has a letter, mark or number. FIELD: it is the first
# of its field. TERMINAL, CLOSING: it consists of terminal punctuation, or of closing quotes and brackets. CAPITAL,
# LOWER: it begins with a capital or titlecase letter, or with a small one.
LETTER, REAL, FIELD, TERMINAL, CLOSING, CAPITAL, LOWER = (np.uint8(1 << b) for b in range(7))

# 2**64 / golden ratio, as in SplitMix64; being 5 modulo 8 it has the longest period of an odd multiplier.
BASE = np.uint64(0x9E3779B97F4A7C15)
# The odd constants of SplitMix64's finalizer (Steele, Lea, Flood 2014).
MIX = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)

# Eight bytes at once.
ONES = np.uint64(0x0101010101010101)
HIGH = np.uint64(0x8080808080808080)
LOW = ~HIGH
SMALL = np.uint64(0x2020202020202020)  # the bit by which small letters differ from capitals
SPACES = SMALL

_CLASS = np.uint16(CLASSES - 1)
_REAL = IS_LETTER | IS_MARK | IS_NUMBER
_ZWJ = 0x200D


@dataclass(frozen=True, eq=False)
class Scan:
    """Columns of a batch of D documents with W words and L lines. Offsets are of bytes in `data`.

    Words of document d are words[d]:words[d + 1] of the word columns; likewise lines, paragraphs, sentences.
    Held: 29 bytes a word, 52 a line, 28 a paragraph.
    """

    data: np.ndarray  # uint8, all bytes of the batch
    documents: np.ndarray  # int64 [D + 1], where each begins
    chars: np.ndarray  # int64 [D]
    words: np.ndarray  # int64 [D + 1]
    word_start: np.ndarray  # int64 [W]
    word_stop: np.ndarray  # int64 [W]
    word_chars: np.ndarray  # int32 [W]
    word_hash: np.ndarray  # uint64 [W], of its bytes
    word_bits: np.ndarray  # uint8 [W], the bits above
    lines: np.ndarray  # int64 [D + 1]
    line_start: np.ndarray  # int64 [L]
    line_stop: np.ndarray  # int64 [L], before the break
    line_chars: np.ndarray  # int32 [L], without the break
    line_hash: np.ndarray  # uint64 [L], of its bytes
    line_words: np.ndarray  # int64 [L + 1], the first word of each line
    line_letters: np.ndarray  # int32 [L], code points of general category L
    line_upper: np.ndarray  # int32 [L], Lu and Lt
    line_numbers: np.ndarray  # int32 [L], N
    line_special: np.ndarray  # int32 [L], neither L, M, N nor white space
    paragraphs: np.ndarray  # int64 [D + 1]
    paragraph_start: np.ndarray  # int64 [P], the first line
    paragraph_stop: np.ndarray  # int64 [P], behind the last line
    paragraph_chars: np.ndarray  # int32 [P], with the breaks between its lines
    paragraph_hash: np.ndarray  # uint64 [P], of its lines' hashes

    def sum(self, bounds: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Sum of `values[bounds[i]:bounds[i + 1]]` for each i: int64. Values are bool or integers."""
        return _sum(bounds, values)

    def spans(self, unit: str) -> tuple[np.ndarray, np.ndarray]:
        """Where the "words", "lines", "paragraphs" or "sentences" begin and stop in `data`: int64, int64."""
        match unit:
            case "words":
                return self.word_start, self.word_stop
            case "lines":
                return self.line_start, self.line_stop
            case "paragraphs":
                return self.line_start[self.paragraph_start], self.line_stop[self.paragraph_stop - 1]
            case "sentences":
                first = self.sentence_words
                return self.word_start[first[:-1]], self.word_stop[first[1:] - 1]
        raise ValueError(f"unknown unit {unit!r}: words, lines, paragraphs or sentences")

    @cached_property
    def sentence_words(self) -> np.ndarray:
        """The first word of each sentence, and the number of words at the end: int64 [S + 1]."""
        first = np.empty(len(self.word_bits) + 1, np.int64)
        count = _sentences(self.data, self.word_stop, self.word_bits, self.line_words, first)
        return first[: count + 1].copy()

    @cached_property
    def sentences(self) -> np.ndarray:
        """Sentences of document d are sentences[d]:sentences[d + 1]: int64 [D + 1]."""
        return np.searchsorted(self.sentence_words, self.words)


def scan(texts: pa.Array | pa.ChunkedArray) -> Scan:
    """The columns of a batch of texts; sentences, which follow from its words, are found when first asked for.

    Linear in the bytes. Raises ValueError for a column that holds nulls.
    """
    data, offsets = utf8(texts)
    documents = len(offsets) - 1
    words, lines = (int(most) + documents for most in _most(data, offsets[0], offsets[documents]))
    columns = empty(words, lines, documents)
    _scan(data, offsets, characters(), neighbours(), *columns[:7], *columns[10:])
    return assembled(data, offsets, columns)


def empty(words: int, lines: int, documents: int) -> list[np.ndarray]:
    """Columns for up to so many words and lines, some of them rows of one array, to be filled and then `assembled`."""
    return _together(
        *(((2, words), np.int64), ((words,), np.int32), ((words,), np.uint64), ((words,), np.uint8)),
        *(((3, lines + 1), np.int64), ((5, lines), np.int32), ((lines,), np.uint64)),
        *(((2, lines), np.int64), ((lines,), np.int32), ((lines,), np.uint64)),
        *(((3, documents + 1), np.int64), ((documents,), np.int64)),
    )


def assembled(data: np.ndarray, offsets: np.ndarray, columns: list[np.ndarray]) -> Scan:
    """The scan with these columns of words and lines, from which its paragraphs follow."""
    word_at, word_chars, word_hash, word_bits, line_at, line_counts, line_hash = columns[:7]
    paragraph_at, paragraph_chars, paragraph_hash, ends, chars = columns[7:]
    _paragraphs(data, line_at, line_counts, line_hash, paragraph_at, paragraph_chars, paragraph_hash, ends)
    w, n, p = (int(end) for end in ends[:, -1])
    return Scan(
        *(data, offsets, chars),
        *(ends[0], word_at[0, :w], word_at[1, :w], word_chars[:w], word_hash[:w], word_bits[:w]),
        *(ends[1], line_at[0, :n], line_at[1, :n], line_counts[0, :n], line_hash[:n], line_at[2, : n + 1]),
        *(line_counts[1, :n], line_counts[2, :n], line_counts[3, :n], line_counts[4, :n]),
        *(ends[2], paragraph_at[0, :p], paragraph_at[1, :p], paragraph_chars[:p], paragraph_hash[:p]),
    )


def _together(*columns: tuple[tuple[int, ...], type]) -> list[np.ndarray]:
    """Empty arrays of these shapes and types in one piece of memory.

    In one piece because the allocator keeps it for the next batch, where it gives several back to the system; to get
    their pages anew takes as long as half a scan. Pages that are not written to are not held.
    """
    sizes = [math.prod(shape) * np.dtype(kind).itemsize for shape, kind in columns]
    begins = [0, *accumulate(-(-size // 8) * 8 for size in sizes)]
    piece = np.empty(begins[-1], np.uint8)
    return [np.ndarray(shape, kind, piece, begin) for (shape, kind), begin in zip(columns, begins[:-1], strict=True)]


@nb.njit(nogil=True, cache=True)
def hash_bytes(data, begin, end):
    """Hash of bytes, eight a step."""
    h = np.uint64(end - begin) * BASE
    i = begin
    while i + 8 <= end:
        h = _step(h, block(data, i))
        i += 8
    rest = np.uint64(0)
    if i + 8 <= len(data):
        # Not the bytes behind the end.
        rest = block(data, i) & ((np.uint64(1) << np.uint64(8 * (end - i))) - np.uint64(1))
    else:
        for k in range(end - i):
            rest |= np.uint64(byte(data, i + k)) << np.uint64(8 * k)
    return _last(h, rest)


@nb.njit(nogil=True, cache=True)
def _step(h, eight):
    """The hash after eight bytes more."""
    h = (h ^ eight) * MIX
    return h ^ (h >> np.uint64(32))


@nb.njit(nogil=True, cache=True)
def _last(h, rest):
    """The hash after the last bytes, of which there may be none."""
    h = (h ^ rest) * MIX_2
    return h ^ (h >> np.uint64(31))


@nb.njit(nogil=True, cache=True)
def _letters(b):
    """HIGH in those of eight bytes that are letters of ASCII."""
    small = b & LOW | SMALL
    return small + (HIGH - np.uint64(0x61) * ONES) & ~(small + (HIGH - np.uint64(0x7B) * ONES)) & ~b & HIGH


@nb.njit(nogil=True, cache=True)
def _count(flags):
    """How many of eight bytes have HIGH set, and nothing else set in any."""
    return np.int64(((flags >> np.uint64(7)) * ONES) >> np.uint64(56))


@nb.njit(nogil=True, cache=True)
def continuations(b):
    """How many of eight bytes go on with a code point that began before them."""
    return _count(b & ~(b << np.uint64(1)) & HIGH)


@nb.njit(nogil=True, cache=True)
def _most(data, begin, end):
    """At most so many words and lines begin in these bytes, but for one of each at the beginning of a document.

    A word begins at a letter of ASCII after another byte, or at the first byte of any other character but the space.
    A line begins after a byte below 0x20, or after a character whose first byte is C2 or E2, as U+2028 has it.
    """
    words, lines = 0, 0
    before = np.uint64(0)
    i = begin
    while i < end:
        if i + 8 <= len(data):
            b = block(data, i)
            left = min(end - i, 8)
        else:
            b = np.uint64(0)
            left = end - i
            for k in range(left):
                b |= np.uint64(byte(data, i + k)) << np.uint64(8 * k)
        inside = HIGH if left == 8 else ((np.uint64(1) << np.uint64(8 * left)) - np.uint64(1)) & HIGH
        letters = _letters(b)
        continuing = b & ~(b << np.uint64(1)) & HIGH
        words += _count(letters & ~(letters << np.uint64(8) | before) & inside)
        words += _count(~letters & ~continuing & ~_zeros(b ^ SPACES) & inside)
        lines += _count((_zeros(b & np.uint64(0xE0) * ONES) | _zeros((b & ~SMALL) ^ np.uint64(0xC2) * ONES)) & inside)
        before = letters >> np.uint64(56)
        i += 8
    return words, lines


@nb.njit(nogil=True, cache=True)
def _zeros(b):
    """HIGH in those of eight bytes that are 0."""
    return ~(((b & LOW) + LOW) | b) & HIGH


@nb.njit(nogil=True, cache=True)
def _following(data, i, end, table):
    """Class of the first code point from `i` that is not IGNORED, or -1."""
    while i < end:
        c, i = decode(data, i)
        k = np.int64(table[c] & _CLASS)
        if k != IGNORED:
            return k
    return -1


@nb.njit(nogil=True, cache=True)
def _scan(
    data,
    offsets,
    table,
    join,
    word_at,
    word_chars,
    word_hash,
    word_bits,
    line_at,
    line_counts,
    line_hash,
    ends,
    chars,
):
    """Fill the columns of words and lines, which are those of `Scan`, some of them rows of one array."""
    n, m = 0, 0
    ends[:, 0] = 0
    for d in range(len(offsets) - 1):
        i, end = offsets[d], offsets[d + 1]
        total = 0
        while i < end:
            begin, before, stop = i, total, end
            line_at[2, m] = n
            letters, upper, numbers, special = 0, 0, 0, 0
            field = FIELD
            c, j = decode(data, i)
            while True:
                t = table[c]
                k = np.int64(t & _CLASS)
                if k <= SEPARATOR:
                    total += 1
                    if k == SEPARATOR:
                        special += 1
                    else:
                        field = FIELD
                    if t & IS_BREAK:
                        stop = i
                        i = j
                        if c == 13 and i < end and byte(data, i) == 10:
                            total += 1
                            i += 1
                        break
                    i = j
                    if i == end:
                        break
                    c, j = decode(data, i)
                    continue
                start = i
                run = 0
                if k == ALPHABETIC:
                    # Most of all words: up to 15 letters of ASCII, and an end that is seen from the next byte.
                    if c < 0x80 and i + 16 <= end:
                        b = block(data, i)
                        others = _letters(b) ^ HIGH
                        inside = ((others & (~others + np.uint64(1))) >> np.uint64(7)) - np.uint64(1)
                        run = _count(inside & HIGH)
                        capitals = _count((~b & inside & SMALL) << np.uint64(2))
                        rest = b & inside
                        if run == 8:
                            b = block(data, i + 8)
                            others = _letters(b) ^ HIGH
                            inside = ((others & (~others + np.uint64(1))) >> np.uint64(7)) - np.uint64(1)
                            run += _count(inside & HIGH)
                            capitals += _count((~b & inside & SMALL) << np.uint64(2))
                            hashed = _last(_step(np.uint64(run) * BASE, rest), b & inside)
                        else:
                            hashed = _last(np.uint64(run) * BASE, rest)
                        after = byte(data, i + (run & 15))
                        if (
                            run == 16
                            or after >= 0x80
                            or join[ALPHABETIC * CLASSES + np.int64(table[after] & _CLASS)] != PART
                        ):
                            run = 0
                        else:
                            bits = field | LETTER | REAL | (CAPITAL if c < 0x61 else LOWER)
                            letters += run
                            upper += capitals
                elif c < 0x80 and j < end:
                    # Most of all others: one character of ASCII.
                    after = byte(data, j)
                    if after < 0x80:
                        how = join[k * CLASSES + np.int64(table[after] & _CLASS)]
                        if how == PART or (how == JOIN_EQUAL and np.int64(after) != c):
                            run = 1
                            hashed = _last(BASE, np.uint64(c))
                            bits = field
                            if t & IS_NUMBER:
                                bits |= REAL
                                numbers += 1
                            else:
                                special += 1
                            if t & IS_TERMINAL:
                                bits |= TERMINAL
                            if t & IS_CLOSING:
                                bits |= CLOSING
                if run:
                    i += run
                    word_at[0, n] = start
                    word_at[1, n] = i
                    word_chars[n] = run
                    word_hash[n] = hashed
                    word_bits[n] = bits
                    n += 1
                    total += run
                    field = np.uint8(0)
                    if after == 0x20:
                        field = FIELD
                        total += 1
                        i += 1
                        if i == end:
                            break
                    c, j = decode(data, i)
                    continue
                bits = field
                if t & IS_CAPITAL:
                    bits |= CAPITAL
                if t & IS_LOWER:
                    bits |= LOWER
                some, every = t, t
                size, real = 0, 0
                while True:
                    some |= t
                    every &= t
                    size += 1
                    letters += np.int64(t & IS_LETTER != 0)
                    upper += np.int64(t & IS_CAPITAL != 0)
                    numbers += np.int64(t & IS_NUMBER != 0)
                    real += np.int64(t & _REAL != 0)
                    i = j
                    if k == ALPHABETIC:
                        # Most of all text: letters of ASCII after a letter, eight a step.
                        while i + 8 <= end:
                            b = block(data, i)
                            others = _letters(b) ^ HIGH
                            inside = ((others & (~others + np.uint64(1))) >> np.uint64(7)) - np.uint64(1)
                            run = _count(inside & HIGH)
                            upper += _count((~b & inside & SMALL) << np.uint64(2))
                            i += run
                            size += run
                            letters += run
                            real += run
                            if others:
                                break
                        if i > j:
                            some |= np.uint16(IS_LETTER)
                            every = np.uint16(0)
                            c = 0x61
                    if i == end:
                        break
                    last = c
                    c, j = decode(data, i)
                    t = table[c]
                    second = np.int64(t & _CLASS)
                    how = join[k * CLASSES + second]
                    if how == JOIN:
                        if second != IGNORED:
                            k = second
                    elif last == _ZWJ and t & IS_SYMBOL:
                        k = ATTACHED if second == OTHER else second
                    elif how == PART:
                        break
                    elif how == JOIN_EQUAL:
                        if c != last:
                            break
                    elif how == JOIN_PAIR:
                        k = ATTACHED
                    elif how == JOIN_UNLESS_VOWEL:
                        if last != 0x17D2 and last != 0x1039 and last != 0x1A60:
                            if j < end and table[decode(data, j)[0]] & IS_VOWEL:
                                break
                        k = second
                    else:
                        following = _following(data, j, end, table)
                        if how == JOIN_BEFORE_NUMBER:
                            if following != NUMERIC:
                                break
                        elif how == JOIN_BEFORE_HEBREW:
                            if following != HEBREW:
                                break
                        elif following != ALPHABETIC and following != HEBREW:
                            if k != HEBREW or c != 0x27:
                                break
                            k = ATTACHED  # WB7a
                word_at[0, n] = start
                word_at[1, n] = i
                word_chars[n] = size
                word_hash[n] = hash_bytes(data, start, i)
                if some & IS_LETTER:
                    bits |= LETTER
                if real:
                    bits |= REAL
                if every & IS_TERMINAL:
                    bits |= TERMINAL
                if every & IS_CLOSING:
                    bits |= CLOSING
                word_bits[n] = bits
                n += 1
                total += size
                special += size - real
                field = np.uint8(0)
                if i == end:
                    break
            line_at[0, m] = begin
            line_at[1, m] = stop
            line_hash[m] = hash_bytes(data, begin, stop)
            line_counts[0, m] = total - before - break_chars(data, stop, i)
            line_counts[1, m] = letters
            line_counts[2, m] = upper
            line_counts[3, m] = numbers
            line_counts[4, m] = special
            m += 1
        chars[d] = total
        ends[0, d + 1], ends[1, d + 1] = n, m
    line_at[2, m] = n


@nb.njit(nogil=True, cache=True)
def break_chars(data, stop, following):
    """Code points of the line break between the end of a line and the beginning of the next, which may be none."""
    if following - stop == 2 and byte(data, stop) == 13:
        return 2
    return np.int64(following > stop)


@nb.njit(nogil=True, cache=True)
def _paragraphs(data, line_at, line_counts, line_hash, paragraph_at, paragraph_chars, paragraph_hash, ends):
    """Fill the columns of paragraphs, and the last row of `ends`."""
    p = 0
    ends[2, 0] = 0
    for d in range(ends.shape[1] - 1):
        within = False
        for m in range(ends[1, d], ends[1, d + 1]):
            if line_at[2, m] == line_at[2, m + 1]:
                within = False
                continue
            if within:
                paragraph_chars[p - 1] += break_chars(data, line_at[1, m - 1], line_at[0, m])
            else:
                within = True
                paragraph_at[0, p] = m
                paragraph_chars[p] = 0
                paragraph_hash[p] = 0
                p += 1
            paragraph_at[1, p - 1] = m + 1
            paragraph_chars[p - 1] += line_counts[0, m]
            paragraph_hash[p - 1] = (paragraph_hash[p - 1] ^ line_hash[m]) * BASE
        ends[2, d + 1] = p


@nb.njit(nogil=True, cache=True)
def _sentences(data, word_stop, word_bits, line_words, first):
    """Fill `first` with the first word of each sentence, one entry more at the end; returns how many."""
    n = 0
    for m in range(len(line_words) - 1):
        mark = 0
        for w in range(line_words[m], line_words[m + 1]):
            bits = word_bits[w]
            if w == line_words[m]:
                first[n] = w
                n += 1
            if bits & TERMINAL:
                mark = np.int64(data[word_stop[w] - 1])
            elif mark and (bits & FIELD or not bits & CLOSING):
                if (bits & FIELD or mark >= 0x80) and not (mark == 0x2E and bits & LOWER):
                    first[n] = w
                    n += 1
                mark = 0
    first[n] = len(word_bits)
    return n


@nb.njit(nogil=True, cache=True)
def _sum(bounds, values):
    out = np.empty(len(bounds) - 1, np.int64)
    for i in range(len(out)):
        total = np.int64(0)
        for v in range(bounds[i], bounds[i + 1]):
            total += np.int64(values[v])
        out[i] = total
    return out
