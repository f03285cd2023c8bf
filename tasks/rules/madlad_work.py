"""The rules of `gristmill.tasks.rules.madlad`, which describes them, as functions."""

import re

import numpy as np
import pyarrow.compute as pc
import pyarrow.lib

from gristmill.tasks.kernels.pieces import pieces
from gristmill.tasks.kernels.scan import CAPITAL, FIELD, REAL, Scan
from gristmill.tasks.rules.madlad import Madlad
from gristmill.tasks.rules.rule_work import Parts, ratio
from gristmill.tasks.rules.rule_work import measure as measure

_OPERATOR = re.compile(r"[\\.^$*+?{}()|\[\]]")
_TECHNICAL = np.isin(np.arange(256), list(b"0123456789{}+/()>"))
_FIRST_BYTES = np.arange(256) & 0xC0 != 0x80  # of a code point
_MARKS = np.isin(np.arange(256), list(b".!?"))

FEWEST_TOKENS = 12
SHORTEST, LONGEST = 20, 500


def sentences(text: Scan, settings: Madlad) -> np.ndarray:
    return np.diff(np.searchsorted(sentence_bounds(text, settings), text.words))


def questionable(text: Scan, settings: Madlad) -> Parts:
    first = sentence_bounds(text, settings)
    found = np.zeros(len(first) - 1, bool)
    start, stop = text.word_start[first[:-1]], text.word_stop[first[1:] - 1]
    if "list_case" in settings.checks:
        tokens = text.sum(first, (text.word_bits & REAL) != 0)
        capitals = text.sum(first, (text.word_bits & (REAL | CAPITAL)) == (REAL | CAPITAL))
        found |= (tokens >= FEWEST_TOKENS) & (2 * capitals > tokens)
    if {"length", "technical"} & {*settings.checks}:
        size = _count(text, start, stop, _FIRST_BYTES)
    if "length" in settings.checks:
        found |= (size < SHORTEST) | (size > LONGEST)
    if "technical" in settings.checks:
        found |= 5 * _count(text, start, stop, _TECHNICAL) > size
    if "cursed" in settings.checks:
        shown = pieces(text.data, start, stop)
        for expression in _alternations(settings.cursed):
            found |= pc.match_substring_regex(shown, expression).to_numpy(zero_copy_only=False)
    at = np.searchsorted(first, text.words)
    value = ratio(text.sum(at, found), np.diff(at))
    return Parts("words", np.repeat(found, np.diff(first)), value=value)


def check_expressions(expressions: tuple[str, ...]) -> None:
    """Raises ValueError for what is no regular expression of RE2."""
    for expression in expressions:
        try:
            pc.match_substring_regex("", expression)
        except pyarrow.lib.ArrowInvalid as error:
            raise ValueError(f"{expression!r} is no regular expression of RE2: {error}") from error


def _alternations(cursed: tuple[str, ...]) -> list[str]:
    """One for plain strings and one for others: an automaton of both is several times as large, and half as fast."""
    plain = [expression for expression in cursed if not _OPERATOR.search(expression)]
    others = [expression for expression in cursed if _OPERATOR.search(expression)]
    return ["|".join(part) for part in (plain, others) if part]


def sentence_bounds(scanned: Scan, settings: Madlad) -> np.ndarray:
    """The first word of each sentence, and the number of words at the end: int64."""
    if not settings.across_lines:
        return scanned.sentence_words
    begins = np.zeros(len(scanned.word_bits), bool)
    begins[1:] = _MARKS[scanned.data[scanned.word_stop[:-1] - 1]] & ((scanned.word_bits[1:] & FIELD) != 0)
    begins[scanned.words[:-1][np.diff(scanned.words) > 0]] = True
    return np.append(np.flatnonzero(begins), len(begins))


def _count(text: Scan, start: np.ndarray, stop: np.ndarray, which: np.ndarray) -> np.ndarray:
    """How many bytes of each span are of those in `which`: int64. Spans are in order."""
    begin, end = text.documents[0], text.documents[-1]
    bounds = np.append(np.stack([start, stop], axis=1), end) - begin
    return text.sum(bounds, which[text.data[begin:end]])[::2]
