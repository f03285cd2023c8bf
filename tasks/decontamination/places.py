"""Where the words of texts stand, counted in code points: for the few texts in which something was found."""

from functools import cache

import numpy as np
import pyarrow as pa

from gristmill.tasks.kernels.word_characters import NO_TRACE, UNSPACED, among, word_characters


def word_places(
    texts: pa.ChunkedArray, row: np.ndarray, start: np.ndarray, stop: np.ndarray
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """(start, stop, text) of spans of words, row[i] of the texts from word start[i] to before stop[i], as
    `kernels.ngrams` counts words: code points, int64, and what stands between. Rows are ascending."""
    starts, stops, found = np.empty(len(row), np.int64), np.empty(len(row), np.int64), []
    last, text, begin, end = -1, "", np.empty(0, np.int64), np.empty(0, np.int64)
    for at, (of, first, behind) in enumerate(zip(row.tolist(), start.tolist(), stop.tolist(), strict=True)):
        if of != last:
            last, text = of, texts[of].as_py()
            begin, end = _words(text)
        starts[at], stops[at] = begin[first], end[behind - 1]
        found.append(text[starts[at] : stops[at]])
    return starts, stops, found


def _words(text: str) -> tuple[np.ndarray, np.ndarray]:
    """Where each word begins and ends; what leaves no trace may stand within one."""
    points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    kinds = word_characters()[points]
    [at] = np.nonzero(kinds != NO_TRACE)
    inside = kinds[at] != 0
    alone = _unspaced()[points[at]] & inside
    before = np.append(False, inside[:-1]) if len(at) else inside
    parted = alone | (np.append(False, alone[:-1]) if len(at) else alone)
    begins = inside & (~before | parted)
    ends = inside & np.append(~inside[1:] | parted[1:], True)[: len(at)]
    return at[begins], at[ends] + 1


@cache
def _unspaced() -> np.ndarray:
    return among(UNSPACED)
