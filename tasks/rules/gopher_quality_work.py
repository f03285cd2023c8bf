"""The rules of `gristmill.tasks.rules.gopher_quality`, which describes them, as functions."""

from functools import cache, lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import files
from gristmill.tasks.kernels import separated
from gristmill.tasks.kernels.buffers import utf8
from gristmill.tasks.kernels.folding import lowered
from gristmill.tasks.kernels.members import different_members
from gristmill.tasks.kernels.scan import LETTER, REAL, Scan, scan
from gristmill.tasks.kernels.tokens import lettered_tokens
from gristmill.tasks.rules import shared as dclm
from gristmill.tasks.rules.gopher_quality import GopherQuality
from gristmill.tasks.rules.rule_work import Parts, Spans, Unit, ratio
from gristmill.tasks.rules.rule_work import measure as measure
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
from gristmill.tasks.url.list_files import ListError, list_files


def words(text: Scan, settings: GopherQuality) -> Parts:
    if settings.definition == "dclm":
        tokens, bits = dclm.tokens(text)
        return Parts(tokens, (bits & separated.LEADING) != 0)
    return Parts("words", real(text), value=real_words(text))


def mean_word_length(text: Scan, settings: GopherQuality) -> Parts:
    if settings.definition == "dclm":
        fields, _ = dclm.fields(text)
        return Parts(fields, np.ones(len(fields.start), bool), fields.chars, of=fields.count)
    return Parts("words", real(text), text.word_chars, of=real_words(text))


def hash_ratio(text: Scan, settings: GopherQuality) -> Parts:
    signs = _hash_signs(text)
    return _per_word(text, settings, signs, signs)


def ellipsis_ratio(text: Scan, settings: GopherQuality) -> Parts:
    return _per_word(text, settings, *_ellipses(text, settings))


def symbol_ratio(text: Scan, settings: GopherQuality) -> Parts:
    signs, both = _hash_signs(text), _ellipses(text, settings)
    return _per_word(text, settings, *(np.concatenate([signs, places]) for places in both))


def bullet_lines(text: Scan, settings: GopherQuality) -> Parts:
    if settings.definition == "dclm":
        lines, _ = dclm.lines(text)
        where = np.logical_or.reduce([begins(text, lines.start, bullet) for bullet in "\u25cf\u2022*-"])
        return Parts(lines, where, of=lines.count)
    where = filled(text).copy()
    first = text.word_start[text.line_words[:-1][where]]
    where[where] = begins(text, first, "-") | begins(text, first, "\u2022")
    return Parts("lines", where, of=np.diff(text.lines))


def ellipsis_lines(text: Scan, settings: GopherQuality) -> Parts:
    if settings.definition == "dclm":
        lines, _ = dclm.lines(text)
        return Parts(lines, ends_with_one(text, lines.start, lines.stop, DCLM_ELLIPSES), of=lines.count)
    where = filled(text).copy()
    end = text.word_stop[text.line_words[1:][where] - 1]
    where[where] = ends_with_one(text, text.line_start[where], end, ELLIPSES)
    return Parts("lines", where, of=np.diff(text.lines))


def alpha_words(text: Scan, settings: GopherQuality) -> Parts:
    if settings.definition == "dclm":
        fields, bits = dclm.fields(text)
        return Parts(fields, (bits & separated.LETTER) != 0, of=fields.count)
    size = text.word_stop - text.word_start
    tokens, lettered = lettered_tokens(
        text.data, text.documents, text.words, text.word_start, text.word_bits, size, apostrophes(text)
    )
    return Parts("words", lambda: (text.word_bits & LETTER) != 0, value=ratio(lettered, tokens))


def stop_words(text: Scan, settings: GopherQuality, language: pa.ChunkedArray | None) -> Parts:
    lists = [settings.stop_words, *map(_read_once, settings.stop_words_by_language.values())]
    which = np.zeros(len(text.chars), np.int64)
    if language is not None:
        codes = pa.array(list(settings.stop_words_by_language), pa.string())
        at = pc.index_in(language.cast(pa.string()), codes)
        which = np.asarray(pc.fill_null(at, -1), np.int64) + 1
    bounds = np.append(0, np.cumsum([len(words) for words in lists]))
    if settings.definition == "dclm":
        fields, _ = dclm.fields(text)
        listed = np.concatenate([_lowered_hashes(words) for words in lists])
        hashes = lowered(text.data, fields.start, fields.stop)
        return Parts(fields, different_members(fields.bounds, hashes, which, bounds, listed)[1])
    listed = np.concatenate([_hashes(words) for words in lists])
    count, where = different_members(text.words, text.word_hash, which, bounds, listed)
    return Parts("words", where, value=count)


def pinned(step: GopherQuality) -> GopherQuality:
    """The step with the words of its files in place of their addresses. A step that is not pinned reads them once
    in a process. Raises ListError for a file that is not there."""
    words = {code: _read(words) for code, words in step.stop_words_by_language.items()}
    return step.model_copy(update={"stop_words_by_language": words})


def is_one_word(word: str) -> bool:
    """Whether what is given is one word with a letter, mark or number, by Unicode's word segmentation."""
    found = scan(pa.array([word]))
    return len(found.word_hash) == 1 and found.word_chars[0] == found.chars[0] and bool(found.word_bits[0] & REAL)


@lru_cache(256)
def _hashes(words: tuple[str, ...]) -> np.ndarray:
    return scan(pa.array(words, pa.large_string())).word_hash


@lru_cache(256)
def _lowered_hashes(words: tuple[str, ...]) -> np.ndarray:
    data, offsets = utf8(pa.array(words, pa.large_string()))
    return lowered(data, offsets[:-1], offsets[1:])


def _read(words: tuple[str, ...] | str) -> tuple[str, ...]:
    """The words, if need be of a file, in which comments (`#`) and what is not one word are passed over."""
    if not isinstance(words, str):
        return words
    whole = "\n".join(files.read_bytes(path).decode("utf-8-sig") for path in list_files(words))
    lines = [line.strip() for line in whole.split("\n")]
    found = tuple(dict.fromkeys(line for line in lines if not line.startswith("#") and is_one_word(line)))
    if not found:
        raise ListError(f"the list {words} has no stop words: write one a line, in UTF-8")
    return found


_read_once = cache(_read)


@once
def _hash_signs(text: Scan) -> np.ndarray:
    return places(text, ord("#"))


def _ellipses(text: Scan, settings: GopherQuality) -> tuple[np.ndarray, np.ndarray]:
    """Where ellipses begin, and where all parts of them stand that white space parts."""
    begin = ellipses(text)
    if settings.definition == "datatrove":
        return begin, begin
    spaced = spaced_ellipses(text)
    return np.concatenate([begin, spaced]), np.concatenate([begin, spaced, spaced + 2, spaced + 4])


def _per_word(text: Scan, settings: GopherQuality, symbols: np.ndarray, shown: np.ndarray) -> Parts:
    """How many symbols there are for a word, given the bytes where they begin; marked are the words at `shown`."""
    unit: Unit | Spans = "words"
    start, words = text.word_start, np.diff(text.words)
    if settings.definition == "dclm":
        unit = fields = dclm.fields(text)[0]
        start, words = fields.start, fields.count
    where = np.zeros(len(start), bool)
    where[np.searchsorted(start, shown, side="right") - 1] = True
    count = np.diff(np.searchsorted(np.sort(symbols), text.documents))
    return Parts(unit, where, value=ratio(count, words))
