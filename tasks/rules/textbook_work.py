"""The rules of `gristmill.tasks.rules.textbook`, which describes them, as functions."""

import numpy as np

from gristmill.tasks.kernels.repetition import equal_in_a_row
from gristmill.tasks.kernels.scan import FIELD, Scan
from gristmill.tasks.rules.rule_work import Parts
from gristmill.tasks.rules.rule_work import measure as measure
from gristmill.tasks.rules.shared import filled, real


def characters(text: Scan) -> np.ndarray:
    return text.chars


def special_characters(text: Scan) -> Parts:
    return Parts("lines", text.line_special > 0, text.line_special, of=text.chars)


def symbol_word_ratio(text: Scan) -> Parts:
    first = np.flatnonzero(text.word_bits & FIELD)
    where = np.zeros(len(text.word_bits), bool)
    if len(first):
        where[first] = ~np.logical_or.reduceat(real(text), first)
    symbols = text.sum(text.words, where)
    fields = np.diff(np.searchsorted(first, text.words))
    return Parts("words", where, of=np.maximum(1, fields - symbols))


def repeated_lines(text: Scan) -> Parts:
    start, stop = np.zeros((2, len(text.line_start)), np.int64)
    some = filled(text)
    start[some] = text.word_start[text.line_words[:-1][some]]
    stop[some] = text.word_stop[text.line_words[1:][some] - 1]
    place = equal_in_a_row(text.data, text.lines, start, stop)
    longest = np.zeros(len(text.chars), np.int64)
    document = np.repeat(np.arange(len(longest)), np.diff(text.lines))
    np.maximum.at(longest, document, place)
    return Parts("lines", place > 1, value=longest)
