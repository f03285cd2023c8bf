"""The step `mixed_languages`: the language of each line, beside that of its document."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.tasks.documents.batch import Batch
from gristmill.tasks.documents.edits import Edits, line_removals
from gristmill.tasks.documents.step import UNKNOWN
from gristmill.tasks.kernels.pieces import pieces
from gristmill.tasks.kernels.scan import Scan
from gristmill.tasks.models.language.identification import identified, labels_of, pinned_model
from gristmill.tasks.models.language.mixed_languages import RELATIVES, MixedLanguages

_RULES = tuple(cut.rule for cut in MixedLanguages.cuts)


def edit(step: MixedLanguages, documents: Batch) -> tuple[Edits, dict[str, pa.Array]]:
    """The lines in other languages, if they are cut, and their share.

    Raises ValueError for a document whose language is no label of the step's model.
    """
    text = documents.scan
    line = np.flatnonzero(text.line_chars >= step.min_characters)
    document = np.searchsorted(text.lines, line, side="right") - 1
    begin = pc.utf8_slice_codeunits(pieces(text.data, text.line_start[line], text.line_stop[line]), 0, step.characters)
    labels, scores = identified(step, begin)
    found, its = _groups(labels), _groups(_languages(step, documents)).take(document)
    other = (found != its) & (found != UNKNOWN) & (scores >= step.min_score)
    judged, strange = np.zeros((2, len(text.line_start)), np.int64)
    judged[line] = text.line_chars[line]
    strange[line[other]] = text.line_chars[line[other]]
    share = text.sum(text.lines, strange) / np.maximum(text.sum(text.lines, judged), 1)
    gone = np.zeros(len(text.line_start), bool)
    if step.cut:
        gone[line[other & ~np.isin(found, _groups(step.keep))]] = True
        _with_blank_lines(text, gone)
    nothing = np.empty(0, np.int64)
    edits = line_removals(text, np.where(gone, 0, -1), nothing, nothing, nothing, 0, _RULES)
    return edits, {"other_languages": pa.array(share)}


def pinned(step: MixedLanguages) -> MixedLanguages:
    """The step with the checksum of its model. Raises as `gristmill.tasks.models.language.identification.pinned_model`
    does."""
    return pinned_model(step, step.keep)


def _groups(labels: list[str] | tuple[str, ...]) -> np.ndarray:
    """The labels, those of languages that cannot be separated made one."""
    return np.array([RELATIVES.get(label, label) for label in labels], object)


def _languages(step: MixedLanguages, documents: Batch) -> list[str]:
    languages = documents["language"].to_pylist()
    if strange := sorted(set(languages) - {UNKNOWN, *labels_of(step)}):
        raise ValueError(
            f"mixed_languages: the documents' language {strange[0]} is no label of {step.model or 'lid.176'}; give the "
            "`model` that the step `language` has"
        )
    return languages


def _with_blank_lines(text: Scan, gone: np.ndarray) -> None:
    """Let the blank line behind each line that goes, go with it."""
    blank = np.diff(text.line_words) == 0
    first = np.zeros(len(gone) + 1, bool)
    first[text.lines] = True
    gone[1:] |= gone[:-1] & blank[1:] & ~first[1:-1]
