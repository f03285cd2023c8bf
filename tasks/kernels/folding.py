"""Passages of text compared without case, digits, punctuation, white space and accents: their hashes.

A text is folded code point by code point, all by `unicodedata`'s Unicode:

- letters to lower case, where that is one code point; decimal digits (Nd) to `0`;
- accents off: of a letter the one code point that is left of its canonical decomposition without them, if it is one.
  Accents are the non-spacing marks (Mn) below U+0700, those of Latin, Greek, Cyrillic, Hebrew and Arabic, which readers
  can do without, and those in the blocks of combining marks for all scripts and for Cyrillic. Marks of other scripts,
  as the vowels of Devanagari and Thai or the dakuten of Japanese, stay: without them other words are left;
- punctuation (P), white space, controls, formats, private and unassigned code points (C, Z) are left out.

What stays: letters, numbers, symbols (S) and other marks. Hangul is compared as it is composed.
"""

import unicodedata
from functools import cache

import numpy as np

from gristmill.tasks.kernels.buffers import byte
from gristmill.tasks.kernels.characters import (
    CODE_POINTS,
    DIGIT,
    MARK,
    NO_TRACE,
    OTHER,
    PUNCTUATION,
    SPACE,
    classes,
    decode,
    lowercase,
    word_characters,
)
from gristmill.tasks.kernels.compiled import nb
from gristmill.tasks.kernels.shingles import START, STEP, mix

_SPACE = np.uint8(0x20)


def words_only(data: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """UTF-8 bytes (uint8) of the words of all documents, and their n_documents+1 offsets (int64).

    `data` and `offsets` are UTF-8 bytes as `buffers.utf8` gives them. Held: 1.5 bytes a byte of the documents, since
    the lower case of a character of two bytes can have three (U+023A).
    """
    characters = word_characters()
    ascii = np.where(characters[:0x80] == 0, _SPACE, characters[:0x80]).astype(np.uint8)
    out = np.empty(int(offsets[-1] - offsets[0]) * 3 // 2 + 1, np.uint8)
    ends = np.zeros(len(offsets), np.int64)
    _write(data, offsets, characters, ascii, out, ends)
    return out[: ends[-1]], ends


@nb.njit(nogil=True, cache=True)
def _write(data, offsets, characters, ascii, out, ends):
    at = np.int64(0)
    for d in range(offsets.shape[0] - 1):
        begin = at
        in_word = np.int64(0)
        i, end = offsets[d], offsets[d + 1]
        while i < end:
            # A space is written wherever no word is, and written over unless a word stands before it: this needs no
            # branch on where words end, which a processor cannot foresee.
            b = byte(data, i)
            if b < 0x80:
                c = ascii[b]
                i += 1
                out[at] = c
                before, in_word = in_word, np.int64(c != _SPACE)
                at += before | in_word
                continue
            point, i = decode(data, i)
            if characters[point] == NO_TRACE:
                continue
            c = np.int64(characters[point])
            before, in_word = in_word, np.int64(c != 0)
            if c < 0x80:
                out[at] = c if c != 0 else _SPACE
                at += before | in_word
            elif c < 0x800:
                out[at] = 0xC0 | c >> 6
                out[at + 1] = 0x80 | c & 0x3F
                at += 2
            elif c < 0x10000:
                out[at] = 0xE0 | c >> 12
                out[at + 1] = 0x80 | c >> 6 & 0x3F
                out[at + 2] = 0x80 | c & 0x3F
                at += 3
            else:
                out[at] = 0xF0 | c >> 18
                out[at + 1] = 0x80 | c >> 12 & 0x3F
                out[at + 2] = 0x80 | c >> 6 & 0x3F
                out[at + 3] = 0x80 | c & 0x3F
                at += 4
        at -= np.int64(at > begin) & (1 - in_word)
        ends[d + 1] = at


# Combining Diacritical Marks Extended, Supplement, for Symbols; Cyrillic Extended-A, -B; Half Marks (Blocks.txt)
_MARK_BLOCKS = (
    *((0x1AB0, 0x1B00), (0x1DC0, 0x1E00), (0x20D0, 0x2100)),
    *((0x2DE0, 0x2E00), (0xA640, 0xA6A0), (0xFE20, 0xFE30)),
)


def folded(data: np.ndarray, start: np.ndarray, stop: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(hash, size) of the pieces `data[start[i]:stop[i]]` of UTF-8, folded: uint64, and code points, int64.

    Unlike pieces share a hash with a probability of 2^-64.
    """
    return _folded(data, start, stop, foldings())


def without_digits(data: np.ndarray, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """The code points (int64) of the pieces `data[start[i]:stop[i]]` of UTF-8, folded, that are no decimal digits."""
    return _folded(data, start, stop, _no_digits())[1]


def lowered(data: np.ndarray, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """Hashes (uint64) of the pieces `data[start[i]:stop[i]]` of UTF-8 in lower case, code point by code point."""
    return _folded(data, start, stop, _lower())[0]


@cache
def _no_digits() -> np.ndarray:
    table = foldings().copy()
    table[table == ord("0")] = 0
    return table


@cache
def _lower() -> np.ndarray:
    table = lowercase().copy()
    table[0] = CODE_POINTS  # U+0000 is not left out
    return table


@cache
def foldings() -> np.ndarray:
    """What every code point becomes, 0 where it is left out: uint32, (0x110000,), 4.5 MB, made once per process."""
    kinds = classes()
    table = np.where(np.isin(kinds, (SPACE, PUNCTUATION, OTHER)), np.uint32(0), lowercase()).astype(np.uint32)
    for character in filter(unicodedata.decomposition, map(chr, np.flatnonzero(table))):
        parts = unicodedata.normalize("NFD", character.lower())
        left = [part for part in parts if not _is_accent(part)]
        if len(left) == 1:
            table[ord(character)] = ord(left[0])
    for c in np.flatnonzero(kinds == MARK):
        if _is_accent(chr(c)):
            table[c] = 0
    for c in np.flatnonzero(kinds == DIGIT):
        if unicodedata.category(chr(c)) == "Nd":
            table[c] = ord("0")
    return table


def _is_accent(character: str) -> bool:
    c = ord(character)
    return unicodedata.category(character) == "Mn" and (
        c < 0x700 or any(first <= c < stop for first, stop in _MARK_BLOCKS)
    )


@nb.njit(nogil=True, cache=True)
def _folded(data, start, stop, table):
    hashes = np.empty(len(start), np.uint64)
    sizes = np.empty(len(start), np.int64)
    for s in range(len(start)):
        h = START
        size = 0
        i = start[s]
        while i < stop[s]:
            b = byte(data, i)
            if b < 0x80:
                c = table[b]
                i += 1
            else:
                point, i = decode(data, i)
                c = table[point]
            # no branch on what is left out, which a processor cannot foresee
            h = (h ^ np.uint64(c)) * STEP if c != 0 else h
            size += c != 0
        hashes[s] = mix(h)
        sizes[s] = size
    return hashes, sizes
