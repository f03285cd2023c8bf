"""The words, lines and paragraphs that DCLM's code counts (baselines/mappers/core_utils.py), found once for a batch."""

import numpy as np

from gristmill.tasks.kernels.scan import Scan
from gristmill.tasks.kernels.separated import between_line_feeds, by_fasttext, by_white_space, leading, words_between
from gristmill.tasks.rules.rule_work import Spans
from gristmill.tasks.rules.shared import once


@once
def fields(text: Scan) -> tuple[Spans, np.ndarray]:
    """The words of `str.split`, and their bits (see `gristmill.tasks.kernels.separated`)."""
    return _words(text, by_white_space())


@once
def tokens(text: Scan) -> tuple[Spans, np.ndarray]:
    """The words of `split_words` with its default, fastText's tokenizer, and their bits.

    Its words for line ends are left out: they are punctuation, which is not counted.
    """
    return _words(text, by_fasttext())


@once
def words(text: Scan) -> tuple[Spans, np.ndarray]:
    """The words of which n-grams are, and their hashes: of Unicode word segmentation those that begin with a letter or
    number (`model="uniseg", ignore_punctuation=True`)."""
    which = leading(text.data, text.word_start, by_white_space())
    bounds = np.append(0, np.cumsum(which))[text.words]
    found = (column[which] for column in (text.word_start, text.word_stop, text.word_chars))
    return Spans(bounds, *found), text.word_hash[which]


@once
def lines(text: Scan) -> tuple[Spans, np.ndarray]:
    """What stands between line feeds, without white space at its ends, and the hashes; blank lines are none."""
    return _between(text, 1)


@once
def paragraphs(text: Scan) -> tuple[Spans, np.ndarray]:
    """What stands between two line feeds in a row, likewise."""
    return _between(text, 2)


def _words(text: Scan, table: np.ndarray) -> tuple[Spans, np.ndarray]:
    *spans, bits = words_between(text.data, text.documents, table)
    return Spans(*spans), bits


def _between(text: Scan, feeds: int) -> tuple[Spans, np.ndarray]:
    *spans, hashes = between_line_feeds(text.data, text.documents, feeds, by_white_space())
    return Spans(*spans), hashes
