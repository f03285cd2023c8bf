"""The step `c4`: which lines go, and what the documents are judged by."""

from dataclasses import dataclass

import numba as nb
import numpy as np
import pyarrow as pa

from gristmill.tasks.documents.batch import Batch
from gristmill.tasks.documents.edits import Edits, line_removals
from gristmill.tasks.kernels import phrases
from gristmill.tasks.kernels.pieces import joined, strings
from gristmill.tasks.kernels.scan import FIELD, TERMINAL, Scan, scan
from gristmill.tasks.rules.c4 import C4, LONG_LINE
from gristmill.tasks.rules.c4_sentences import sentences

# The order is datatrove's; the last two do not drop a line for its text.
_RULES = tuple(cut.rule for cut in C4.cuts)
_LONG_WORD, _NO_TERMINAL, _FEW_WORDS, _JAVASCRIPT, _POLICY, _BLANK, _CITATION = range(len(_RULES))

_FIXED = ("lorem ipsum", "{", "javascript")
_CITED = (b"edit]", b"citation needed]")
_ELLIPSIS = "..."


def edit(step: C4, documents: Batch) -> tuple[Edits, dict[str, pa.Array]]:
    """The lines and citations that go, and what documents are judged by."""
    text = documents.scan
    cited = _citations(text) if step.citations else _Spans.none()
    lines = _lines(text, cited, step)
    rule = np.full(len(text.line_start), -1, np.int32)

    def removed(number: int, where: np.ndarray) -> None:
        rule[where & (rule < 0)] = number

    if step.max_word_characters is not None:
        removed(_LONG_WORD, _long_words(text, step.max_word_characters))
    if step.terminal_punctuation:
        removed(_NO_TERMINAL, ~lines.ended)
    removed(_FEW_WORDS, lines.words < step.min_words_per_line)
    lorem_ipsum = lines.phrases[:, 0] & (rule < 0)
    if step.javascript:
        removed(_JAVASCRIPT, lines.phrases[:, 2])
    curly_bracket = lines.phrases[:, 1] & (rule < 0)
    removed(_POLICY, np.any(lines.phrases[:, len(_FIXED) :], axis=1))
    rule[(rule >= 0) & (np.diff(text.line_words) == 0)] = _BLANK

    gone = rule >= 0
    inside = cited.of(~gone[cited.line])
    columns = {
        "c4_lorem_ipsum": text.sum(text.lines, lorem_ipsum),
        "c4_curly_bracket": text.sum(text.lines, curly_bracket),
        "c4_sentences": text.sum(text.lines, _sentences(text, lines, ~gone)),
        "c4_long_lines": text.sum(text.lines, text.line_chars >= LONG_LINE),
    }
    edits = line_removals(text, rule, inside.line, inside.start, inside.stop, _CITATION, _RULES)
    return edits, {name: pa.array(column) for name, column in columns.items()}


@dataclass(frozen=True)
class _Spans:
    """Pieces of lines: the line of each, and its bytes; sorted."""

    line: np.ndarray
    start: np.ndarray
    stop: np.ndarray

    @classmethod
    def none(cls) -> "_Spans":
        return cls(*np.empty((3, 0), np.int64))

    def of(self, where: np.ndarray) -> "_Spans":
        return _Spans(self.line[where], self.start[where], self.stop[where])


@dataclass(frozen=True)
class _Lines:
    """What the rules ask of each line, read without its citations."""

    start: np.ndarray  # int64, without the white space at both ends, and with citations
    stop: np.ndarray  # int64
    words: np.ndarray  # int64
    ended: np.ndarray  # bool: by terminal punctuation
    phrases: np.ndarray  # bool, a column for each of _FIXED and of the policy's
    cited: np.ndarray  # int64, the lines that have citations
    clean: Scan | None  # these lines without citations, each a document


def _lines(text: Scan, cited: _Spans, step: C4) -> _Lines:
    first, behind = text.line_words[:-1], text.line_words[1:]
    blank = first == behind
    # without the white space at both ends
    start, stop = text.line_start, text.line_start
    if len(text.word_start):
        start = np.where(blank, start, text.word_start.take(first, mode="clip"))
        stop = np.where(blank, stop, text.word_stop[behind - 1])
    line = np.unique(cited.line)
    words, ended, found = _measured(text, text.line_words, start, stop, step)
    if not len(line):
        return _Lines(start, stop, words, ended, found, line, None)
    # scan those once more as they read without citations, each as a document
    stays_from = np.insert(cited.stop, np.searchsorted(cited.line, line), start[line])
    stays_until = np.insert(cited.start, np.searchsorted(cited.line, line, side="right"), stop[line])
    bounds = np.append(np.searchsorted(cited.line, line) + np.arange(len(line)), len(stays_from))
    sizes = np.append(0, np.cumsum(stays_until - stays_from))
    clean = scan(strings(joined(text.data, stays_from, stays_until), sizes[bounds]))
    clean_words, ended[line], found[line] = _measured(
        clean, clean.words, clean.documents[:-1], clean.documents[1:], step
    )
    if not step.citation_words:
        words[line] = clean_words
    return _Lines(start, stop, words, ended, found, line, clean)


def _measured(
    text: Scan, words: np.ndarray, start: np.ndarray, stop: np.ndarray, step: C4
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(words, ended, phrases) as of `_Lines`, of the lines whose words are `words[i]:words[i + 1]` and that stand in
    `data[start[i]:stop[i]]`."""
    return (
        text.sum(words, (text.word_bits & FIELD) != 0),
        _ends_with(text.data, start, stop, step.terminal_punctuation)
        & ~_ends_with(text.data, start, stop, (_ELLIPSIS,)),
        phrases.found(text.data, start, stop, _FIXED + step.policy),
    )


def _sentences(text: Scan, lines: _Lines, stay: np.ndarray) -> np.ndarray:
    """Sentences of the lines that stay, read without citations, and 0 of the others: int64."""
    whole = stay.copy()
    whole[lines.cited] = False
    counts = _sentences_of(text, text.line_words, lines.start, lines.stop, whole)
    if lines.clean is not None:
        clean = lines.clean
        counts[lines.cited] = _sentences_of(
            clean, clean.words, clean.documents[:-1], clean.documents[1:], stay[lines.cited]
        )
    return counts


def _sentences_of(text: Scan, words: np.ndarray, start: np.ndarray, stop: np.ndarray, which: np.ndarray) -> np.ndarray:
    """Sentences of those lines that are asked for, else 0; lines are given as to `_measured`.

    Punkt knows `.`, `?` and `!` alone: in a line with a mark of another script sentences are those of the scan.
    """
    other = (text.word_bits & TERMINAL) != 0
    other[other] = text.data[text.word_stop[other] - 1] >= 0x80
    scanned = text.sum(words, other) > 0
    counts = np.zeros(len(start), np.int64)
    if np.any(scanned & which):
        counts = np.where(scanned & which, np.diff(np.searchsorted(text.sentence_words, words)), 0)
    asked = which & ~scanned
    counts[asked] = sentences(text.data, start[asked], stop[asked])
    return counts


def _ends_with(data: np.ndarray, start: np.ndarray, stop: np.ndarray, ends: tuple[str, ...]) -> np.ndarray:
    found = np.zeros(len(start), bool)
    last = np.where(stop > start, data[stop - 1], 0) if len(data) else found
    for end in ends:
        *others, b = end.encode()
        at = np.flatnonzero(last == b)
        at = at[stop[at] - start[at] > len(others)]
        for back, b in enumerate(reversed(others), 2):
            at = at[data[stop[at] - back] == b]
        found[at] = True
    return found


def _long_words(text: Scan, most: int) -> np.ndarray:
    """Whether a line has a word of more than `most` code points."""
    return _longest_field(text.line_words, text.line_chars > most, text.word_bits, text.word_chars) > most


@nb.njit(nogil=True, cache=True)
def _longest_field(line_words, lines, bits, chars):
    """Code points of the longest field of each of the `lines` (bool) that are asked for, int64; else 0."""
    longest = np.zeros(len(lines), np.int64)
    for m in np.flatnonzero(lines):
        size = 0
        for w in range(line_words[m], line_words[m + 1]):
            size = np.int64(chars[w]) + (0 if bits[w] & FIELD else size)
            longest[m] = max(longest[m], size)
    return longest


def _citations(text: Scan) -> _Spans:
    begin, end = text.documents[0], text.documents[-1]
    start = begin + np.flatnonzero(text.data[begin:end] == ord("["))
    line = np.searchsorted(text.line_start, start, side="right") - 1
    stop, ascii_only = _closed(text.data, text.line_stop[line], start)
    cited = stop > 0
    for i in np.flatnonzero(cited & ~ascii_only):
        cited[i] = text.data[start[i] + 1 : stop[i] - 1].tobytes().decode().isdecimal()
    return _Spans(line, start, stop).of(cited)


@nb.njit(nogil=True, cache=True)
def _closed(data, end, start):
    """Behind a citation in `data[start[i]:end[i]]`, or 0, int64; whether it is ASCII, if not it may be no citation."""
    stop = np.zeros(len(start), np.int64)
    ascii_only = np.ones(len(start), np.bool_)
    for s in range(len(start)):
        i = start[s] + 1
        while i < end[s] and (0x30 <= data[i] <= 0x39 or data[i] >= 0x80):
            ascii_only[s] &= data[i] < 0x80
            i += 1
        if i < end[s] and data[i] == 0x5D:
            stop[s] = i + 1
            continue
        for word in _CITED:
            i = start[s] + 1 + len(word)
            if i <= end[s]:
                same = True
                for k in range(len(word)):
                    same &= data[start[s] + 1 + k] == word[k]
                if same:
                    stop[s] = i
    return stop, ascii_only
