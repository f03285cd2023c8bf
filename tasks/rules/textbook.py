"""The four rules that introductions to pretraining data teach first."""

import numpy as np

from tasks.kernels.repetition import equal_in_a_row
from tasks.kernels.scan import FIELD, Scan
from tasks.rules.rule import Parts, Rules
from tasks.rules.shared import filled, real

rules = Rules("textbook", "tasks/rules/textbook.py")


@rules.rule(low=200, unit="characters")
def characters(text: Scan) -> np.ndarray:
    """Characters of the text, white space included."""
    return text.chars


@rules.rule(high=0.3, unit="fraction of characters")
def special_characters(text: Scan) -> Parts:
    """Characters that are neither letter, mark or number (general categories L, M, N) nor white space."""
    return Parts("lines", text.line_special > 0, text.line_special, of=text.chars)


@rules.rule(high=0.1, unit="symbols per word")
def symbol_word_ratio(text: Scan) -> Parts:
    """Fields without letter, mark or number, such as `|`, `=>`, `***`, for each other field.

    A field is what stands between white space. The threshold is that of Gopher's rule of the same name, which counts
    `#` and ellipses (see `gopher_quality`). A document of symbols only counts as having one other field.
    """
    first = np.flatnonzero(text.word_bits & FIELD)
    where = np.zeros(len(text.word_bits), bool)
    if len(first):
        where[first] = ~np.logical_or.reduceat(real(text), first)
    symbols = text.sum(text.words, where)
    fields = np.diff(np.searchsorted(first, text.words))
    return Parts("words", where, of=np.maximum(1, fields - symbols))


@rules.rule(high=3, unit="lines")
def repeated_lines(text: Scan) -> Parts:
    """The most equal lines in a row, compared without white space at their ends; blank ones are passed over."""
    start, stop = np.zeros((2, len(text.line_start)), np.int64)
    some = filled(text)
    start[some] = text.word_start[text.line_words[:-1][some]]
    stop[some] = text.word_stop[text.line_words[1:][some] - 1]
    place = equal_in_a_row(text.data, text.lines, start, stop)
    longest = np.zeros(len(text.chars), np.int64)
    document = np.repeat(np.arange(len(longest)), np.diff(text.lines))
    np.maximum.at(longest, document, place)
    return Parts("lines", place > 1, value=longest)


Textbook = rules.step("Textbook")
