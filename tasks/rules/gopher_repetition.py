"""Gopher's repetition rules (Rae et al. 2021, arXiv 2112.11446, Table A1), as datatrove computes them.

Source of the definitions: `GopherRepetitionFilter`, datatrove src/datatrove/pipeline/filters/
gopher_repetition_filter.py. Where the paper is silent or differs, the code is followed: every fraction of characters is
one of all characters of the text, white space included; the first copy of a line or paragraph does not count; the top
n-gram counts even if it occurs once; after a duplicate n-gram all of it is skipped. Differences from it:

- words are those of Unicode word segmentation (`tasks.kernels.scan`) in every language; datatrove asks a tokenizer of
  the language;
- n-grams are equal if their words are; datatrove writes the words of duplicate n-grams together, and takes `1 11 a` for
  equal to `11 1 a` (of 2,463 web pages 11 of 14,778 values differ, and no verdict);
- a line ends at any line break, a paragraph at a blank line, and blank lines do not count; datatrove knows line feeds
  only, and takes lines of white space for text.
"""

import numpy as np

from tasks.kernels.repetition import GRAMS, equal_to_earlier, repeated_grams
from tasks.kernels.scan import Scan
from tasks.rules.rule import Parts, Rules, ratio
from tasks.rules.shared import filled_lines, once, repeated_lines

rules = Rules("gopher_repetition", "Rae et al. 2021, Table A1; definition: datatrove gopher_repetition_filter.py")


@once
def _repeated_paragraphs(text: Scan) -> np.ndarray:
    return equal_to_earlier(text.paragraphs, text.paragraph_hash)


@rules.rule(high=0.30, unit="fraction of paragraphs")
def dup_paragraphs(text: Scan) -> Parts:
    """Paragraphs equal to an earlier one."""
    return Parts("paragraphs", _repeated_paragraphs(text), of=np.diff(text.paragraphs))


@rules.rule(high=0.20, unit="fraction of characters")
def dup_paragraph_chars(text: Scan) -> Parts:
    """Characters in paragraphs equal to an earlier one."""
    return Parts("paragraphs", _repeated_paragraphs(text), text.paragraph_chars, of=text.chars)


@rules.rule(high=0.30, unit="fraction of lines")
def dup_lines(text: Scan) -> Parts:
    """Lines equal to an earlier one, of those that are not blank."""
    return Parts("lines", repeated_lines(text), of=filled_lines(text))


@rules.rule(high=0.20, unit="fraction of characters")
def dup_line_chars(text: Scan) -> Parts:
    """Characters in lines equal to an earlier one."""
    return Parts("lines", repeated_lines(text), text.line_chars, of=text.chars)


@once
def _grams(text: Scan) -> tuple[np.ndarray, np.ndarray]:
    return repeated_grams(text.words, text.word_hash, text.word_chars)


def _in_grams(text: Scan, n: int) -> Parts:
    chars, marks = _grams(text)
    value = ratio(chars[:, n - GRAMS.start], text.chars)
    return Parts("words", lambda: (marks & np.uint16(1 << n)) != 0, value=value)


def _gram_rule(name: str, n: int, high: float, says: str) -> None:
    def rule(text: Scan) -> Parts:
        return _in_grams(text, n)

    rule.__name__, rule.__doc__ = name, says
    rules.rule(high=high, unit="fraction of characters")(rule)


for n, high in zip((2, 3, 4), (0.20, 0.18, 0.16), strict=True):
    _gram_rule(f"top_{n}gram", n, high, f"Characters of the most frequent {n}-gram, its words joined by spaces.")
for n, high in zip((5, 6, 7, 8, 9, 10), (0.15, 0.14, 0.13, 0.12, 0.11, 0.10), strict=True):
    _gram_rule(f"dup_{n}gram", n, high, f"Characters of the words in {n}-grams that have appeared before.")

GopherRepetition = rules.step("GopherRepetition")
