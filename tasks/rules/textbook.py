"""The four rules that introductions to pretraining data teach first.

- *Length*: a document has at least 200 characters (code points, white space included).
- *Special characters*: at most 30% of its characters are neither letter, mark, number (Unicode general
  categories L, M, N) nor white space (`str.isspace`).
- *Symbol-to-word ratio*: at most one symbol for ten words, the threshold of Gopher's rule of the same name
  (Rae et al. 2021, arXiv 2112.11446, A1.1: 0.1). Gopher counts `#` and ellipses (see `gopher_quality`); here
  a symbol is any token between white space that has no letter, mark or number (`|`, `=>`, `***`), and a word
  any other token. A document of symbols only counts as having one word.
- *Repeated lines*: no line stands more than 3 times in a row. Lines are those of `str.splitlines`, compared
  without the white space at their ends; empty ones are passed over.

An empty text has 0 in every signal.
"""

from functools import cache
from typing import ClassVar, Literal

import numba as nb
import numpy as np
import pyarrow as pa
from pydantic import Field

from tasks.kernels import codepoints, scan
from tasks.kernels.buffers import byte, utf8
from tasks.kernels.codepoints import decode
from tasks.kernels.scan import BREAK, scratch, words
from tasks.step import Bound, DocumentStep, signal

_SOURCE = "tasks/rules/textbook.py"

_WORD = np.uint8(4)
_SPECIAL = np.uint8(8)


@cache
def _table() -> np.ndarray:
    """The bits of `scan.white_space` and those above for every code point: uint8, shape (0x110000,)."""
    classes = codepoints.classes()
    table = scan.white_space().copy()
    word = np.isin(classes, [codepoints.LETTER, codepoints.MARK, codepoints.DIGIT])
    table[word] |= _WORD
    table[~word & (classes != codepoints.SPACE)] |= _SPECIAL
    return table


@nb.njit(nogil=True, cache=True)
def _count(data, begin, end, table, bit):
    """Characters of `data[begin:end]` that have the bit."""
    n = 0
    i = begin
    while i < end:
        c, i = decode(data, i)
        n += (byte(table, c) & bit) != 0
    return n


@nb.njit(nogil=True, cache=True)
def _equal(data, a, b, size):
    for i in range(size):
        if byte(data, a + i) != byte(data, b + i):
            return False
    return True


@nb.njit(nogil=True, cache=True)
def _longest_run(data, spans, n):
    """The most equal lines in a row; a line reaches from its first word to the end of its last."""
    best = run = 0
    start = size = -1
    i = 0
    while i < n:
        first = spans.start[i]
        i += 1
        while i < n and not spans.bits[i] & BREAK:
            i += 1
        length = spans.stop[i - 1] - first
        run = run + 1 if length == size and _equal(data, first, start, size) else 1
        start, size = first, length
        best = max(best, run)
    return best


@nb.njit(nogil=True, cache=True)
def _measure(data, offsets, table, characters, special, ratio, runs):
    """Fill the four signals, one entry for each document."""
    spans = scratch(offsets)
    for d in range(len(offsets) - 1):
        n, _, chars = words(data, offsets[d], offsets[d + 1], table, spans)
        specials = symbols = 0
        for i in range(n):
            bits = spans.bits[i]
            if not bits & _WORD:
                symbols += 1
                specials += spans.chars[i]
            elif bits & _SPECIAL:
                specials += _count(data, spans.start[i], spans.stop[i], table, _SPECIAL)
        characters[d] = chars
        special[d] = specials / chars if chars else 0.0
        ratio[d] = symbols / max(1, n - symbols)
        runs[d] = _longest_run(data, spans, n)


class Textbook(DocumentStep):
    """Drops short, symbol-laden and stuttering documents.

    `measure` holds, besides the batch, 29 bytes per word of its longest document.
    """

    step: Literal["textbook"] = "textbook"
    min_characters: int | None = Field(200, ge=0, description="fewest characters; null: not bound")
    max_special_fraction: float | None = Field(0.3, ge=0, description="most characters that are special symbols")
    max_symbol_word_ratio: float | None = Field(0.1, ge=0, description="most symbol tokens per word")
    max_repeated_lines: int | None = Field(3, ge=1, description="most equal lines in a row")

    signals: ClassVar[pa.Schema] = pa.schema(
        [
            signal("textbook_characters", pa.int64(), "code points", _SOURCE),
            signal("textbook_special_fraction", pa.float64(), "fraction of characters", _SOURCE),
            signal("textbook_symbol_word_ratio", pa.float64(), "symbol tokens per word", _SOURCE),
            signal("textbook_repeated_lines", pa.int64(), "lines", _SOURCE),
        ]
    )

    def measure(self, documents: pa.Table) -> dict[str, pa.Array]:
        data, offsets = utf8(documents.column("text"))
        columns = [np.empty(len(offsets) - 1, field.type.to_pandas_dtype()) for field in self.signals]
        _measure(data, offsets, _table(), *columns)
        return {name: pa.array(column) for name, column in zip(self.signals.names, columns, strict=True)}

    def decisions(self) -> list[Bound]:
        return [
            Bound("characters", "textbook_characters", low=self.min_characters),
            Bound("special_characters", "textbook_special_fraction", high=self.max_special_fraction),
            Bound("symbol_word_ratio", "textbook_symbol_word_ratio", high=self.max_symbol_word_ratio),
            Bound("repeated_lines", "textbook_repeated_lines", high=self.max_repeated_lines),
        ]
