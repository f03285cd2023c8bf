"""Where signs that rules count stand in the bytes of a batch: hash signs, ellipses, apostrophes."""

from collections.abc import Iterable

import numpy as np

from gristmill.tasks.kernels.scan import Scan
from gristmill.tasks.rules.shared import once

ELLIPSES = ("...", "\u2026")
DCLM_ELLIPSES = (*ELLIPSES, ". . .")


def places(text: Scan, byte: int) -> np.ndarray:
    """Where the byte stands in the texts of the batch, which may be a part of `data`."""
    begin, end = text.documents[0], text.documents[-1]
    return np.flatnonzero(text.data[begin:end] == byte) + begin


def begins(text: Scan, at: np.ndarray, sign: str) -> np.ndarray:
    """Whether the sign stands at each place: bool."""
    found = np.ones(len(at), bool)
    for k, byte in enumerate(sign.encode()):
        found &= text.data.take(at + k, mode="clip") == byte
    return found


def ends_with_one(text: Scan, start: np.ndarray, stop: np.ndarray, signs: Iterable[str]) -> np.ndarray:
    """Which of the spans end with one of the signs: bool."""
    found = np.zeros(len(start), bool)
    for sign in signs:
        at = stop - len(sign.encode())
        found |= (at >= start) & begins(text, at, sign)
    return found


def apostrophes(text: Scan) -> np.ndarray:
    """Where a straight or curly apostrophe stands, ascending."""
    curly = _general_punctuation(text)
    return np.sort(np.concatenate([places(text, ord("'")), curly[begins(text, curly, "\u2019")]]))


@once
def ellipses(text: Scan) -> np.ndarray:
    """Where U+2026 and `...` begin, which do not overlap, in no order."""
    one = _general_punctuation(text)
    dots = _dots(text)
    return np.concatenate([one[begins(text, one, "\u2026")], _threes(text, dots[:-2][dots[2:] - dots[:-2] == 2], 1)])


@once
def spaced_ellipses(text: Scan) -> np.ndarray:
    """Where `. . .` begin, which do not overlap, ascending."""
    dots = _dots(text)
    three = dots[:-2][dots[2:] - dots[:-2] == 4]
    return _threes(text, three[begins(text, three, ". . .")], 2)


@once
def _dots(text: Scan) -> np.ndarray:
    return places(text, ord("."))


@once
def _general_punctuation(text: Scan) -> np.ndarray:
    """Where a character of U+2000 to U+2FFF begins: among them are the curly apostrophe and the ellipsis."""
    return places(text, 0xE2)


def _threes(text: Scan, three: np.ndarray, step: int) -> np.ndarray:
    """Of the places where three dots begin, `step` bytes apart, those that are left if none overlap."""
    # not from one document into the next
    last = three + 2 * step
    three = three[np.searchsorted(text.documents, three, "right") == np.searchsorted(text.documents, last, "right")]
    first = np.append(True, np.diff(three) > step)[: len(three)]
    begin = np.maximum.accumulate(np.where(first, three, 0))
    return three[(three - begin) % (3 * step) == 0]
