"""What several rules of a pass need, found once for a batch: it is kept with the batch's scan and goes with it."""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

import numpy as np

from gristmill.tasks.kernels.repetition import equal_to_earlier
from gristmill.tasks.kernels.scan import REAL, Scan

T = TypeVar("T")


def once(function: Callable[[Scan], T]) -> Callable[[Scan], T]:
    """The function of a scan, called once for each scan."""
    name = f"{function.__module__}.{function.__qualname__}"

    @wraps(function)
    def kept(text: Scan) -> T:
        results = vars(text)
        if name not in results:
            results[name] = function(text)
        return results[name]

    return kept


@once
def real(text: Scan) -> np.ndarray:
    """Which words have a letter, mark or number: bool, one entry a word."""
    return (text.word_bits & REAL) != 0


@once
def real_words(text: Scan) -> np.ndarray:
    """How many words of each document have a letter, mark or number: int64."""
    return text.sum(text.words, real(text))


@once
def filled(text: Scan) -> np.ndarray:
    """Which lines are not blank: bool, one entry a line."""
    return text.line_words[1:] > text.line_words[:-1]


@once
def filled_lines(text: Scan) -> np.ndarray:
    """How many lines of each document are not blank: int64."""
    return text.sum(text.lines, filled(text))


@once
def repeated_lines(text: Scan) -> np.ndarray:
    """Which lines are not blank and equal to an earlier one of their document, so not its first copy: bool."""
    return equal_to_earlier(text.lines, text.line_hash) & filled(text)
