"""RefinedWeb's line-wise corrections: shouting, numbers, counters, single words, and the words of shops and menus."""

import re
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from tasks.documents.edits import Edits, line_removals
from tasks.documents.step import Batch, Bound, EditStep, signal
from tasks.kernels import phrases
from tasks.kernels.scan import FIELD, LETTER, REAL, Scan
from tasks.rules.rule import ratio

_SOURCE = "Penedo et al. 2023 (arXiv 2306.01116), G.2; definition: DCLM modifiers.py, dclm_baseline_refinedweb.yaml"

# In DCLM's order.
_RULES = ("uppercase", "numeric", "counter", "few_words", "blank_line", "phrase")
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


class RefinedWebLines(EditStep):
    """Lines that RefinedWeb removes or shortens, as DCLM codes it; documents that lose too many words drop.

    Words of a line are what `str.split` gives; those whose loss counts are words with a letter, mark or number. What
    is left is tidied: of several blank lines between the lines that stay one stays, at the ends none (DCLM strips the
    ends, Dolma 3 does both).

    A counter is a line like "3 likes" or "1.2K followers". From lines of at most 10 words go "items in cart", "Read
    more..." at the end and "Sign-in" at the beginning, in either case, with a white space beside them; the paper's
    table G.2 has them. DCLM's code takes the three dots for any three characters, as is done here.

    Dolma 3's port (datamap-rs map_fxn.rs) differs from DCLM's code: it measures the uppercase and numeric shares by
    bytes, not characters; its phrases are cut in their own case only; and two settings of its configuration do not
    reach the code under their names (`max_length`, so that phrases are cut from lines of any length, and
    `regex_string`, so that a counter fills its line here as there, though the configuration's expression has no end).
    """

    step: Literal["refinedweb_lines"] = "refinedweb_lines"
    max_uppercase: float | None = Field(
        0.5, ge=0, description="most characters of a line that are uppercase letters, as a fraction; null: any"
    )
    max_numeric: float | None = Field(
        0.999999, ge=0, description="most characters of a line that are numbers, as a fraction; null: any"
    )
    counters: bool = Field(True, description='lines like "3 likes" go')
    min_words_per_line: int = Field(2, ge=0, description="fewest words of a line")
    phrases: bool = Field(True, description='"items in cart", "Read more..." and "Sign-in" go from short lines')
    max_removed_words: float | None = Field(
        0.05, ge=0, description="most words of a document that go, as a fraction; null: not bound"
    )

    signal_fields: ClassVar = ("max_uppercase", "max_numeric", "counters", "min_words_per_line", "phrases")
    signals: ClassVar = pa.schema(
        [
            signal("refinedweb_lines_removed_words", pa.float64(), "fraction of words", _SOURCE),
            signal("refinedweb_lines_characters", pa.int64(), "code points that are left", _SOURCE),
        ]
    )

    def decisions(self) -> list[Bound]:
        return [
            Bound("removed_words", "refinedweb_lines_removed_words", high=self.max_removed_words),
            self.not_empty(),
        ]

    def edit(self, documents: Batch) -> tuple[Edits, dict[str, pa.Array]]:
        text = documents.scan
        rule = np.full(len(text.line_start), -1, np.int32)
        blank = np.diff(text.line_words) == 0
        words = text.sum(text.line_words, (text.word_bits & FIELD) != 0)

        def removed(number: int, where: np.ndarray) -> None:
            rule[where & ~blank & (rule < 0)] = number

        if self.max_uppercase is not None:
            removed(_UPPERCASE, ratio(text.line_upper, text.line_chars) > self.max_uppercase)
        if self.max_numeric is not None:
            removed(_NUMERIC, ratio(text.line_numbers, text.line_chars) > self.max_numeric)
        if self.counters:
            removed(_COUNTER, _counters(text))
        removed(_FEW_WORDS, words < self.min_words_per_line)
        line, start, stop = np.empty((3, 0), np.int64)
        if self.phrases:
            emptied, (line, start, stop) = _cuts(text, np.flatnonzero((rule < 0) & (words <= SHORT_LINE)))
            rule[emptied] = _PHRASE
        rule[_spare(text, rule < 0, blank)] = _BLANK

        edits = line_removals(text, rule, line, start, stop, _PHRASE, _RULES)
        return edits, {"refinedweb_lines_removed_words": pa.array(_removed_words(text, edits))}


def _counters(text: Scan) -> np.ndarray:
    """Whether a line is a counter and nothing else."""
    found = phrases.found(text.data, text.line_start, text.line_stop, _COUNTED).any(axis=1)
    # such a line has two words with letters at most: "1.2K followers"
    found &= text.sum(text.line_words, (text.word_bits & LETTER) != 0) <= 2
    for line in np.flatnonzero(found):
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


def _removed_words(text: Scan, edits: Edits) -> np.ndarray:
    """The fraction of a document's words that the edits remove, float64; one that is cut in two counts as staying."""
    real = (text.word_bits & REAL) != 0
    start = np.append(-1, text.documents[edits.document] + edits.start)
    stop = np.append(-1, text.documents[edits.document] + edits.stop)
    cut = np.searchsorted(start, text.word_start, side="right") - 1
    return ratio(text.sum(text.words, real & (text.word_stop <= stop[cut])), text.sum(text.words, real))
