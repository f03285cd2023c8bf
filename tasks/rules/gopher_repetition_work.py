"""The rules of `gristmill.tasks.rules.gopher_repetition`, which describes them, as functions."""

from functools import partial

import numpy as np

from gristmill.tasks.kernels.repetition import GRAMS, equal_to_another, equal_to_earlier, repeated_grams
from gristmill.tasks.kernels.scan import Scan
from gristmill.tasks.rules import shared as dclm
from gristmill.tasks.rules.gopher_repetition import GopherRepetition
from gristmill.tasks.rules.rule_work import Parts, Spans, Unit, ratio
from gristmill.tasks.rules.rule_work import measure as measure
from gristmill.tasks.rules.shared import filled_lines, once, repeated_lines


def dup_paragraphs(text: Scan, settings: GopherRepetition) -> Parts:
    if settings.definition == "dclm":
        return _copies(*dclm.paragraphs(text))
    return Parts("paragraphs", _repeated_paragraphs(text), of=np.diff(text.paragraphs))


def dup_paragraph_chars(text: Scan, settings: GopherRepetition) -> Parts:
    if settings.definition == "dclm":
        return _characters_in_copies(text, *dclm.paragraphs(text))
    return Parts("paragraphs", _repeated_paragraphs(text), text.paragraph_chars, of=text.chars)


def dup_lines(text: Scan, settings: GopherRepetition) -> Parts:
    if settings.definition == "dclm":
        return _copies(*dclm.lines(text))
    return Parts("lines", repeated_lines(text), of=filled_lines(text))


def dup_line_chars(text: Scan, settings: GopherRepetition) -> Parts:
    if settings.definition == "dclm":
        return _characters_in_copies(text, *dclm.lines(text))
    return Parts("lines", repeated_lines(text), text.line_chars, of=text.chars)


def _in_grams(text: Scan, settings: GopherRepetition, n: int) -> Parts:
    if settings.definition == "dclm":
        words, _ = dclm.words(text)
        return _of_grams(words, _dclm_grams(text), n, of=text.sum(words.bounds, words.chars))
    return _of_grams("words", _grams(text), n, of=text.chars)


top_2gram, top_3gram, top_4gram = (partial(_in_grams, n=n) for n in (2, 3, 4))
dup_5gram, dup_6gram, dup_7gram, dup_8gram, dup_9gram, dup_10gram = (partial(_in_grams, n=n) for n in range(5, 11))


@once
def _repeated_paragraphs(text: Scan) -> np.ndarray:
    return equal_to_earlier(text.paragraphs, text.paragraph_hash)


@once
def _grams(text: Scan) -> tuple[np.ndarray, np.ndarray]:
    return repeated_grams(text.words, text.word_hash, text.word_chars, False)


@once
def _dclm_grams(text: Scan) -> tuple[np.ndarray, np.ndarray]:
    words, hashes = dclm.words(text)
    return repeated_grams(words.bounds, hashes, words.chars, True)


def _copies(units: Spans, hashes: np.ndarray) -> Parts:
    """The units that are there twice, every copy, of all."""
    return Parts(units, equal_to_another(units.bounds, hashes), of=units.count)


def _characters_in_copies(text: Scan, units: Spans, hashes: np.ndarray) -> Parts:
    of = text.sum(units.bounds, units.chars)
    return Parts(units, equal_to_another(units.bounds, hashes), units.chars, of=of)


def _of_grams(unit: Unit | Spans, grams: tuple[np.ndarray, np.ndarray], n: int, of: np.ndarray) -> Parts:
    chars, marks = grams
    return Parts(unit, lambda: (marks & np.uint16(1 << n)) != 0, value=ratio(chars[:, n - GRAMS.start], of))
