r"""Gopher's repetition rules (Rae et al. 2021, arXiv 2112.11446, Table A1), as datatrove computes them.

Source of the definitions: `GopherRepetitionFilter`, datatrove src/datatrove/pipeline/filters/
gopher_repetition_filter.py. Where the paper is silent or differs, the code is followed:

- characters are code points, and every fraction of characters is one of the whole text, white space included;
- paragraphs are split at `\n{2,}` after the text is stripped, lines at `\n+`; a line or paragraph is a
  duplicate if it is equal to an earlier one, so the first copy does not count;
- the top n-gram counts its words joined by spaces, times its occurrences; among equally frequent ones the
  first, and it counts even if it occurs once;
- duplicate n-grams count from left to right, skip a whole n-gram after each duplicate, and count and compare
  the words written together without spaces.

One difference is deliberate: words are runs of non-white-space (`str.split`); datatrove asks a tokenizer of
the language, which sets punctuation apart. An empty text has 0 in every signal.
"""

from typing import ClassVar, Literal

import numba as nb
import numpy as np
import pyarrow as pa
from pydantic import Field

from tasks.kernels import scan
from tasks.kernels.buffers import utf8
from tasks.kernels.repetition import duplicate_grams, duplicate_parts, grams, prepare, top_gram
from tasks.kernels.scan import Parts, parts, scratch, strip, words
from tasks.step import Bound, DocumentStep, signal

_SOURCE = "Rae et al. 2021, Table A1; definition: datatrove gopher_repetition_filter.py"

# In the order in which datatrove tries them.
_MEASURES = [
    "dup_paragraph_fraction",
    "dup_paragraph_char_fraction",
    "dup_line_fraction",
    "dup_line_char_fraction",
    *(f"top_{n}gram_fraction" for n in (2, 3, 4)),
    *(f"dup_{n}gram_fraction" for n in range(5, 11)),
]

_COUNTED = {"dup_paragraph_fraction": "paragraphs", "dup_line_fraction": "lines"}


@nb.njit(nogil=True, cache=True)
def _measure(data, offsets, space, out):
    """Fill `out`, float64 of shape (documents, 13), columns in the order of `_MEASURES`."""
    spans = scratch(offsets)
    pieces = Parts(np.empty(1024, np.int64), np.empty(1024, np.uint64))
    table = np.empty(1 << 12, np.uint64)
    gram = grams(1 << 10)
    for d in range(len(offsets) - 1):
        begin, end = offsets[d], offsets[d + 1]
        out[d] = 0
        if begin == end:
            continue
        n, _, chars = words(data, begin, end, space, spans)
        left, right = strip(data, begin, end, space)
        count, pieces = parts(data, left, right, 2, pieces)
        equal, length, table = duplicate_parts(pieces, count, table)
        out[d, 0] = equal / count
        out[d, 1] = length / chars
        count, pieces = parts(data, begin, end, 1, pieces)
        equal, length, table = duplicate_parts(pieces, count, table)
        out[d, 2] = equal / count
        out[d, 3] = length / chars
        gram = prepare(spans, n, gram)
        for k in range(2, 5):
            length, table = top_gram(spans, n, gram, k, table)
            out[d, 2 + k] = length / chars
        for k in range(5, 11):
            length, table = duplicate_grams(n, gram, k, table)
            out[d, 2 + k] = length / chars


def _limit(value: float, what: str):
    return Field(value, ge=0, description=f"highest {what} (Table A1); null: not bound")


class GopherRepetition(DocumentStep):
    """Drops documents that repeat lines, paragraphs or n-grams too often.

    `measure` holds, besides the batch, about 60 bytes per word of its longest document and a hash table of 32
    to 64 bytes per word of it.
    """

    step: Literal["gopher_repetition"] = "gopher_repetition"
    max_dup_paragraph_fraction: float | None = _limit(0.30, "fraction of paragraphs equal to an earlier one")
    max_dup_paragraph_char_fraction: float | None = _limit(0.20, "fraction of characters in such paragraphs")
    max_dup_line_fraction: float | None = _limit(0.30, "fraction of lines equal to an earlier one")
    max_dup_line_char_fraction: float | None = _limit(0.20, "fraction of characters in such lines")
    max_top_2gram_fraction: float | None = _limit(0.20, "fraction of characters in the most frequent 2-gram")
    max_top_3gram_fraction: float | None = _limit(0.18, "fraction of characters in the most frequent 3-gram")
    max_top_4gram_fraction: float | None = _limit(0.16, "fraction of characters in the most frequent 4-gram")
    max_dup_5gram_fraction: float | None = _limit(0.15, "fraction of characters in duplicate 5-grams")
    max_dup_6gram_fraction: float | None = _limit(0.14, "fraction of characters in duplicate 6-grams")
    max_dup_7gram_fraction: float | None = _limit(0.13, "fraction of characters in duplicate 7-grams")
    max_dup_8gram_fraction: float | None = _limit(0.12, "fraction of characters in duplicate 8-grams")
    max_dup_9gram_fraction: float | None = _limit(0.11, "fraction of characters in duplicate 9-grams")
    max_dup_10gram_fraction: float | None = _limit(0.10, "fraction of characters in duplicate 10-grams")

    signals: ClassVar[pa.Schema] = pa.schema(
        [
            signal(f"gopher_{name}", pa.float64(), "fraction of " + _COUNTED.get(name, "characters"), _SOURCE)
            for name in _MEASURES
        ]
    )

    def measure(self, documents: pa.Table) -> dict[str, pa.Array]:
        data, offsets = utf8(documents.column("text"))
        out = np.empty((len(offsets) - 1, len(_MEASURES)))
        _measure(data, offsets, scan.white_space(), out)
        return {name: pa.array(np.ascontiguousarray(out[:, i])) for i, name in enumerate(self.signals.names)}

    def decisions(self) -> list[Bound]:
        return [
            Bound(name.removesuffix("_fraction"), f"gopher_{name}", high=getattr(self, f"max_{name}"))
            for name in _MEASURES
        ]
