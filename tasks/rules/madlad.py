"""MADLAD-400's questionable sentences: the step `madlad`."""

from __future__ import annotations

import re
from typing import ClassVar, Literal

import numpy as np
import pyarrow.compute as pc
import pyarrow.lib
from pydantic import Field, field_validator

from gristmill.tasks import kernels
from gristmill.tasks.rules.rule import Parts, RuleStep, ratio, rule, rule_set
from gristmill.tasks.rules.rule import measure as measure

SOURCE = "Kudugunta et al. 2023 (arXiv 2309.04662), 2.3 and dataset card; Dolma 3: datamap-rs map_fxn.rs"

# The card's list. The last four are for texts like "A N T S P E A K" and lists of codes.
_CURSED = (
    *(" №", "\ufffd\ufffd\ufffd", r"\|\s*$", r" nr\.$", "aute irure dolor ", " sunt in culpa qui ", "orem ipsum "),
    *(" quis nostrud ", " adipisicing ", " dolore eu ", " cupidatat ", "autem vel eum", "wisi enim ad", " sex "),
    *(" porn ", "黄色电影", "mp3", "ownload", r"Vol\.", r" Ep\.", "Episode", r" г\.\s*$", r" кг\.\s*$", r" шт\."),
    *("Develop", "Facebook", " crusher ", " xxx ", " ... ... ... ... ... ... ... ... ..."),
    " .... .... .... .... .... .... .... .... ....",
    " [^ ] [^ ] [^ ] [^ ] [^ ] [^ ] [^ ] [^ ] [^ ]",
    ", ..,,? ..,,? ..,,? ..,,?",
)

RULES = (
    rule("sentences", "sentences", "Sentences of a document.", low=5),
    rule(
        "questionable",
        "fraction of sentences",
        r"""Sentences that are questionable, of all.

        One is if it has at least 12 tokens of which over half begin with a capital (list_case); under 20 or over 500
        characters (length); over 20% characters of [0-9{}+/()>] (technical); or matches one of the expressions
        (cursed). Tokens are words with a letter or number. The fifth check, that its language is not the document's,
        would need a language model for single sentences and is not here.

        Documents with a fifth of such sentences drop in the paper and in Dolma 3's filter (the card, and an
        annotation in Dolma 3's code, say more than a fifth), hence a threshold a little below. Dolma 3's code splits
        texts at `[.!?]+\s+` without regard to lines, see `across_lines`, takes sizes in bytes, and takes all cursed
        expressions but the last four for literal strings, so that those with a backslash never match there. Here a
        sentence keeps the marks at its end, which the expressions ask for.
        """,
        high=0.199999,
    ),
)


@rule_set(SOURCE, RULES)
class Madlad(RuleStep):
    """MADLAD-400's filter of questionable sentences: lists in title case, unusual lengths, technical characters, known
    junk."""

    # 2: terminal punctuation follows Unicode 17, so it includes Khmer's full stop
    work_version: ClassVar[int] = 2

    step: Literal["madlad"] = "madlad"
    checks: tuple[Literal["list_case", "length", "technical", "cursed"], ...] = Field(
        ("list_case", "length", "technical", "cursed"),
        description="Checks that make a sentence questionable; Dolma 3: list_case, cursed.",
    )
    cursed: tuple[str, ...] = Field(_CURSED, description="Regular expressions (RE2) that mark a sentence as cursed.")
    across_lines: bool = Field(
        False, description="A sentence continues on the next line unless . ! or ? ends it; true for Dolma 3."
    )

    signal_fields: ClassVar = ("checks", "cursed", "across_lines")

    @field_validator("cursed")
    @classmethod
    def _compiles(cls, cursed: tuple[str, ...]) -> tuple[str, ...]:
        if cursed != _CURSED:  # RE2 comes with Arrow, which is not loaded for the published expressions
            check_expressions(cursed)
        return cursed


_OPERATOR = re.compile(r"[\\.^$*+?{}()|\[\]]")
_TECHNICAL = np.isin(np.arange(256), list(b"0123456789{}+/()>"))
_FIRST_BYTES = np.arange(256) & 0xC0 != 0x80  # of a code point
_MARKS = np.isin(np.arange(256), list(b".!?"))

MIN_TOKENS = 12
MIN_LENGTH, MAX_LENGTH = 20, 500


def sentences(text: kernels.scan.Scan, settings: Madlad) -> np.ndarray:
    return np.diff(np.searchsorted(sentence_bounds(text, settings), text.words))


def questionable(text: kernels.scan.Scan, settings: Madlad) -> Parts:
    first = sentence_bounds(text, settings)
    is_questionable = np.zeros(len(first) - 1, bool)
    start, stop = text.word_start[first[:-1]], text.word_stop[first[1:] - 1]
    if "list_case" in settings.checks:
        tokens = text.sum(first, (text.word_bits & kernels.scan.REAL) != 0)
        capitals = text.sum(
            first,
            (text.word_bits & (kernels.scan.REAL | kernels.scan.CAPITAL)) == (kernels.scan.REAL | kernels.scan.CAPITAL),
        )
        is_questionable |= (tokens >= MIN_TOKENS) & (2 * capitals > tokens)
    if {"length", "technical"} & {*settings.checks}:
        size = _count(text, start, stop, _FIRST_BYTES)
    if "length" in settings.checks:
        is_questionable |= (size < MIN_LENGTH) | (size > MAX_LENGTH)
    if "technical" in settings.checks:
        is_questionable |= 5 * _count(text, start, stop, _TECHNICAL) > size
    if "cursed" in settings.checks:
        texts = kernels.pieces.pieces(text.data, start, stop)
        for expression in _alternations(settings.cursed):
            is_questionable |= pc.match_substring_regex(texts, expression).to_numpy(zero_copy_only=False)
    bounds = np.searchsorted(first, text.words)
    value = ratio(text.sum(bounds, is_questionable), np.diff(bounds))
    return Parts("words", np.repeat(is_questionable, np.diff(first)), value=value)


def check_expressions(expressions: tuple[str, ...]) -> None:
    """Raises ValueError for what is no regular expression of RE2."""
    for expression in expressions:
        try:
            pc.match_substring_regex("", expression)
        except pyarrow.lib.ArrowInvalid as error:
            raise ValueError(f"{expression!r} is not a regular expression of RE2: {error}") from error


def _alternations(cursed: tuple[str, ...]) -> list[str]:
    """One for plain strings and one for others: an automaton of both is several times as large, and half as fast."""
    plain = [expression for expression in cursed if not _OPERATOR.search(expression)]
    others = [expression for expression in cursed if _OPERATOR.search(expression)]
    return ["|".join(part) for part in (plain, others) if part]


def sentence_bounds(scanned: kernels.scan.Scan, settings: Madlad) -> np.ndarray:
    """The first word of each sentence, and the number of words at the end: int64."""
    if not settings.across_lines:
        return scanned.sentence_words
    begins = np.zeros(len(scanned.word_bits), bool)
    begins[1:] = _MARKS[scanned.data[scanned.word_stop[:-1] - 1]] & ((scanned.word_bits[1:] & kernels.scan.FIELD) != 0)
    begins[scanned.words[:-1][np.diff(scanned.words) > 0]] = True
    return np.append(np.flatnonzero(begins), len(begins))


def _count(text: kernels.scan.Scan, start: np.ndarray, stop: np.ndarray, which: np.ndarray) -> np.ndarray:
    """How many bytes of each span are of those in `which`: int64. Spans are in order."""
    begin, end = text.documents[0], text.documents[-1]
    bounds = np.append(np.stack([start, stop], axis=1), end) - begin
    return text.sum(bounds, which[text.data[begin:end]])[::2]
