"""Gopher's quality rules: the step `gopher_quality`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, field_validator

from gristmill.storage import files
from gristmill.storage.settings import Address
from gristmill.tasks import kernels
from gristmill.tasks.documents.step import Problem
from gristmill.tasks.rules import shared as dclm
from gristmill.tasks.rules.rule import DEFINITION, Definition, Parts, RuleStep, Spans, Unit, ratio, rule, rule_set
from gristmill.tasks.rules.rule import measure as measure
from gristmill.tasks.rules.shared import (
    DCLM_ELLIPSES,
    ELLIPSES,
    apostrophes,
    begins,
    ellipses,
    ends_with_one,
    filled,
    once,
    places,
    real,
    real_words,
    spaced_ellipses,
)
from gristmill.tasks.url.lists import ListError, list_files, list_problems

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
    """Gopher's quality rules (Rae et al. 2021, arXiv 2112.11446, section A1.1), as datatrove or DCLM implements them.

    `definition: datatrove`: `GopherQualityFilter`, datatrove src/datatrove/pipeline/filters/gopher_quality_filter.py.
    Where the paper is silent or differs, the code is followed. Differences from it:

    - words are those of Unicode word segmentation (`gristmill.tasks.kernels.scan`) in every language; datatrove asks a
      tokenizer of the language; only `alpha_words` counts tokens like its English one does, and in scripts without
      spaces the words of that segmentation and the punctuation between them;
    - a word is one of symbols if it has no letter, mark or number (general categories L, M, N); datatrove has a list of
      punctuation characters instead, and symbols outside it count as words;
    - a text without words or lines has 0 where datatrove divides by zero.

    `definition: dclm`: DCLM baselines/mappers/filters/content_filters.py, `page_length_filter` (by fastText's
    tokenizer, `ignore_punctuation`) to `stop_word_filter`; words are runs without white space, lines are what stands
    between line feeds, without the blank ones. Differences from it: a text without words has 0, where DCLM drops it;
    stop words are those of the settings, and put in lower case code point by code point.
    """

    # 2: alpha_words counts words that touch, and East Asian signs between words, one by one
    work_version: ClassVar[int] = 2

    pins_files: ClassVar = True

    step: Literal["gopher_quality"] = "gopher_quality"
    definition: Definition = Field("datatrove", description=DEFINITION)
    stop_words: tuple[str, ...] = Field(
        ("the", "be", "to", "of", "and", "that", "have", "with"),
        description="Stop words in the form they have in the text; DCLM ignores case. Gopher's list is English.",
    )
    stop_words_by_language: dict[str, tuple[str, ...] | Address] = Field(
        {},
        description="Stop words by language (column `language`): a list, or the address of a file with one "
        "word per line. Other languages use `stop_words`.",
    )

    signal_fields: ClassVar = ("definition", "stop_words", "stop_words_by_language")

    @field_validator("stop_words", "stop_words_by_language")
    @classmethod
    def _words(cls, values: Any) -> Any:
        if isinstance(values, dict):
            return {code: words if isinstance(words, str) else cls._words(words) for code, words in values.items()}
        for word in values:
            # the kernels take most of a second to load: they are asked about other scripts only
            if not is_surely_one_word(word) and not is_one_word(word):
                raise ValueError(f"stop word {word!r} never occurs: write single words, without white space or symbols")
        return tuple(dict.fromkeys(values))

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


def words(text: kernels.scan.Scan, settings: GopherQuality) -> Parts:
    if settings.definition == "dclm":
        tokens, bits = dclm.tokens(text)
        return Parts(tokens, (bits & kernels.separated.LEADING) != 0)
    return Parts("words", real(text), value=real_words(text))


def mean_word_length(text: kernels.scan.Scan, settings: GopherQuality) -> Parts:
    if settings.definition == "dclm":
        fields, _ = dclm.fields(text)
        return Parts(fields, np.ones(len(fields.start), bool), fields.chars, of=fields.count)
    return Parts("words", real(text), text.word_chars, of=real_words(text))


def hash_ratio(text: kernels.scan.Scan, settings: GopherQuality) -> Parts:
    signs = _hash_signs(text)
    return _per_word(text, settings, signs, signs)


def ellipsis_ratio(text: kernels.scan.Scan, settings: GopherQuality) -> Parts:
    return _per_word(text, settings, *_ellipses(text, settings))


def symbol_ratio(text: kernels.scan.Scan, settings: GopherQuality) -> Parts:
    signs, both = _hash_signs(text), _ellipses(text, settings)
    return _per_word(text, settings, *(np.concatenate([signs, places]) for places in both))


def bullet_lines(text: kernels.scan.Scan, settings: GopherQuality) -> Parts:
    if settings.definition == "dclm":
        lines, _ = dclm.lines(text)
        where = np.logical_or.reduce([begins(text, lines.start, bullet) for bullet in "\u25cf\u2022*-"])
        return Parts(lines, where, of=lines.count)
    where = filled(text).copy()
    first = text.word_start[text.line_words[:-1][where]]
    where[where] = begins(text, first, "-") | begins(text, first, "\u2022")
    return Parts("lines", where, of=np.diff(text.lines))


def ellipsis_lines(text: kernels.scan.Scan, settings: GopherQuality) -> Parts:
    if settings.definition == "dclm":
        lines, _ = dclm.lines(text)
        return Parts(lines, ends_with_one(text, lines.start, lines.stop, DCLM_ELLIPSES), of=lines.count)
    where = filled(text).copy()
    end = text.word_stop[text.line_words[1:][where] - 1]
    where[where] = ends_with_one(text, text.line_start[where], end, ELLIPSES)
    return Parts("lines", where, of=np.diff(text.lines))


def alpha_words(text: kernels.scan.Scan, settings: GopherQuality) -> Parts:
    if settings.definition == "dclm":
        fields, bits = dclm.fields(text)
        return Parts(fields, (bits & kernels.separated.LETTER) != 0, of=fields.count)
    size = text.word_stop - text.word_start
    tokens, lettered = kernels.tokens.lettered_tokens(
        text.data, text.documents, text.words, text.word_start, text.word_bits, size, apostrophes(text)
    )
    return Parts("words", lambda: (text.word_bits & kernels.scan.LETTER) != 0, value=ratio(lettered, tokens))


def stop_words(text: kernels.scan.Scan, settings: GopherQuality, language: pa.ChunkedArray | None) -> Parts:
    lists = [settings.stop_words, *map(_read_once, settings.stop_words_by_language.values())]
    which = np.zeros(len(text.chars), np.int64)
    if language is not None:
        codes = pa.array(list(settings.stop_words_by_language), pa.string())
        indices = pc.index_in(language.cast(pa.string()), codes)
        which = np.asarray(pc.fill_null(indices, -1), np.int64) + 1
    bounds = np.append(0, np.cumsum([len(words) for words in lists]))
    if settings.definition == "dclm":
        fields, _ = dclm.fields(text)
        list_hashes = np.concatenate([_lowered_hashes(words) for words in lists])
        hashes = kernels.folding.lowered(text.data, fields.start, fields.stop)
        return Parts(fields, kernels.tokens.different_members(fields.bounds, hashes, which, bounds, list_hashes)[1])
    list_hashes = np.concatenate([_hashes(words) for words in lists])
    count, where = kernels.tokens.different_members(text.words, text.word_hash, which, bounds, list_hashes)
    return Parts("words", where, value=count)


def pinned(step: GopherQuality) -> GopherQuality:
    """The step with the words of its files in place of their addresses. A step that is not pinned reads them once
    in a process. Raises ListError for a file that is not there."""
    words = {code: _read(words) for code, words in step.stop_words_by_language.items()}
    return step.model_copy(update={"stop_words_by_language": words})


def is_one_word(word: str) -> bool:
    """Whether what is given is one word with a letter, mark or number, by Unicode's word segmentation."""
    text = kernels.scan.scan(pa.array([word]))
    return (
        len(text.word_hash) == 1 and text.word_chars[0] == text.chars[0] and bool(text.word_bits[0] & kernels.scan.REAL)
    )


@lru_cache(256)
def _hashes(words: tuple[str, ...]) -> np.ndarray:
    return kernels.scan.scan(pa.array(words, pa.large_string())).word_hash


@lru_cache(256)
def _lowered_hashes(words: tuple[str, ...]) -> np.ndarray:
    data, offsets = kernels.buffers.utf8(pa.array(words, pa.large_string()))
    return kernels.folding.lowered(data, offsets[:-1], offsets[1:])


def _read(words: tuple[str, ...] | str) -> tuple[str, ...]:
    """The words, if need be of a file, in which comments (`#`) and what is not one word are passed over."""
    if not isinstance(words, str):
        return words
    whole = "\n".join(files.read_bytes(path).decode("utf-8-sig") for path in list_files(words))
    lines = [line.strip() for line in whole.split("\n")]
    entries = tuple(dict.fromkeys(line for line in lines if not line.startswith("#") and is_one_word(line)))
    if not entries:
        raise ListError(f"the list {words} has no stop words: write one per line, in UTF-8")
    return entries


_read_once = cache(_read)


@once
def _hash_signs(text: kernels.scan.Scan) -> np.ndarray:
    return places(text, ord("#"))


def _ellipses(text: kernels.scan.Scan, settings: GopherQuality) -> tuple[np.ndarray, np.ndarray]:
    """Where ellipses begin, and where all parts of them stand that white space parts."""
    begin = ellipses(text)
    if settings.definition == "datatrove":
        return begin, begin
    spaced = spaced_ellipses(text)
    return np.concatenate([begin, spaced]), np.concatenate([begin, spaced, spaced + 2, spaced + 4])


def _per_word(text: kernels.scan.Scan, settings: GopherQuality, symbols: np.ndarray, positions: np.ndarray) -> Parts:
    """How many symbols there are for a word, given the bytes where they begin; marked are the words at `positions`."""
    unit: Unit | Spans = "words"
    start, words = text.word_start, np.diff(text.words)
    if settings.definition == "dclm":
        unit = fields = dclm.fields(text)[0]
        start, words = fields.start, fields.count
    where = np.zeros(len(start), bool)
    where[np.searchsorted(start, positions, side="right") - 1] = True
    count = np.diff(np.searchsorted(np.sort(symbols), text.documents))
    return Parts(unit, where, value=ratio(count, words))
