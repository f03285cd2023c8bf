"""The rules of `gristmill.tasks.rules.fineweb_quality`, which describes them, as functions."""

import numpy as np

from gristmill.tasks.kernels.scan import TERMINAL, Scan
from gristmill.tasks.rules.fineweb_quality import FineWebQuality
from gristmill.tasks.rules.rule_work import Parts, ratio
from gristmill.tasks.rules.rule_work import measure as measure
from gristmill.tasks.rules.shared import filled, filled_lines, repeated_lines


def line_punctuation(text: Scan, settings: FineWebQuality) -> Parts:
    where = filled(text).copy()
    where[where] = (text.word_bits[text.line_words[1:][where] - 1] & TERMINAL) != 0
    value = ratio(text.sum(text.lines, where), filled_lines(text))
    if settings.exclude_zero:
        value[value == 0] = 1
    return Parts("lines", where, value=value)


def short_lines(text: Scan, settings: FineWebQuality) -> Parts:
    return Parts("lines", filled(text) & (text.line_chars <= settings.short_line_characters), of=filled_lines(text))


def char_dup_lines(text: Scan) -> Parts:
    return Parts("lines", repeated_lines(text), text.line_chars, of=text.sum(text.lines, text.line_chars))


def newlines(text: Scan) -> Parts:
    following = np.append(text.line_start[1:], text.documents[-1])[: len(text.line_start)]
    fed = (following > text.line_stop) & (text.data[following - 1] == ord("\n"))
    return Parts("lines", fed, of=np.diff(text.words))
