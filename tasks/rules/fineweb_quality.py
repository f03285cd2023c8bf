"""FineWeb's own rules: the step `fineweb_quality`."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from gristmill.tasks import kernels
from gristmill.tasks.rules.rule import Parts, RuleStep, ratio, rule, rule_set
from gristmill.tasks.rules.rule import measure as measure
from gristmill.tasks.rules.shared import filled, filled_lines, repeated_lines

SOURCE = "Penedo et al. 2024, E.4; definition: datatrove fineweb_quality_filter.py"
RULES = (
    rule(
        "line_punctuation",
        "fraction of lines",
        "Lines that end in terminal punctuation (Unicode's Sentence_Terminal), of those that are not blank.",
        low=0.12,
    ),
    rule(
        "short_lines",
        "fraction of lines",
        "Lines of at most `short_line_characters` characters, of those that are not blank.",
        high=0.67,
    ),
    rule(
        "char_dup_lines",
        "fraction of characters",
        """Characters in lines equal to an earlier one, of all but the line breaks.

        Code and appendix E.4 have the threshold 0.01, the paper's text has 0.1.
        """,
        high=0.01,
    ),
    rule(
        "newlines",
        "line feeds per word",
        "Line feeds (which may follow a carriage return) for each word, symbols being words. In the code only.",
        high=0.3,
    ),
)


@rule_set(SOURCE, RULES)
class FineWebQuality(RuleStep):
    """FineWeb's own quality rules (Penedo et al. 2024, arXiv 2406.17557, section 3.6, appendix E.4), as datatrove
    implements them.

    Source of the definitions: `FineWebQualityFilter`, datatrove
    src/datatrove/pipeline/filters/fineweb_quality_filter.py. Where the paper is silent or differs, the code is
    followed. Differences from it:

    - words are those of Unicode word segmentation (`gristmill.tasks.kernels.scan`) in every language; datatrove asks a
      tokenizer of the language;
    - a line ends at any line break; datatrove knows line feeds only. White space behind a line's terminal punctuation
      does not hide it;
    - a text without lines or words has 0 where datatrove drops it as empty.
    """

    # 2: terminal punctuation follows Unicode 17, so it includes Khmer's full stop
    work_version: ClassVar[int] = 2

    step: Literal["fineweb_quality"] = "fineweb_quality"
    exclude_zero: bool = Field(
        False,
        description="A document in which no line ends in terminal punctuation counts as if all lines did, "
        "for languages written without it; datatrove's line_punct_exclude_zero.",
    )
    short_line_characters: int = Field(30, ge=0, description="Maximum length of a short line (characters).")

    signal_fields: ClassVar = ("exclude_zero", "short_line_characters")


def line_punctuation(text: kernels.scan.Scan, settings: FineWebQuality) -> Parts:
    where = filled(text).copy()
    where[where] = (text.word_bits[text.line_words[1:][where] - 1] & kernels.scan.TERMINAL) != 0
    value = ratio(text.sum(text.lines, where), filled_lines(text))
    if settings.exclude_zero:
        value[value == 0] = 1
    return Parts("lines", where, value=value)


def short_lines(text: kernels.scan.Scan, settings: FineWebQuality) -> Parts:
    return Parts("lines", filled(text) & (text.line_chars <= settings.short_line_characters), of=filled_lines(text))


def char_dup_lines(text: kernels.scan.Scan) -> Parts:
    return Parts("lines", repeated_lines(text), text.line_chars, of=text.sum(text.lines, text.line_chars))


def newlines(text: kernels.scan.Scan) -> Parts:
    following = np.append(text.line_start[1:], text.documents[-1])[: len(text.line_start)]
    fed = (following > text.line_stop) & (text.data[following - 1] == ord("\n"))
    return Parts("lines", fed, of=np.diff(text.words))
