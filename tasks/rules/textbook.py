"""The step `textbook`."""

from __future__ import annotations

from typing import Literal

import numpy as np

from gristmill.tasks import kernels
from gristmill.tasks.rules.rule import Parts, RuleStep, rule, rule_set
from gristmill.tasks.rules.rule import measure as measure
from gristmill.tasks.rules.shared import filled, real

SOURCE = "tasks/rules/textbook.py"
RULES = (
    rule("characters", "characters", "Characters of the text, white space included.", low=200),
    rule(
        "special_characters",
        "fraction of characters",
        "Characters that are neither letter, mark or number (general categories L, M, N) nor white space.",
        high=0.3,
    ),
    rule(
        "symbol_word_ratio",
        "symbols per word",
        """Fields without letter, mark or number, such as `|`, `=>`, `***`, for each other field.

        A field is what stands between white space. The threshold is that of Gopher's rule of the same name, which
        counts `#` and ellipses (see `gopher_quality`). A document of symbols only counts as having one other field.
        """,
        high=0.1,
    ),
    rule(
        "repeated_lines",
        "lines",
        "The most equal lines in a row, compared without white space at their ends; blank ones are passed over.",
        high=3,
    ),
)


@rule_set(SOURCE, RULES)
class Textbook(RuleStep):
    """Four basic rules that introductions to pretraining data teach first."""

    step: Literal["textbook"] = "textbook"


def characters(text: kernels.scan.Scan) -> np.ndarray:
    return text.chars


def special_characters(text: kernels.scan.Scan) -> Parts:
    return Parts("lines", text.line_special > 0, text.line_special, of=text.chars)


def symbol_word_ratio(text: kernels.scan.Scan) -> Parts:
    first = np.flatnonzero(text.word_bits & kernels.scan.FIELD)
    where = np.zeros(len(text.word_bits), bool)
    if len(first):
        where[first] = ~np.logical_or.reduceat(real(text), first)
    symbols = text.sum(text.words, where)
    fields = np.diff(np.searchsorted(first, text.words))
    return Parts("words", where, of=np.maximum(1, fields - symbols))


def repeated_lines(text: kernels.scan.Scan) -> Parts:
    start, stop = np.zeros((2, len(text.line_start)), np.int64)
    some = filled(text)
    start[some] = text.word_start[text.line_words[:-1][some]]
    stop[some] = text.word_stop[text.line_words[1:][some] - 1]
    place = kernels.repetition.equal_in_a_row(text.data, text.lines, start, stop)
    longest = np.zeros(len(text.chars), np.int64)
    document = np.repeat(np.arange(len(longest)), np.diff(text.lines))
    np.maximum.at(longest, document, place)
    return Parts("lines", place > 1, value=longest)
