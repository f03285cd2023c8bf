"""The rules of `tasks.rules.gopher_repetition`, which describes them, as functions."""

from functools import partial

import numpy as np

from tasks.kernels.repetition import GRAMS, equal_to_earlier, repeated_grams
from tasks.kernels.scan import Scan
from tasks.rules.rule_work import Parts, ratio
from tasks.rules.rule_work import measure as measure
from tasks.rules.shared import filled_lines, once, repeated_lines


@once
def _repeated_paragraphs(text: Scan) -> np.ndarray:
    return equal_to_earlier(text.paragraphs, text.paragraph_hash)


def dup_paragraphs(text: Scan) -> Parts:
    return Parts("paragraphs", _repeated_paragraphs(text), of=np.diff(text.paragraphs))


def dup_paragraph_chars(text: Scan) -> Parts:
    return Parts("paragraphs", _repeated_paragraphs(text), text.paragraph_chars, of=text.chars)


def dup_lines(text: Scan) -> Parts:
    return Parts("lines", repeated_lines(text), of=filled_lines(text))


def dup_line_chars(text: Scan) -> Parts:
    return Parts("lines", repeated_lines(text), text.line_chars, of=text.chars)


@once
def _grams(text: Scan) -> tuple[np.ndarray, np.ndarray]:
    return repeated_grams(text.words, text.word_hash, text.word_chars)


def _in_grams(text: Scan, n: int) -> Parts:
    chars, marks = _grams(text)
    value = ratio(chars[:, n - GRAMS.start], text.chars)
    return Parts("words", lambda: (marks & np.uint16(1 << n)) != 0, value=value)


top_2gram, top_3gram, top_4gram = (partial(_in_grams, n=n) for n in (2, 3, 4))
dup_5gram, dup_6gram, dup_7gram, dup_8gram, dup_9gram, dup_10gram = (partial(_in_grams, n=n) for n in range(5, 11))
