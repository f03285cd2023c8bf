"""Gopher's repetition rules: the step `gopher_repetition`."""

from typing import ClassVar, Literal

from pydantic import Field

from gristmill.tasks.rules.rule import DEFINITION, Definition, RuleStep, rule, rule_set

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
    """Gopher's repetition rules (Rae et al. 2021, arXiv 2112.11446, Table A1), as datatrove or DCLM computes them.

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

    work: ClassVar = "gristmill.tasks.rules.gopher_repetition_work"

    step: Literal["gopher_repetition"] = "gopher_repetition"
    definition: Definition = Field("datatrove", description=DEFINITION)

    signal_fields: ClassVar = ("definition",)
