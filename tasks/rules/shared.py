"""What several rules of a pass need, found once for a batch: words, and where hash signs, ellipses and the like stand.

It is kept with the batch's scan and goes with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import TypeVar

import numpy as np

from gristmill.tasks import kernels
from gristmill.tasks.rules.rule import Spans

T = TypeVar("T")


def once(function: Callable[[kernels.scan.Scan], T]) -> Callable[[kernels.scan.Scan], T]:
    """The function of a scan, called once for each scan."""
    name = f"{function.__module__}.{function.__qualname__}"

    @wraps(function)
    def kept(text: kernels.scan.Scan) -> T:
        results = vars(text)
        if name not in results:
            results[name] = function(text)
        return results[name]

    return kept


@once
def real(text: kernels.scan.Scan) -> np.ndarray:
    """Which words have a letter, mark or number: bool, one entry a word."""
    return (text.word_bits & kernels.scan.REAL) != 0


@once
def real_words(text: kernels.scan.Scan) -> np.ndarray:
    """How many words of each document have a letter, mark or number: int64."""
    return text.sum(text.words, real(text))


@once
def filled(text: kernels.scan.Scan) -> np.ndarray:
    """Which lines are not blank: bool, one entry a line."""
    return text.line_words[1:] > text.line_words[:-1]


@once
def filled_lines(text: kernels.scan.Scan) -> np.ndarray:
    """How many lines of each document are not blank: int64."""
    return text.sum(text.lines, filled(text))


@once
def repeated_lines(text: kernels.scan.Scan) -> np.ndarray:
    """Which lines are not blank and equal to an earlier one of their document, so not its first copy: bool."""
    return kernels.repetition.equal_to_earlier(text.lines, text.line_hash) & filled(text)


@once
def fields(text: kernels.scan.Scan) -> tuple[Spans, np.ndarray]:
    """The words of `str.split`, and their bits (see `gristmill.tasks.kernels.separated`)."""
    return _words(text, kernels.separated.by_white_space())


@once
def tokens(text: kernels.scan.Scan) -> tuple[Spans, np.ndarray]:
    """The words of `split_words` with its default, fastText's tokenizer, and their bits.

    Its words for line ends are left out: they are punctuation, which is not counted.
    """
    return _words(text, kernels.separated.by_fasttext())


@once
def words(text: kernels.scan.Scan) -> tuple[Spans, np.ndarray]:
    """The words of which n-grams are, and their hashes: of Unicode word segmentation those that begin with a letter or
    number (`model="uniseg", ignore_punctuation=True`)."""
    which = kernels.separated.leading(text.data, text.word_start, kernels.separated.by_white_space())
    bounds = np.append(0, np.cumsum(which))[text.words]
    columns = (column[which] for column in (text.word_start, text.word_stop, text.word_chars))
    return Spans(bounds, *columns), text.word_hash[which]


@once
def lines(text: kernels.scan.Scan) -> tuple[Spans, np.ndarray]:
    """What stands between line feeds, without white space at its ends, and the hashes; blank lines are none."""
    return _units_between(text, 1)


@once
def paragraphs(text: kernels.scan.Scan) -> tuple[Spans, np.ndarray]:
    """What stands between two line feeds in a row, likewise."""
    return _units_between(text, 2)


def _words(text: kernels.scan.Scan, table: np.ndarray) -> tuple[Spans, np.ndarray]:
    *spans, bits = kernels.separated.words_between(text.data, text.documents, table)
    return Spans(*spans), bits


def _units_between(text: kernels.scan.Scan, feeds: int) -> tuple[Spans, np.ndarray]:
    *spans, hashes = kernels.separated.between_line_feeds(
        text.data, text.documents, feeds, kernels.separated.by_white_space()
    )
    return Spans(*spans), hashes


ELLIPSES = ("...", "\u2026")
DCLM_ELLIPSES = (*ELLIPSES, ". . .")


def places(text: kernels.scan.Scan, byte: int) -> np.ndarray:
    """Where the byte stands in the texts of the batch, which may be a part of `data`."""
    begin, end = text.documents[0], text.documents[-1]
    return np.flatnonzero(text.data[begin:end] == byte) + begin


def begins(text: kernels.scan.Scan, positions: np.ndarray, sign: str) -> np.ndarray:
    """Whether the sign stands at each place: bool."""
    matches = np.ones(len(positions), bool)
    for k, byte in enumerate(sign.encode()):
        matches &= text.data.take(positions + k, mode="clip") == byte
    return matches


def ends_with_one(text: kernels.scan.Scan, start: np.ndarray, stop: np.ndarray, signs: Iterable[str]) -> np.ndarray:
    """Which of the spans end with one of the signs: bool."""
    matches = np.zeros(len(start), bool)
    for sign in signs:
        positions = stop - len(sign.encode())
        matches |= (positions >= start) & begins(text, positions, sign)
    return matches


def apostrophes(text: kernels.scan.Scan) -> np.ndarray:
    """Where a straight or curly apostrophe stands, ascending."""
    curly = _general_punctuation(text)
    return np.sort(np.concatenate([places(text, ord("'")), curly[begins(text, curly, "\u2019")]]))


@once
def ellipses(text: kernels.scan.Scan) -> np.ndarray:
    """Where U+2026 and `...` begin, which do not overlap, in no order."""
    one = _general_punctuation(text)
    dots = _dots(text)
    return np.concatenate([one[begins(text, one, "\u2026")], _threes(text, dots[:-2][dots[2:] - dots[:-2] == 2], 1)])


@once
def spaced_ellipses(text: kernels.scan.Scan) -> np.ndarray:
    """Where `. . .` begin, which do not overlap, ascending."""
    dots = _dots(text)
    three = dots[:-2][dots[2:] - dots[:-2] == 4]
    return _threes(text, three[begins(text, three, ". . .")], 2)


@once
def _dots(text: kernels.scan.Scan) -> np.ndarray:
    return places(text, ord("."))


@once
def _general_punctuation(text: kernels.scan.Scan) -> np.ndarray:
    """Where a character of U+2000 to U+2FFF begins: among them are the curly apostrophe and the ellipsis."""
    return places(text, 0xE2)


def _threes(text: kernels.scan.Scan, three: np.ndarray, step: int) -> np.ndarray:
    """Of the places where three dots begin, `step` bytes apart, those that are left if none overlap."""
    # not from one document into the next
    last = three + 2 * step
    three = three[np.searchsorted(text.documents, three, "right") == np.searchsorted(text.documents, last, "right")]
    first = np.append(True, np.diff(three) > step)[: len(three)]
    begin = np.maximum.accumulate(np.where(first, three, 0))
    return three[(three - begin) % (3 * step) == 0]
