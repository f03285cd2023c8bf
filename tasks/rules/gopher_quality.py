"""Gopher's quality rules: the step `gopher_quality`."""

from importlib import import_module
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from tasks.rules.rule import RuleStep, rule, rule_set

_WORK = "tasks.rules.gopher_quality_work"
SOURCE = "Rae et al. 2021, A1.1; definition: datatrove gopher_quality_filter.py"
RULES = (
    rule("words", "words", "Words that have a letter, mark or number.", low=50, high=100_000),
    rule(
        "mean_word_length",
        "characters per word",
        "Mean length of the words that have a letter, mark or number, in characters.",
        low=3.0,
        high=10.0,
    ),
    rule("hash_ratio", "hash signs per word", "Characters `#` per word, symbols being words.", high=0.1),
    rule(
        "ellipsis_ratio",
        "ellipses per word",
        "Ellipses, `...` (not overlapping) or U+2026, per word, symbols being words.",
        high=0.1,
    ),
    rule(
        "bullet_lines",
        "fraction of lines",
        "Lines that begin with a bullet, U+2022 or `-`, after white space; of all lines, blank ones too.",
        high=0.9,
    ),
    rule(
        "ellipsis_lines",
        "fraction of lines",
        "Lines that end with an ellipsis, `...` or U+2026, before white space; of all lines, blank ones too.",
        high=0.3,
    ),
    rule(
        "alpha_words",
        "fraction of tokens",
        """Tokens that have a letter (`str.isalpha`), of all tokens, symbols too.

        The rule turns on how many symbols there are for a word, so on how a tokenizer cuts at them: tokens are nearly
        those of datatrove's for English (`tasks.kernels.tokens`).
        """,
        low=0.8,
    ),
    rule(
        "stop_words",
        "different stop words",
        """Different words of the setting `stop_words`, as they are written there: usually in lower case.

        RefinedWeb as coded by DCLM counts every occurrence instead.
        """,
        low=2,
    ),
)


@rule_set(SOURCE, RULES)
class GopherQuality(RuleStep):
    """Gopher's quality rules (Rae et al. 2021, arXiv 2112.11446, section A1.1), as datatrove computes them.

    Source of the definitions: `GopherQualityFilter`, datatrove src/datatrove/pipeline/filters/gopher_quality_filter.py.
    Where the paper is silent or differs, the code is followed. Differences from it:

    - words are those of Unicode word segmentation (`tasks.kernels.scan`) in every language; datatrove asks a
      tokenizer of the language; `alpha_words` alone counts tokens like those of its English one;
    - a word is one of symbols if it has no letter, mark or number (general categories L, M, N); datatrove has a list of
      punctuation characters instead, and symbols outside it count as words;
    - a text without words or lines has 0 where datatrove divides by zero.
    """

    work: ClassVar = _WORK
    pins_files: ClassVar = True

    step: Literal["gopher_quality"] = "gopher_quality"
    stop_words: tuple[str, ...] = Field(
        ("the", "be", "to", "of", "and", "that", "have", "with"),
        description="stop words as they are written in the text; Gopher's are English",
    )
    stop_words_by_language: dict[str, tuple[str, ...] | str] = Field(
        {},
        description="by the column `language`: its stop words, or the address of a file with one a line; documents in "
        "other languages keep to `stop_words`",
    )

    signal_fields: ClassVar = ("stop_words", "stop_words_by_language")

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


def is_surely_one_word(word: str) -> bool:
    """Whether what is given is one word by its letters alone: those of Latin, Greek and Cyrillic never part a word."""
    return word.isalpha() and all(letter < "\u0250" or "\u0370" <= letter < "\u0530" for letter in word)
