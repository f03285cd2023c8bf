"""The longest spans of a text that a corpus has word for word, each with its documents; the rarest first.

As OLMoTrace (arXiv 2504.07096) leads a model's output back to its training text. There spans are ranked by the
probability of their tokens; here by the number of documents that have them, which is known exactly.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from gristmill.flows.search.opened import OpenedIndex, SearchedShard
from gristmill.flows.search.phrases import FoundPhrase, find
from gristmill.tasks.kernels.scan import scan

LEAST_WORDS = 6


@dataclass(frozen=True)
class Span:
    """`text[begin:end]`, code points, of so many words, and where it is."""

    begin: int
    end: int
    words: int
    found: FoundPhrase


@dataclass(frozen=True)
class Trace:
    """`spans`: those that are shown; `all`: how many there are; `covered`: the share of the words that are in one of
    all."""

    text: str
    words: int
    spans: tuple[Span, ...]
    all: int
    covered: float


def trace(index: OpenedIndex, text: str, n: int, documents: int, least: int = LEAST_WORDS) -> Trace:
    """Spans of at least `least` words that what is trained on has in one document, and that no longer such span of the
    text contains. Words are those of the rules, of `gristmill.tasks.kernels.scan`; in scripts without spaces each
    character is nearly one. `n`: how many spans are shown; `documents`: of each.

    Each shard is asked twice for every word. Raises ValueError for a text without words.
    """
    scanned = scan(pa.chunked_array([pa.array([text], pa.large_string())]))
    begins, ends = scanned.word_start.tolist(), scanned.word_stop.tolist()
    if not begins:
        raise ValueError("the text has no word: give some text to trace")
    data = text.encode()

    def reach(shard: SearchedShard) -> np.ndarray:
        return longest_matches(shard.index.has, data, begins, ends)

    reached = np.zeros(len(begins), np.int64)
    for of_shard in index.each(reach, dropped=False):
        reached = np.maximum(reached, of_shard)
    words = np.arange(len(begins))
    before = np.append(-1, reached[:-1])
    whole = np.flatnonzero((reached > before) & (reached - words >= least)).tolist()
    characters = np.cumsum([0, *((byte & 0xC0) != 0x80 for byte in data)])  # code points ahead of each byte
    covered = np.zeros(len(begins), bool)
    spans = []
    for first in whole:
        last = int(reached[first])
        covered[first:last] = True
        begin, end = begins[first], ends[last - 1]
        phrase = find(index, data[begin:end].decode(), documents, dropped=False)
        spans.append(Span(int(characters[begin]), int(characters[end]), last - first, phrase))
    spans.sort(key=lambda span: (span.found.kept.documents, -span.words, span.begin))
    return Trace(text, len(begins), tuple(spans[:n]), len(spans), float(covered.mean()))


def longest_matches(has: Callable[[bytes], bool], data: bytes, begins: list[int], ends: list[int]) -> np.ndarray:
    """For each word the number of the first that no match has which begins with it, int64 (words,): the word's own
    where it is in no document. `has`: whether a shard has some bytes; `begins`, `ends`: of words in `data`."""
    reached, end = np.empty(len(begins), np.int64), 0
    for first, begin in enumerate(begins):
        end = max(end, first)
        while end < len(begins) and has(data[begin : ends[end]]):
            end += 1
        reached[first] = end
    return reached
