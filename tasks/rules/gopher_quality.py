"""Gopher's quality rules (Rae et al. 2021, arXiv 2112.11446, section A1.1), as datatrove computes them.

Source of the definitions: `GopherQualityFilter`, datatrove src/datatrove/pipeline/filters/gopher_quality_filter.py.
Where the paper is silent or differs, the code is followed. Differences from it:

- words are those of Unicode word segmentation (`tasks.kernels.scan`) in every language; datatrove asks a tokenizer of
  the language; `alpha_words` alone counts tokens like those of its English one;
- a word is one of symbols if it has no letter, mark or number (general categories L, M, N); datatrove has a list of
  punctuation characters instead, and symbols outside it count as words;
- a text without words or lines has 0 where datatrove divides by zero.
"""

from functools import cache, lru_cache
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, field_validator

from storage import files
from tasks.kernels.members import different_members
from tasks.kernels.scan import LETTER, REAL, Scan, scan
from tasks.kernels.tokens import lettered_tokens
from tasks.rules.rule import Parts, Rules, RuleStep, ratio
from tasks.rules.shared import filled, once, real, real_words
from tasks.url.lists import ListError, list_files

rules = Rules("gopher_quality", "Rae et al. 2021, A1.1; definition: datatrove gopher_quality_filter.py")


@rules.rule(low=50, high=100_000, unit="words")
def words(text: Scan) -> Parts:
    """Words that have a letter, mark or number."""
    return Parts("words", real(text), value=real_words(text))


@rules.rule(low=3.0, high=10.0, unit="characters per word")
def mean_word_length(text: Scan) -> Parts:
    """Mean length of the words that have a letter, mark or number, in characters."""
    return Parts("words", real(text), text.word_chars, of=real_words(text))


@rules.rule(high=0.1, unit="hash signs per word")
def hash_ratio(text: Scan) -> Parts:
    """Characters `#` per word, symbols being words."""
    return _symbols(text, _places(text, ord("#")))


@rules.rule(high=0.1, unit="ellipses per word")
def ellipsis_ratio(text: Scan) -> Parts:
    """Ellipses, `...` (not overlapping) or U+2026, per word, symbols being words."""
    return _symbols(text, _ellipses(text))


@rules.rule(high=0.9, unit="fraction of lines")
def bullet_lines(text: Scan) -> Parts:
    """Lines that begin with a bullet, U+2022 or `-`, after white space; of all lines, blank ones too."""
    where = filled(text).copy()
    first = text.word_start[text.line_words[:-1][where]]
    where[where] = _begins(text, first, "-") | _begins(text, first, "\u2022")
    return Parts("lines", where, of=np.diff(text.lines))


@rules.rule(high=0.3, unit="fraction of lines")
def ellipsis_lines(text: Scan) -> Parts:
    """Lines that end with an ellipsis, `...` or U+2026, before white space; of all lines, blank ones too."""
    where = filled(text).copy()
    # both ellipses have three bytes, and a line may begin within three bytes of the end of its last word
    end = text.word_stop[text.line_words[1:][where] - 1] - 3
    room = end >= text.line_start[where]
    where[where] = room & (_begins(text, end, "...") | _begins(text, end, "\u2026"))
    return Parts("lines", where, of=np.diff(text.lines))


@rules.rule(low=0.8, unit="fraction of tokens")
def alpha_words(text: Scan) -> Parts:
    """Tokens that have a letter (`str.isalpha`), of all tokens, symbols too.

    The rule turns on how many symbols there are for a word, so on how a tokenizer cuts at them: tokens are nearly those
    of datatrove's for English (`tasks.kernels.tokens`).
    """
    one = _places(text, ord("'"))
    curly = _general_punctuation(text)
    apostrophes = np.sort(np.concatenate([one, curly[_begins(text, curly, "\u2019")]]))
    size = text.word_stop - text.word_start
    tokens, lettered = lettered_tokens(
        text.data, text.documents, text.words, text.word_start, text.word_bits, size, apostrophes
    )
    return Parts("words", lambda: (text.word_bits & LETTER) != 0, value=ratio(lettered, tokens))


class _StopWords(RuleStep):
    """The rule set's further settings: lists of words, which may be those of each document's language."""

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
    def _words(cls, given):
        if isinstance(given, dict):
            return {code: words if isinstance(words, str) else cls._words(words) for code, words in given.items()}
        for word in given:
            if not _is_one(word):
                raise ValueError(f"stop word {word!r} never occurs: write single words, without white space or symbols")
        return tuple(dict.fromkeys(given))

    @property
    def reads(self) -> tuple[str, ...]:
        return ("language",) if self.stop_words_by_language else ()

    def pinned(self) -> Self:
        """The step with the words of its files in place of their addresses. A step that is not pinned reads them once
        in a process. Raises ListError for a file that is not there."""
        words = {code: _read(words) for code, words in self.stop_words_by_language.items()}
        return self.model_copy(update={"stop_words_by_language": words})

    def found(self, text: Scan, language: pa.ChunkedArray | None) -> Parts:
        """The stop words of each document, by its language."""
        lists = [self.stop_words, *map(_read_once, self.stop_words_by_language.values())]
        which = np.zeros(len(text.chars), np.int64)
        if language is not None:
            codes = pa.array(list(self.stop_words_by_language), pa.string())
            at = pc.index_in(language.cast(pa.string()), codes)
            which = np.asarray(pc.fill_null(at, -1), np.int64) + 1
        bounds = np.append(0, np.cumsum([len(words) for words in lists]))
        hashes = np.concatenate([_hashes(words) for words in lists])
        count, where = different_members(text.words, text.word_hash, which, bounds, hashes)
        return Parts("words", where, value=count)


@rules.rule(low=2, unit="different stop words")
def stop_words(text: Scan, settings: _StopWords, language: pa.ChunkedArray | None) -> Parts:
    """Different words of the setting `stop_words`, as they are written there: usually in lower case.

    RefinedWeb as coded by DCLM counts every occurrence instead.
    """
    return settings.found(text, language)


GopherQuality = rules.step("GopherQuality", _StopWords)


def _is_one(word: str) -> bool:
    if word.isascii() and word.isalpha():
        return True  # without the kernels, which take most of a second to load
    found = scan(pa.array([word]))
    return len(found.word_hash) == 1 and found.word_chars[0] == found.chars[0] and bool(found.word_bits[0] & REAL)


@lru_cache(256)
def _hashes(words: tuple[str, ...]) -> np.ndarray:
    return scan(pa.array(words, pa.large_string())).word_hash


def _read(words: tuple[str, ...] | str) -> tuple[str, ...]:
    """The words, if need be of a file, in which comments (`#`) and what is not one word are passed over."""
    if not isinstance(words, str):
        return words
    whole = "\n".join(files.read_bytes(path).decode("utf-8-sig") for path in list_files(words))
    lines = [line.strip() for line in whole.split("\n")]
    found = tuple(dict.fromkeys(line for line in lines if not line.startswith("#") and _is_one(line)))
    if not found:
        raise ListError(f"the list {words} has no stop words: write one a line, in UTF-8")
    return found


_read_once = cache(_read)


def _places(text: Scan, byte: int) -> np.ndarray:
    """Where the byte stands in the texts of the batch, which may be a part of `data`."""
    begin, end = text.documents[0], text.documents[-1]
    return np.flatnonzero(text.data[begin:end] == byte) + begin


@once
def _general_punctuation(text: Scan) -> np.ndarray:
    """Where a character of U+2000 to U+2FFF begins: among them are the curly apostrophe and the ellipsis."""
    return _places(text, 0xE2)


def _begins(text: Scan, places: np.ndarray, sign: str) -> np.ndarray:
    """Whether the sign stands at each place: bool."""
    found = np.ones(len(places), bool)
    for k, byte in enumerate(sign.encode()):
        found &= text.data.take(places + k, mode="clip") == byte
    return found


def _ellipses(text: Scan) -> np.ndarray:
    """Where ellipses begin, in no order."""
    one = _general_punctuation(text)
    one = one[_begins(text, one, "\u2026")]
    dots = _places(text, ord("."))
    three = dots[:-2][dots[2:] - dots[:-2] == 2]
    # not from one document into the next
    three = three[
        np.searchsorted(text.documents, three, "right") == np.searchsorted(text.documents, three + 2, "right")
    ]
    first = np.append(True, np.diff(three) > 1)[: len(three)]
    begin = np.maximum.accumulate(np.where(first, three, 0))
    return np.concatenate([one, three[(three - begin) % 3 == 0]])


def _symbols(text: Scan, places: np.ndarray) -> Parts:
    """How many symbols there are for a word, given the bytes where they stand; marked are the words with one."""
    where = np.zeros(len(text.word_start), bool)
    where[np.searchsorted(text.word_start, places, side="right") - 1] = True
    count = np.diff(np.searchsorted(np.sort(places), text.documents))
    return Parts("words", where, value=ratio(count, np.diff(text.words)))
