"""RefinedWeb's line-wise corrections: shouting, numbers, counters, single words, and the words of shops and menus."""

from __future__ import annotations

import re
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from gristmill.tasks import kernels
from gristmill.tasks.documents.edits import Edits, applied, line_removals
from gristmill.tasks.documents.measure import Batch
from gristmill.tasks.documents.step import Bound, Cut, EditStep, Signal
from gristmill.tasks.rules.rule import ratio

_SOURCE = "Penedo et al. 2023 (arXiv 2306.01116), G.2; definition: DCLM modifiers.py, dclm_baseline_refinedweb.yaml"


class RefinedWebLines(EditStep):
    """RefinedWeb's line filters, as DCLM implements them. They remove or shorten lines, and documents that lose too
    many words are dropped.

    Words of a line are what `str.split` gives; those whose loss counts are fastText's that begin with a letter or
    number, as in `word_counter_enricher`. Differences from DCLM's code:

    - what is left is tidied: of several blank lines between the lines that stay one stays, at the ends none (DCLM
      strips all white space at the ends of the text, Dolma 3 does both);
    - a line ends at any line break, and one of white space alone is blank (DCLM: at line feeds; such a line goes);
    - uppercase letters are the categories Lu and Lt, numbers N (DCLM: `str.isupper`, `str.isdigit`).

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
        0.5, ge=0, description="Maximum fraction of a line's characters that are uppercase letters; null: no limit."
    )
    max_numeric: float | None = Field(
        0.999999, ge=0, description="Maximum fraction of a line's characters that are numbers; null: no limit."
    )
    counters: bool = Field(True, description='Remove lines such as "3 likes".')
    min_words_per_line: int = Field(2, ge=0, description="Minimum number of words in a line.")
    phrases: bool = Field(True, description='Remove "items in cart", "Read more..." and "Sign-in" from short lines.')
    max_removed_words: float | None = Field(
        0.05, ge=0, description="Maximum fraction of a document's words that may be removed; null: no limit."
    )

    cuts: ClassVar = (
        Cut("uppercase", ("max_uppercase",), description="Lines with a larger fraction of uppercase letters."),
        Cut("numeric", ("max_numeric",), description="Lines with a larger fraction of numbers."),
        Cut("counter", ("counters",), description="Lines such as `3 likes`."),
        Cut("few_words", ("min_words_per_line",), description="Lines with fewer words."),
        Cut(
            "blank_line",
            (),
            description="Blank lines at the ends of the remaining text, and all but one of several blank lines "
            "in a row.",
        ),
        Cut("phrase", ("phrases",), description="`items in cart`, `Read more...` and `Sign-in`, in short lines."),
    )
    signal_fields: ClassVar = ("max_uppercase", "max_numeric", "counters", "min_words_per_line", "phrases")
    signals: ClassVar = (
        Signal(
            "refinedweb_lines_removed_words",
            "float64",
            "fraction of words",
            _SOURCE,
            description="Words in the lines and phrases that go, of all words of the document.",
        ),
        Signal(
            "refinedweb_lines_characters",
            "int64",
            "characters",
            _SOURCE,
            description="Characters that the step leaves.",
        ),
    )

    def decisions(self) -> list[Bound]:
        return [
            Bound("removed_words", "refinedweb_lines_removed_words", high=self.max_removed_words),
            self.not_empty(),
        ]


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
    words = text.sum(text.line_words, (text.word_bits & kernels.scan.FIELD) != 0)

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


def _counters(text: kernels.scan.Scan) -> np.ndarray:
    """Whether a line is a counter and nothing else."""
    is_counter = kernels.phrases.found(text.data, text.line_start, text.line_stop, _COUNTED).any(axis=1)
    # such a line has two words with letters at most: "1.2K followers"
    is_counter &= text.sum(text.line_words, (text.word_bits & kernels.scan.LETTER) != 0) <= 2
    for line in np.flatnonzero(is_counter).tolist():
        is_counter[line] = _COUNTER_LINE.fullmatch(_line(text, line).lower()) is not None
    return is_counter


def _cuts(text: kernels.scan.Scan, lines: np.ndarray) -> tuple[list[int], np.ndarray]:
    """The lines of which the phrases leave nothing, and (line, start, stop) of the cuts in others, shape (3, cuts)."""
    has_phrase = kernels.phrases.found(text.data, text.line_start[lines], text.line_stop[lines], _CUT_FROM).any(axis=1)
    emptied, cuts = [], []
    for line in lines[has_phrase].tolist():
        line_text = _line(text, line)
        remaining = list(range(len(line_text)))
        for phrase in _CUT:
            now = "".join(line_text[i] for i in remaining)
            for match in reversed(list(phrase.finditer(now))):
                del remaining[slice(*match.span())]
        if not "".join(line_text[i] for i in remaining).strip():
            emptied.append(line)
            continue
        begin, start = int(text.line_start[line]), 0
        for i in [*remaining, len(line_text)]:
            if i > start:
                cuts.append((line, begin + len(line_text[:start].encode()), begin + len(line_text[:i].encode())))
            start = i + 1
    return emptied, np.array(cuts, np.int64).reshape(-1, 3).T


def _line(text: kernels.scan.Scan, line: int) -> str:
    return text.data[text.line_start[line] : text.line_stop[line]].tobytes().decode()


def _spare(text: kernels.scan.Scan, stays: np.ndarray, blank: np.ndarray) -> np.ndarray:
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
    remaining = applied(documents["text"], edits)
    before, after = (
        kernels.separated.leading_words(*kernels.buffers.utf8(texts), kernels.separated.by_fasttext())
        for texts in (documents["text"], remaining)
    )
    return ratio(before - after, before)
