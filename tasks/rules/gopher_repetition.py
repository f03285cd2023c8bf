"""Gopher's repetition rules: the step `gopher_repetition`."""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from gristmill.tasks import kernels
from gristmill.tasks.rules import shared as dclm
from gristmill.tasks.rules.rule import DEFINITION, Definition, Parts, RuleStep, Spans, Unit, ratio, rule, rule_set
from gristmill.tasks.rules.rule import measure as measure
from gristmill.tasks.rules.shared import filled_lines, once, repeated_lines

SOURCE = "Rae et al. 2021, Table A1; definitions: datatrove gopher_repetition_filter.py, DCLM content_filters.py"
_CHARACTERS = "fraction of characters"
RULES = (
    rule(
        "dup_paragraphs",
        "fraction of paragraphs",
        """Paragraphs equal to an earlier one.

        DCLM: equal to another one, so the first copy too.
        """,
        high=0.30,
    ),
    rule(
        "dup_paragraph_chars",
        _CHARACTERS,
        """Characters in paragraphs equal to an earlier one.

        DCLM: equal to another one; of the characters in paragraphs.
        """,
        high=0.20,
    ),
    rule(
        "dup_lines",
        "fraction of lines",
        """Lines equal to an earlier one, of those that are not blank.

        DCLM: equal to another one, so the first copy too.
        """,
        high=0.30,
    ),
    rule(
        "dup_line_chars",
        _CHARACTERS,
        """Characters in lines equal to an earlier one.

        DCLM: equal to another one; of the characters in lines.
        """,
        high=0.20,
    ),
    *(
        rule(
            f"top_{n}gram",
            _CHARACTERS,
            f"""Characters of the most frequent {n}-gram, its words joined by spaces.

            DCLM: 0 if none occurs twice; of the most frequent ones the longest; without the spaces, of the characters
            of words.
            """,
            high=high,
        )
        for n, high in zip((2, 3, 4), (0.20, 0.18, 0.16), strict=True)
    ),
    *(
        rule(
            f"dup_{n}gram",
            _CHARACTERS,
            f"""Characters of the words in {n}-grams that have appeared before.

            DCLM: in {n}-grams that occur twice, in every copy; of the characters of words.
            """,
            high=high,
        )
        for n, high in zip((5, 6, 7, 8, 9, 10), (0.15, 0.14, 0.13, 0.12, 0.11, 0.10), strict=True)
    ),
)


@rule_set(SOURCE, RULES)
class GopherRepetition(RuleStep):
    """Gopher's repetition rules (Rae et al. 2021, arXiv 2112.11446, Table A1), as datatrove or DCLM implements them.

    `definition: datatrove`: `GopherRepetitionFilter`, datatrove src/datatrove/pipeline/filters/
    gopher_repetition_filter.py. Where the paper is silent or differs, the code is followed: every fraction of
    characters is one of all characters of the text, white space included; the first copy of a line or paragraph does
    not count; the top n-gram counts even if it occurs once; after a duplicate n-gram all of it is skipped.
    Differences from it:

    - words are those of Unicode word segmentation (`gristmill.tasks.kernels.scan`) in every language; datatrove asks a
      tokenizer of the language;
    - n-grams are equal if their words are; datatrove writes the words of duplicate n-grams together, and takes `1 11
      a` for equal to `11 1 a` (of 2,463 web pages 11 of 14,778 values differ, and no verdict);
    - a line ends at any line break, a paragraph at a blank line, and blank lines do not count; datatrove knows line
      feeds only, and takes lines of white space for text.

    `definition: dclm`: `repetition_filter`, DCLM baselines/mappers/filters/content_filters.py. All copies of a line or
    paragraph count, the first too; n-grams that occur once do not; all words of n-grams that occur twice count, each
    once. Words begin with a letter or number; lines are what stands between line feeds, paragraphs between two, both
    without white space at their ends. Every fraction of characters is one of those in words, lines or paragraphs.
    Differences from it:

    - words are ours in scripts without spaces, where uniseg, which DCLM asks, takes each letter for a word;
    - a text without words has 0, where DCLM drops one without a line.
    """

    step: Literal["gopher_repetition"] = "gopher_repetition"
    definition: Definition = Field("datatrove", description=DEFINITION)

    signal_fields: ClassVar = ("definition",)


def dup_paragraphs(text: kernels.scan.Scan, settings: GopherRepetition) -> Parts:
    if settings.definition == "dclm":
        return _copies(*dclm.paragraphs(text))
    return Parts("paragraphs", _repeated_paragraphs(text), of=np.diff(text.paragraphs))


def dup_paragraph_chars(text: kernels.scan.Scan, settings: GopherRepetition) -> Parts:
    if settings.definition == "dclm":
        return _characters_in_copies(text, *dclm.paragraphs(text))
    return Parts("paragraphs", _repeated_paragraphs(text), text.paragraph_chars, of=text.chars)


def dup_lines(text: kernels.scan.Scan, settings: GopherRepetition) -> Parts:
    if settings.definition == "dclm":
        return _copies(*dclm.lines(text))
    return Parts("lines", repeated_lines(text), of=filled_lines(text))


def dup_line_chars(text: kernels.scan.Scan, settings: GopherRepetition) -> Parts:
    if settings.definition == "dclm":
        return _characters_in_copies(text, *dclm.lines(text))
    return Parts("lines", repeated_lines(text), text.line_chars, of=text.chars)


def _in_grams(text: kernels.scan.Scan, settings: GopherRepetition, n: int) -> Parts:
    if settings.definition == "dclm":
        words, _ = dclm.words(text)
        return _of_grams(words, _dclm_grams(text), n, of=text.sum(words.bounds, words.chars))
    return _of_grams("words", _grams(text), n, of=text.chars)


top_2gram, top_3gram, top_4gram = (partial(_in_grams, n=n) for n in (2, 3, 4))
dup_5gram, dup_6gram, dup_7gram, dup_8gram, dup_9gram, dup_10gram = (partial(_in_grams, n=n) for n in range(5, 11))


@once
def _repeated_paragraphs(text: kernels.scan.Scan) -> np.ndarray:
    return kernels.repetition.equal_to_earlier(text.paragraphs, text.paragraph_hash)


@once
def _grams(text: kernels.scan.Scan) -> tuple[np.ndarray, np.ndarray]:
    return kernels.repetition.repeated_grams(text.words, text.word_hash, text.word_chars, False)


@once
def _dclm_grams(text: kernels.scan.Scan) -> tuple[np.ndarray, np.ndarray]:
    words, hashes = dclm.words(text)
    return kernels.repetition.repeated_grams(words.bounds, hashes, words.chars, True)


def _copies(units: Spans, hashes: np.ndarray) -> Parts:
    """The units that are there twice, every copy, of all."""
    return Parts(units, kernels.repetition.equal_to_another(units.bounds, hashes), of=units.count)


def _characters_in_copies(text: kernels.scan.Scan, units: Spans, hashes: np.ndarray) -> Parts:
    totals = text.sum(units.bounds, units.chars)
    return Parts(units, kernels.repetition.equal_to_another(units.bounds, hashes), units.chars, of=totals)


def _of_grams(unit: Unit | Spans, grams: tuple[np.ndarray, np.ndarray], n: int, of: np.ndarray) -> Parts:
    chars, marks = grams
    return Parts(
        unit, lambda: (marks & np.uint16(1 << n)) != 0, value=ratio(chars[:, n - kernels.repetition.GRAMS.start], of)
    )
