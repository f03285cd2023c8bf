"""Gopher's quality rules: the step `gopher_quality`."""

from collections.abc import Iterator
from importlib import import_module
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from gristmill.storage.address import Address
from gristmill.tasks.documents.step import Problem
from gristmill.tasks.rules.rule import DEFINITION, Definition, RuleStep, rule, rule_set
from gristmill.tasks.url.list_files import list_problems

_WORK = "gristmill.tasks.rules.gopher_quality_work"
SOURCE = "Rae et al. 2021, A1.1; definitions: datatrove gopher_quality_filter.py, DCLM content_filters.py"
RULES = (
    rule(
        "words",
        "words",
        """Words that have a letter, mark or number.

        DCLM: what stands between white space of ASCII, if it begins with a letter or number.
        """,
        low=50,
        high=100_000,
    ),
    rule(
        "mean_word_length",
        "characters per word",
        """Mean length of the words that have a letter, mark or number, in characters.

        DCLM: of all runs without white space.
        """,
        low=3.0,
        high=10.0,
    ),
    rule(
        "hash_ratio",
        "hash signs per word",
        """Characters `#` per word, symbols being words.

        DCLM: words are runs without white space, and hash signs and ellipses are added up (`symbol_ratio`).
        """,
        high=0.1,
    ),
    rule(
        "ellipsis_ratio",
        "ellipses per word",
        """Ellipses, `...` (not overlapping) or U+2026, per word, symbols being words.

        DCLM: `. . .` too; words are runs without white space; hash signs and ellipses are added up (`symbol_ratio`).
        """,
        high=0.1,
    ),
    rule(
        "symbol_ratio",
        "hash signs and ellipses per word",
        """Hash signs and ellipses together per word, as `hash_ratio` and `ellipsis_ratio` count them: DCLM's rule, 0.1.

        It is off by default; where it binds, set the other two to null.
        """,
        high=None,
    ),
    rule(
        "bullet_lines",
        "fraction of lines",
        """Lines that begin with a bullet, U+2022 or `-`, after white space; of all lines, blank ones too.

        DCLM: U+25CF and `*` are bullets, too; of the lines that are not blank.
        """,
        high=0.9,
    ),
    rule(
        "ellipsis_lines",
        "fraction of lines",
        """Lines that end with an ellipsis, `...` or U+2026, before white space; of all lines, blank ones too.

        DCLM: `. . .` is an ellipsis, too; of the lines that are not blank.
        """,
        high=0.3,
    ),
    rule(
        "alpha_words",
        "fraction of tokens",
        """Tokens that have a letter (`str.isalpha`), of all tokens, symbols too.

        The rule turns on how many symbols there are for a word, so on how a tokenizer cuts at them: tokens are nearly
        those of datatrove's for English (`gristmill.tasks.kernels.tokens`). DCLM: tokens are runs without white space.
        """,
        low=0.8,
    ),
    rule(
        "stop_words",
        "stop words",
        """Different words of the setting `stop_words`, as they are written there: usually in lower case.

        DCLM: every occurrence counts, in any case, where white space stands on both sides.
        """,
        low=2,
    ),
)


@rule_set(SOURCE, RULES)
class GopherQuality(RuleStep):
    """Gopher's quality rules (Rae et al. 2021, arXiv 2112.11446, section A1.1), as datatrove or DCLM computes them.

    `definition: datatrove`: `GopherQualityFilter`, datatrove src/datatrove/pipeline/filters/gopher_quality_filter.py.
    Where the paper is silent or differs, the code is followed. Differences from it:

    - words are those of Unicode word segmentation (`gristmill.tasks.kernels.scan`) in every language; datatrove asks a
      tokenizer of the language; `alpha_words` alone counts tokens like those of its English one;
    - a word is one of symbols if it has no letter, mark or number (general categories L, M, N); datatrove has a list of
      punctuation characters instead, and symbols outside it count as words;
    - a text without words or lines has 0 where datatrove divides by zero.

    `definition: dclm`: DCLM baselines/mappers/filters/content_filters.py, `page_length_filter` (by fastText's
    tokenizer, `ignore_punctuation`) to `stop_word_filter`; words are runs without white space, lines are what stands
    between line feeds, without the blank ones. Differences from it: a text without words has 0, where DCLM drops it;
    stop words are those of the settings, and put in lower case code point by code point.
    """

    work: ClassVar = _WORK
    pins_files: ClassVar = True

    step: Literal["gopher_quality"] = "gopher_quality"
    definition: Definition = Field("datatrove", description=DEFINITION)
    stop_words: tuple[str, ...] = Field(
        ("the", "be", "to", "of", "and", "that", "have", "with"),
        description="stop words as they are written in the text, for DCLM in any case; Gopher's are English",
    )
    stop_words_by_language: dict[str, tuple[str, ...] | Address] = Field(
        {},
        description="by the column `language`: its stop words, or the address of a file with one a line; documents in "
        "other languages keep to `stop_words`",
    )

    signal_fields: ClassVar = ("definition", "stop_words", "stop_words_by_language")

    @field_validator("stop_words", "stop_words_by_language")
    @classmethod
    def _words(cls, given: Any) -> Any:
        if isinstance(given, dict):
            return {code: words if isinstance(words, str) else cls._words(words) for code, words in given.items()}
        for word in given:
            # the kernels take most of a second to load: they are asked about other scripts only
            if not is_surely_one_word(word) and not import_module(_WORK).is_one_word(word):
                raise ValueError(f"stop word {word!r} never occurs: write single words, without white space or symbols")
        return tuple(dict.fromkeys(given))

    @property
    def reads(self) -> tuple[str, ...]:
        return ("language",) if self.stop_words_by_language else ()

    def problems(self, deep: bool) -> Iterator[Problem]:
        for language, words in self.stop_words_by_language.items():
            if isinstance(words, str):
                yield from list_problems(words, ("stop_words_by_language", language), deep)


def is_surely_one_word(word: str) -> bool:
    """Whether what is given is one word by its letters alone: those of Latin, Greek and Cyrillic never part a word."""
    return word.isalpha() and all(letter < "\u0250" or "\u0370" <= letter < "\u0530" for letter in word)
