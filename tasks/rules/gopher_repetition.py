"""Gopher's repetition rules: the step `gopher_repetition`."""

from typing import ClassVar, Literal

from tasks.rules.rule import RuleStep, rule, rule_set

SOURCE = "Rae et al. 2021, Table A1; definition: datatrove gopher_repetition_filter.py"
RULES = (
    rule("dup_paragraphs", "fraction of paragraphs", "Paragraphs equal to an earlier one.", high=0.30),
    rule(
        "dup_paragraph_chars", "fraction of characters", "Characters in paragraphs equal to an earlier one.", high=0.20
    ),
    rule("dup_lines", "fraction of lines", "Lines equal to an earlier one, of those that are not blank.", high=0.30),
    rule("dup_line_chars", "fraction of characters", "Characters in lines equal to an earlier one.", high=0.20),
    *(
        rule(
            f"top_{n}gram",
            "fraction of characters",
            f"Characters of the most frequent {n}-gram, its words joined by spaces.",
            high=high,
        )
        for n, high in zip((2, 3, 4), (0.20, 0.18, 0.16), strict=True)
    ),
    *(
        rule(
            f"dup_{n}gram",
            "fraction of characters",
            f"Characters of the words in {n}-grams that have appeared before.",
            high=high,
        )
        for n, high in zip((5, 6, 7, 8, 9, 10), (0.15, 0.14, 0.13, 0.12, 0.11, 0.10), strict=True)
    ),
)


@rule_set(SOURCE, RULES)
class GopherRepetition(RuleStep):
    """Gopher's repetition rules (Rae et al. 2021, arXiv 2112.11446, Table A1), as datatrove computes them.

    Source of the definitions: `GopherRepetitionFilter`, datatrove src/datatrove/pipeline/filters/
    gopher_repetition_filter.py. Where the paper is silent or differs, the code is followed: every fraction of
    characters is one of all characters of the text, white space included; the first copy of a line or paragraph does
    not count; the top n-gram counts even if it occurs once; after a duplicate n-gram all of it is skipped.
    Differences from it:

    - words are those of Unicode word segmentation (`tasks.kernels.scan`) in every language; datatrove asks a
      tokenizer of the language;
    - n-grams are equal if their words are; datatrove writes the words of duplicate n-grams together, and takes `1 11
      a` for equal to `11 1 a` (of 2,463 web pages 11 of 14,778 values differ, and no verdict);
    - a line ends at any line break, a paragraph at a blank line, and blank lines do not count; datatrove knows line
      feeds only, and takes lines of white space for text.
    """

    work: ClassVar = "tasks.rules.gopher_repetition_work"

    step: Literal["gopher_repetition"] = "gopher_repetition"
