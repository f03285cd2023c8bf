"""The step `refinedweb_lines`: which lines go, and which phrases."""

import re

import numpy as np
import pyarrow as pa

from gristmill.tasks.documents.batch import Batch
from gristmill.tasks.documents.edits import Edits, applied, line_removals
from gristmill.tasks.kernels import phrases
from gristmill.tasks.kernels.buffers import utf8
from gristmill.tasks.kernels.scan import FIELD, LETTER, Scan
from gristmill.tasks.kernels.separated import by_fasttext, leading_words
from gristmill.tasks.rules.refinedweb import RefinedWebLines
from gristmill.tasks.rules.rule_work import ratio

# In DCLM's order.
_RULES = tuple(cut.rule for cut in RefinedWebLines.cuts)
_UPPERCASE, _NUMERIC, _COUNTER, _FEW_WORDS, _BLANK, _PHRASE = range(len(_RULES))

_COUNTED = (
    *("likes", "shares", "comments", "retweets", "reposts", "quotes", "bookmarks", "upvotes", "downvotes"),
    *("downloads", "views", "followers"),
)
_COUNTER_LINE = re.compile(rf"\W*\d[,.\d]*[kmb]?\s+(?:{'|'.join(_COUNTED)})\W*")
# DCLM's code takes the dots of "Read more..." for any characters.
_PHRASES = (r"\s?items in cart", r"\s?Read more...$", r"^Sign-in\s?")
_CUT = tuple(re.compile(phrase, re.IGNORECASE) for phrase in _PHRASES)
_CUT_FROM = ("items in cart", "read more", "sign-in")
SHORT_LINE = 10


def edit(step: RefinedWebLines, documents: Batch) -> tuple[Edits, dict[str, pa.Array]]:
    """The lines and phrases that go, and the fraction of words that go with them."""
    text = documents.scan
    rule = np.full(len(text.line_start), -1, np.int32)
    blank = np.diff(text.line_words) == 0
    words = text.sum(text.line_words, (text.word_bits & FIELD) != 0)

    def removed(number: int, where: np.ndarray) -> None:
        rule[where & ~blank & (rule < 0)] = number

    if step.max_uppercase is not None:
        removed(_UPPERCASE, ratio(text.line_upper, text.line_chars) > step.max_uppercase)
    if step.max_numeric is not None:
        removed(_NUMERIC, ratio(text.line_numbers, text.line_chars) > step.max_numeric)
    if step.counters:
        removed(_COUNTER, _counters(text))
    removed(_FEW_WORDS, words < step.min_words_per_line)
    line, start, stop = np.empty((3, 0), np.int64)
    if step.phrases:
        emptied, (line, start, stop) = _cuts(text, np.flatnonzero((rule < 0) & (words <= SHORT_LINE)))
        rule[emptied] = _PHRASE
    rule[_spare(text, rule < 0, blank)] = _BLANK

    edits = line_removals(text, rule, line, start, stop, _PHRASE, _RULES)
    return edits, {"refinedweb_lines_removed_words": pa.array(_removed_words(documents, edits))}


def _counters(text: Scan) -> np.ndarray:
    """Whether a line is a counter and nothing else."""
    found = phrases.found(text.data, text.line_start, text.line_stop, _COUNTED).any(axis=1)
    # such a line has two words with letters at most: "1.2K followers"
    found &= text.sum(text.line_words, (text.word_bits & LETTER) != 0) <= 2
    for line in np.flatnonzero(found).tolist():
        found[line] = _COUNTER_LINE.fullmatch(_line(text, line).lower()) is not None
    return found


def _cuts(text: Scan, lines: np.ndarray) -> tuple[list[int], np.ndarray]:
    """The lines of which the phrases leave nothing, and (line, start, stop) of the cuts in others, shape (3, cuts)."""
    found = phrases.found(text.data, text.line_start[lines], text.line_stop[lines], _CUT_FROM).any(axis=1)
    emptied, cuts = [], []
    for line in lines[found].tolist():
        shown = _line(text, line)
        left = list(range(len(shown)))
        for phrase in _CUT:
            now = "".join(shown[i] for i in left)
            for match in reversed(list(phrase.finditer(now))):
                del left[slice(*match.span())]
        if not "".join(shown[i] for i in left).strip():
            emptied.append(line)
            continue
        begin, at = int(text.line_start[line]), 0
        for i in [*left, len(shown)]:
            if i > at:
                cuts.append((line, begin + len(shown[:at].encode()), begin + len(shown[:i].encode())))
            at = i + 1
    return emptied, np.array(cuts, np.int64).reshape(-1, 3).T


def _line(text: Scan, line: int) -> str:
    return text.data[text.line_start[line] : text.line_stop[line]].tobytes().decode()


def _spare(text: Scan, stays: np.ndarray, blank: np.ndarray) -> np.ndarray:
    """The blank lines, of those that stay, at the ends of a document and behind a blank line."""
    line = np.flatnonzero(stays)
    document = np.searchsorted(text.lines, line, side="right") - 1
    first = np.diff(document, prepend=-1) > 0
    behind_blank = np.diff(blank[line], prepend=False) == 0
    full = line[~blank[line]]
    last_full = np.append(-1, full)[np.searchsorted(full, text.lines[1:])]
    return line[blank[line] & (first | behind_blank | (line > last_full[document]))]


def _removed_words(documents: Batch, edits: Edits) -> np.ndarray:
    """The fraction of a document's words that the edits remove, float64."""
    left = applied(documents["text"], edits)
    before, after = (leading_words(*utf8(texts), by_fasttext()) for texts in (documents["text"], left))
    return ratio(before - after, before)
