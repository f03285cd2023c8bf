"""Documents in several languages: the share of lines in other languages than the document's, and the step that drops
the documents or cuts the lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from gristmill.tasks import kernels
from gristmill.tasks.documents.edits import Edits, line_removals
from gristmill.tasks.documents.file_problems import file_problems
from gristmill.tasks.documents.measure import Batch
from gristmill.tasks.documents.step import UNKNOWN, Bound, Cut, EditStep, Problem, Signal
from gristmill.tasks.models.language import (
    Identification,
    Probability,
    identified,
    labels_of,
    pinned_model,
)

# Languages that a line is too short to separate, and forms of one language: a line in one of them does not count as
# another language in a document in another. Pidgin is what py3langid's model takes some English headings for.
RELATIVES = {
    code: codes[0]
    for codes in (
        ("ar", "ary", "arz"),
        ("el", "grc"),
        ("en", "pcm"),
        ("he", "hbo"),
        ("ku", "sdh"),
        ("ms", "id"),
        ("no", "nn"),
        ("sh", "bs", "hr", "sr"),
        ("st", "nso"),
        ("uz", "uzs"),
        ("zh", "wuu", "yue"),
    )
    for code in codes
}


class MixedLanguages(Identification, EditStep):  # type: ignore[override]  # its libraries depend on the settings
    """Measure how much of a document is in other languages than the one that the step `language` identified. Drop
    documents where this share is too high, or cut out the lines.

    The language of each line of at least `min_characters` is identified separately. A line is in another language if
    the model says so with a probability of at least `min_score`. A line of more than `characters` is identified in
    parts, none of which may be in the document's language. Bosnian, Croatian and Serbian count as one language, as do
    Indonesian and Malay, the two forms of Norwegian, and forms of Arabic, Chinese, English, Greek, Hebrew, Kurdish,
    Sotho and Uzbek, since a line is too short to separate them.

    A document whose own language is unknown is not measured: it is kept and not cut.
    """

    # 2: py3langid's model is the default
    # 3: long lines are read to their end; documents in an unknown language are not measured
    work_version: ClassVar = 3
    pins_files: ClassVar = True

    step: Literal["mixed_languages"] = "mixed_languages"
    max_share: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Highest share in other languages (fraction of characters) that is kept; null: no limit.",
    )
    cut: bool = Field(False, description="Cut out lines in other languages.")
    keep: tuple[str, ...] = Field(
        (), description="Languages whose lines are never cut, in addition to the document's language."
    )
    min_characters: int = Field(
        40, ge=1, description="Minimum length of a line whose language is identified (characters)."
    )
    min_score: Probability = Field(0.65, description="Lowest probability at which a line counts as another language.")
    characters: int = Field(
        400,
        gt=0,
        description="Characters of a line that the model reads at once. A longer line is in another language if its "
        "beginning is, and no later part of this length is in the document's language.",
    )

    cuts: ClassVar = (
        Cut("other_language", ("cut", "keep"), description="Lines in another language, and the blank line after."),
    )
    signal_fields: ClassVar = (
        *("cut", "keep", "min_characters", "min_score", "characters"),
        *Identification.model_fields,
    )
    signals: ClassVar = (
        Signal(
            "other_languages",
            "float64",
            "share of characters",
            "model of languages, by line",
            description="Of the lines of at least `min_characters`, the share in another language than the document's. "
            "null: the document's language is unknown.",
        ),
        Signal(
            "mixed_languages_characters",
            "int64",
            "characters",
            "model of languages, by line",
            description="Characters that the step leaves.",
        ),
    )

    @property
    def question(self) -> str:
        return "Is it, but for a small part, in one language?"

    @property
    def reads(self) -> tuple[str, ...]:
        return ("language",)

    def problems(self, deep: bool) -> Iterator[Problem]:
        if self.model_path is not None:
            yield from file_problems(self.model_path, ("model",), deep, self.pinned)

    def decisions(self) -> list[Bound]:
        share = Bound("other_languages", "other_languages", high=self.max_share, keeps_null=True)
        return [share, self.not_empty()]


_RULES = tuple(cut.rule for cut in MixedLanguages.cuts)


def edit(step: MixedLanguages, documents: Batch) -> tuple[Edits, dict[str, pa.Array]]:
    """The lines in other languages, if they are cut, and their share: null for documents in an unknown language.

    Raises ValueError for a document whose language is not a label of the step's model.
    """
    text = documents.scan
    line = np.flatnonzero(text.line_chars >= step.min_characters)
    document = np.searchsorted(text.lines, line, side="right") - 1
    lines = kernels.pieces.pieces(text.data, text.line_start[line], text.line_stop[line])
    labels, scores = identified(step, pc.utf8_slice_codeunits(lines, 0, step.characters))
    languages = _groups(_languages(step, documents))
    line_groups, its = _groups(labels), languages.take(document)
    other = (line_groups != its) & (line_groups != UNKNOWN) & (its != UNKNOWN) & (scores >= step.min_score)
    long = np.flatnonzero(other & (text.line_chars[line] > step.characters))
    other[long] = ~_own_later(step, lines.take(pa.array(long)), its[long])
    judged, strange = np.zeros((2, len(text.line_start)), np.int64)
    judged[line] = text.line_chars[line]
    strange[line[other]] = text.line_chars[line[other]]
    share = text.sum(text.lines, strange) / np.maximum(text.sum(text.lines, judged), 1)
    gone = np.zeros(len(text.line_start), bool)
    if step.cut:
        gone[line[other & ~np.isin(line_groups, _groups(step.keep))]] = True
        _with_blank_lines(text, gone)
    nothing = np.empty(0, np.int64)
    edits = line_removals(text, np.where(gone, 0, -1), nothing, nothing, nothing, 0, _RULES)
    return edits, {"other_languages": pa.array(share, mask=languages == UNKNOWN)}


def pinned(step: MixedLanguages) -> MixedLanguages:
    """The step with the checksum of its model. Raises as `gristmill.tasks.models.language.pinned_model`
    does."""
    return pinned_model(step, step.keep)


def _own_later(step: MixedLanguages, lines: pa.Array | pa.ChunkedArray, its: np.ndarray) -> np.ndarray:
    """Whether a later part of a line is in the language `its` of the document: bool. Parts have `characters`, also the
    last, which the part before it overlaps: a few characters at the end of a line are labeled wrongly too often."""
    size = step.characters
    parts = [
        (number, line[begin : begin + size])
        for number, line in enumerate(lines.to_pylist())
        for begin in (*range(size, len(line) - size, size), len(line) - size)
    ]
    labels, scores = identified(step, pa.array([part for _, part in parts], pa.large_string()))
    number = np.array([number for number, _ in parts], np.int64)
    found = np.zeros(len(its), bool)
    found[number[(_groups(labels) == its[number]) & (scores >= step.min_score)]] = True
    return found


def _groups(labels: list[str] | tuple[str, ...]) -> np.ndarray:
    """The labels, with languages that cannot be separated merged into one."""
    return np.array([RELATIVES.get(label, label) for label in labels], object)


def _languages(step: MixedLanguages, documents: Batch) -> list[str]:
    languages = documents["language"].to_pylist()
    if strange := sorted(set(languages) - {UNKNOWN, *labels_of(step)}):
        raise ValueError(
            f"mixed_languages: the documents' language {strange[0]} is not a label of {step.model}; give "
            "the `model` that the step `language` has"
        )
    return languages


def _with_blank_lines(text: kernels.scan.Scan, gone: np.ndarray) -> None:
    """Also remove the blank line after each line that is removed."""
    blank = np.diff(text.line_words) == 0
    first = np.zeros(len(gone) + 1, bool)
    first[text.lines] = True
    gone[1:] |= gone[:-1] & blank[1:] & ~first[1:-1]
