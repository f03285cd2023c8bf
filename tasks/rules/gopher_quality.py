"""Gopher's quality rules (Rae et al. 2021, arXiv 2112.11446, section A1.1), as datatrove computes them.

Source of the definitions: `GopherQualityFilter`, datatrove src/datatrove/pipeline/filters/
gopher_quality_filter.py. Where the paper is silent or differs, the code is followed:

- the number of words and their mean length leave out words of symbols; the ratios divide by all words;
- `#`, `...` (not overlapping) and the character U+2026 are counted anywhere in the text; the two kinds of
  ellipsis count alike;
- lines are those of `str.splitlines`, empty ones included; a line starts with a bullet if its first character
  after white space is U+2022 or `-`, and ends with an ellipsis if `...` or U+2026 is last before white space;
- a letter is what `str.isalpha` says; stop words count once each, and only as they are written (lower case).

Two differences are deliberate. Words are runs of non-white-space (`str.split`); datatrove asks a tokenizer of
the language, which sets punctuation apart. A word of symbols is one without a letter, a mark or a number
(general categories L, M, N); datatrove has a list of 281 punctuation characters instead, and symbols
outside it count as words. An empty text has 0 in every signal, and so has a ratio in a text without words.
"""

from functools import cache
from typing import ClassVar, Literal

import numba as nb
import numpy as np
import pyarrow as pa
from pydantic import Field, field_validator

from tasks.kernels import codepoints, scan
from tasks.kernels.buffers import byte, utf8
from tasks.kernels.scan import BREAK, polynomial, scratch, words
from tasks.step import Bound, DocumentStep, signal

_SOURCE = "Rae et al. 2021, A1.1; definition: datatrove gopher_quality_filter.py"

_LETTER = np.uint8(4)
_WORD = np.uint8(8)
_HASH = np.uint8(16)
_DOT = np.uint8(32)
_ELLIPSIS = np.uint8(64)
_BULLET = np.uint8(128)


@cache
def _table() -> np.ndarray:
    """The bits of `scan.white_space` and those above for every code point: uint8, shape (0x110000,)."""
    classes = codepoints.classes()
    table = scan.white_space().copy()
    table[classes == codepoints.LETTER] |= _LETTER
    table[np.isin(classes, [codepoints.LETTER, codepoints.MARK, codepoints.DIGIT])] |= _WORD
    for bit, characters in ((_HASH, "#"), (_DOT, "."), (_ELLIPSIS, "\u2026"), (_BULLET, "\u2022-")):
        table[[ord(c) for c in characters]] |= bit
    return table


@nb.njit(nogil=True, cache=True)
def _symbols(data, start, stop):
    """(hash signs, ellipses, whether it ends with one) of a word; U+2026 is E2 80 A6 in UTF-8."""
    hashes = 0
    ellipses = 0
    run = 0
    last = False
    for i in range(start, stop):
        b = byte(data, i)
        run = run + 1 if b == 0x2E else 0
        ellipses += run > 0 and run % 3 == 0
        hashes += b == 0x23
        last = i >= start + 2 and b == 0xA6 and byte(data, i - 1) == 0x80 and byte(data, i - 2) == 0xE2
        ellipses += last
    return hashes, ellipses, run >= 3 or last


@nb.njit(nogil=True, cache=True)
def _stop_word_slots(data, offsets):
    """An open-addressing table of (hash, number + 1) for the stop words: uint64, shape (slots, 2)."""
    n = len(offsets) - 1
    slots = 16
    while slots < 4 * n:
        slots *= 2
    table = np.zeros((slots, 2), np.uint64)
    for k in range(n):
        h = polynomial(data, offsets[k], offsets[k + 1])
        slot = np.int64(h % np.uint64(slots))
        while table[slot, 1]:
            slot = (slot + 1) % slots
        table[slot, 0] = h
        table[slot, 1] = k + 1
    return table


@nb.njit(nogil=True, cache=True)
def _stop_word(table, h):
    """The number of the stop word with this hash, or -1."""
    last = len(table) - 1
    slot = np.int64(h & np.uint64(last))
    while table[slot, 1]:
        if table[slot, 0] == h:
            return np.int64(table[slot, 1]) - 1
        slot = (slot + 1) & last
    return -1


@nb.njit(nogil=True, cache=True)
def _measure(data, offsets, table, stop_data, stop_offsets, counts, ratios):
    """Fill `counts`, int64 of shape (documents, 2), and `ratios`, float64 of shape (documents, 6)."""
    spans = scratch(offsets)
    stop_words = _stop_word_slots(stop_data, stop_offsets)
    found_in = np.full(len(stop_offsets), -1, np.int64)
    longest = 0
    for k in range(len(stop_offsets) - 1):
        longest = max(longest, stop_offsets[k + 1] - stop_offsets[k])
    for d in range(len(offsets) - 1):
        n, lines, _ = words(data, offsets[d], offsets[d + 1], table, spans)
        real = length = hashes = ellipses = bullets = ends = letters = found = 0
        for i in range(n):
            start, stop, bits = spans.start[i], spans.stop[i], spans.bits[i]
            if bits & _WORD:
                real += 1
                length += spans.chars[i]
            letters += (bits & _LETTER) != 0
            if bits & (_HASH | _DOT | _ELLIPSIS):
                h, e, last = _symbols(data, start, stop)
                hashes += h
                ellipses += e
                ends += last and (i + 1 == n or (spans.bits[i + 1] & BREAK) != 0)
            if bits & BREAK and bits & _BULLET:
                b = byte(data, start)
                bullets += b == 0x2D or (b == 0xE2 and byte(data, start + 1) == 0x80 and byte(data, start + 2) == 0xA2)
            if stop - start <= longest:
                k = _stop_word(stop_words, spans.hash[i])
                if k >= 0 and found_in[k] != d:
                    found_in[k] = d
                    found += 1
        counts[d, 0] = real
        counts[d, 1] = found
        ratios[d, 0] = length / real if real else 0.0
        ratios[d, 1] = hashes / n if n else 0.0
        ratios[d, 2] = ellipses / n if n else 0.0
        ratios[d, 3] = bullets / lines if lines else 0.0
        ratios[d, 4] = ends / lines if lines else 0.0
        ratios[d, 5] = letters / n if n else 0.0


class GopherQuality(DocumentStep):
    """Drops documents whose words, lines or symbols are not those of prose.

    `measure` holds, besides the batch, 29 bytes per word of its longest document.
    """

    step: Literal["gopher_quality"] = "gopher_quality"
    min_words: int | None = Field(50, ge=0, description="fewest words; null: not bound")
    max_words: int | None = Field(100_000, ge=0, description="most words; null: not bound")
    min_mean_word_length: float | None = Field(3.0, ge=0, description="shortest mean word, in code points")
    max_mean_word_length: float | None = Field(10.0, ge=0, description="longest mean word, in code points")
    max_hash_ratio: float | None = Field(0.1, ge=0, description="most hash signs per word")
    max_ellipsis_ratio: float | None = Field(0.1, ge=0, description="most ellipses per word")
    max_bullet_line_fraction: float | None = Field(0.9, ge=0, description="most lines that start with a bullet")
    max_ellipsis_line_fraction: float | None = Field(0.3, ge=0, description="most lines that end in an ellipsis")
    min_alpha_word_fraction: float | None = Field(0.8, ge=0, description="fewest words with a letter")
    min_stop_words: int | None = Field(2, ge=0, description="fewest different stop words")
    stop_words: tuple[str, ...] = Field(
        ("the", "be", "to", "of", "and", "that", "have", "with"),
        description="stop words as they are written in the text; Gopher's are English",
    )

    signal_fields: ClassVar[tuple[str, ...]] = ("stop_words",)
    signals: ClassVar[pa.Schema] = pa.schema(
        [
            signal("gopher_words", pa.int64(), "words", _SOURCE),
            signal("gopher_stop_words", pa.int64(), "different stop words", _SOURCE),
            signal("gopher_mean_word_length", pa.float64(), "code points per word", _SOURCE),
            signal("gopher_hash_ratio", pa.float64(), "hash signs per word", _SOURCE),
            signal("gopher_ellipsis_ratio", pa.float64(), "ellipses per word", _SOURCE),
            signal("gopher_bullet_line_fraction", pa.float64(), "fraction of lines", _SOURCE),
            signal("gopher_ellipsis_line_fraction", pa.float64(), "fraction of lines", _SOURCE),
            signal("gopher_alpha_word_fraction", pa.float64(), "fraction of words", _SOURCE),
        ]
    )

    @field_validator("stop_words")
    @classmethod
    def _one_word_each(cls, stop_words: tuple[str, ...]) -> tuple[str, ...]:
        for word in stop_words:
            if word.split() != [word]:
                raise ValueError(f"stop word {word!r} never occurs: write single words without white space")
        return tuple(dict.fromkeys(stop_words))

    def measure(self, documents: pa.Table) -> dict[str, pa.Array]:
        data, offsets = utf8(documents.column("text"))
        stop_data, stop_offsets = utf8(pa.array(self.stop_words, pa.large_string()))
        counts = np.empty((len(offsets) - 1, 2), np.int64)
        ratios = np.empty((len(offsets) - 1, 6))
        _measure(data, offsets, _table(), stop_data, stop_offsets, counts, ratios)
        columns = [*counts.T, *ratios.T]
        return {
            name: pa.array(np.ascontiguousarray(column))
            for name, column in zip(self.signals.names, columns, strict=True)
        }

    def decisions(self) -> list[Bound]:
        return [
            Bound("word_count", "gopher_words", self.min_words, self.max_words),
            Bound(
                "mean_word_length",
                "gopher_mean_word_length",
                self.min_mean_word_length,
                self.max_mean_word_length,
            ),
            Bound("hash_ratio", "gopher_hash_ratio", high=self.max_hash_ratio),
            Bound("ellipsis_ratio", "gopher_ellipsis_ratio", high=self.max_ellipsis_ratio),
            Bound("bullet_lines", "gopher_bullet_line_fraction", high=self.max_bullet_line_fraction),
            Bound("ellipsis_lines", "gopher_ellipsis_line_fraction", high=self.max_ellipsis_line_fraction),
            Bound("alpha_words", "gopher_alpha_word_fraction", low=self.min_alpha_word_fraction),
            Bound("stop_words", "gopher_stop_words", low=self.min_stop_words),
        ]
