"""FineWeb's own rules (Penedo et al. 2024, arXiv 2406.17557, section 3.6 and appendix E.4), as datatrove computes them.

Source of the definitions: `FineWebQualityFilter`, datatrove src/datatrove/pipeline/filters/fineweb_quality_filter.py.
Where the paper is silent or differs, the code is followed. Differences from it:

- words are those of Unicode word segmentation (`tasks.kernels.scan`) in every language; datatrove asks a tokenizer of
  the language;
- a line ends at any line break; datatrove knows line feeds only. White space behind a line's terminal punctuation does
  not hide it;
- a text without lines or words has 0 where datatrove drops it as empty.
"""

from typing import ClassVar

import numpy as np
from pydantic import Field

from tasks.kernels.scan import TERMINAL, Scan
from tasks.rules.rule import Parts, Rules, RuleStep, ratio
from tasks.rules.shared import filled, filled_lines, repeated_lines

rules = Rules("fineweb_quality", "Penedo et al. 2024, E.4; definition: datatrove fineweb_quality_filter.py")


class _Lines(RuleStep):
    exclude_zero: bool = Field(
        False,
        description="whether documents in which no line ends in terminal punctuation count as if all lines did: for "
        "languages that are written without; datatrove's line_punct_exclude_zero",
    )
    short_line_characters: int = Field(30, ge=0, description="most characters of a short line")

    signal_fields: ClassVar = ("exclude_zero", "short_line_characters")


@rules.rule(low=0.12, unit="fraction of lines")
def line_punctuation(text: Scan, settings: _Lines) -> Parts:
    """Lines that end in terminal punctuation (Unicode's Sentence_Terminal), of those that are not blank."""
    where = filled(text).copy()
    where[where] = (text.word_bits[text.line_words[1:][where] - 1] & TERMINAL) != 0
    value = ratio(text.sum(text.lines, where), filled_lines(text))
    if settings.exclude_zero:
        value[value == 0] = 1
    return Parts("lines", where, value=value)


@rules.rule(high=0.67, unit="fraction of lines")
def short_lines(text: Scan, settings: _Lines) -> Parts:
    """Lines of at most `short_line_characters` characters, of those that are not blank."""
    return Parts("lines", filled(text) & (text.line_chars <= settings.short_line_characters), of=filled_lines(text))


@rules.rule(high=0.01, unit="fraction of characters")
def char_dup_lines(text: Scan) -> Parts:
    """Characters in lines equal to an earlier one, of all but the line breaks.

    Code and appendix E.4 have the threshold 0.01, the paper's text has 0.1.
    """
    return Parts("lines", repeated_lines(text), text.line_chars, of=text.sum(text.lines, text.line_chars))


@rules.rule(high=0.3, unit="line feeds per word")
def newlines(text: Scan) -> Parts:
    """Line feeds (which may follow a carriage return) for each word, symbols being words. In the code only."""
    following = np.append(text.line_start[1:], text.documents[-1])[: len(text.line_start)]
    fed = (following > text.line_stop) & (text.data[following - 1] == ord("\n"))
    return Parts("lines", fed, of=np.diff(text.words))


FineWebQuality = rules.step("FineWebQuality", _Lines)
