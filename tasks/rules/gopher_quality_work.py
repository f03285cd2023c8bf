"""The rules of `tasks.rules.gopher_quality`, which describes them, as functions."""

from functools import cache, lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage import files
from tasks.kernels.members import different_members
from tasks.kernels.scan import LETTER, REAL, Scan, scan
from tasks.kernels.tokens import lettered_tokens
from tasks.rules.gopher_quality import GopherQuality
from tasks.rules.rule_work import Parts, ratio
from tasks.rules.rule_work import measure as measure
from tasks.rules.shared import filled, once, real, real_words
from tasks.url.list_files import ListError, list_files


def words(text: Scan) -> Parts:
    return Parts("words", real(text), value=real_words(text))


def mean_word_length(text: Scan) -> Parts:
    return Parts("words", real(text), text.word_chars, of=real_words(text))


def hash_ratio(text: Scan) -> Parts:
    return _symbols(text, _places(text, ord("#")))


def ellipsis_ratio(text: Scan) -> Parts:
    return _symbols(text, _ellipses(text))


def bullet_lines(text: Scan) -> Parts:
    where = filled(text).copy()
    first = text.word_start[text.line_words[:-1][where]]
    where[where] = _begins(text, first, "-") | _begins(text, first, "\u2022")
    return Parts("lines", where, of=np.diff(text.lines))


def ellipsis_lines(text: Scan) -> Parts:
    where = filled(text).copy()
    # both ellipses have three bytes, and a line may begin within three bytes of the end of its last word
    end = text.word_stop[text.line_words[1:][where] - 1] - 3
    room = end >= text.line_start[where]
    where[where] = room & (_begins(text, end, "...") | _begins(text, end, "\u2026"))
    return Parts("lines", where, of=np.diff(text.lines))


def alpha_words(text: Scan) -> Parts:
    one = _places(text, ord("'"))
    curly = _general_punctuation(text)
    apostrophes = np.sort(np.concatenate([one, curly[_begins(text, curly, "\u2019")]]))
    size = text.word_stop - text.word_start
    tokens, lettered = lettered_tokens(
        text.data, text.documents, text.words, text.word_start, text.word_bits, size, apostrophes
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
    hashes = np.concatenate([_hashes(words) for words in lists])
    count, where = different_members(text.words, text.word_hash, which, bounds, hashes)
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
