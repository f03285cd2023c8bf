"""The longest spans of a text that a corpus has word for word, each with its documents; the rarest first.

As OLMoTrace (arXiv 2504.07096) leads a model's output back to its training text. There spans are ranked by the
probability of their tokens; here by the number of documents that have them, which is known exactly.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from gristmill.flows.explore.search.opened import OpenedIndex
from gristmill.flows.explore.search.phrases import FoundPhrase, described, tallied
from gristmill.tasks.kernels.scan import scan
from gristmill.tasks.search import look_ups

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


def trace(index: OpenedIndex, text: str, spans: int = 10, n: int = 3, words: int = LEAST_WORDS) -> Trace:
    """Spans of at least `words` words that what is trained on has in one document, and that no longer such span of the
    text contains. Words are those of the rules, of `gristmill.tasks.kernels.scan`; in scripts without spaces each
    character is nearly one. `spans`: how many are shown; `n`: how many documents
    of each.

    Each shard is asked twice for every word. Raises ValueError for a text without words.
    """
    scanned = scan(pa.chunked_array([pa.array([text], pa.large_string())]))
    begins, ends = scanned.word_start.tolist(), scanned.word_stop.tolist()
    if not begins:
        raise ValueError("the text has no word: give some text to trace")
    data = text.encode()

    reached, first_words = np.zeros(len(begins), np.int64), np.arange(len(begins))
    reach = partial(look_ups.reached, data=data, begins=begins, ends=ends)
    with index.workers(2 * len(begins)) as workers:
        for _, found in index.each(workers, reach, dropped=False):
            reached = np.maximum(reached, found)
        before = np.append(-1, reached[:-1])
        whole = np.flatnonzero((reached > before) & (reached - first_words >= words)).tolist()
        phrases = [data[begins[first] : ends[reached[first] - 1]] for first in whole]
        tallies = tallied(index, workers, phrases, n, dropped=False)
    characters = np.cumsum([0, *((byte & 0xC0) != 0x80 for byte in data)])  # code points ahead of each byte
    covered = np.zeros(len(begins), bool)
    for first in whole:
        covered[first : reached[first]] = True
    order = sorted(
        range(len(whole)),
        key=lambda at: (tallies[at][0].documents, whole[at] - reached[whole[at]], whole[at]),
    )[:spans]
    shown = described(index, [phrases[at] for at in order], [tallies[at] for at in order])
    made = []
    for at, phrase in zip(order, shown, strict=True):
        first, last = whole[at], int(reached[whole[at]])
        begin, end = int(characters[begins[first]]), int(characters[ends[last - 1]])
        made.append(Span(begin, end, last - first, phrase))
    return Trace(text, len(begins), tuple(made), len(whole), float(covered.mean()))
