"""Texts for a reader: the parts of a text that a rule matched, and the differences between two texts."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.tasks.documents.measure import Batch
from gristmill.tasks.documents.step import EditStep, Step
from gristmill.tasks.rules.rule import Parts, RuleStep, counted

Marks = tuple[tuple[int, int], ...]  # (start, stop) in code points, in order, not overlapping


@dataclass(frozen=True)
class Marked:
    """Parts of a text; `remark`: an explanation if they are not everything that a rule counts."""

    marks: Marks = ()
    remark: str = ""


def marks(step: Step, row: dict[str, Any], document: pa.Table, text: str) -> Marked | None:
    """The parts that violate a rule, according to the ledger's row; None for a step without such rules.

    `document`: a table with one row, with the signals that the step reads.
    """
    if isinstance(step, RuleStep):
        return offending(step, row, document, text)
    if isinstance(step, EditStep) and (phrase := step.sought.get(row["rule"])):
        return Marked(tuple(match.span() for match in re.finditer(re.escape(phrase), text, re.IGNORECASE)))
    return None


def offending(step: RuleStep, row: dict[str, Any], document: pa.Table, text: str) -> Marked:
    """The units of the text (words, lines, ...) that a rule counts.

    If a share is too small, these are the units that do not count, or the ones that count if the others are most of the
    text. Empty if a number is too small, since missing units cannot be marked, and if a rule uses all units, such as a
    mean. Raises LookupError for a rule that the step does not have.
    """
    found = [rule for rule in step.rules if rule.name == row["rule"]]
    if not found:
        raise LookupError(f"{step.step} no longer has a rule {row['rule']}")
    [rule] = found
    document = document.set_column(document.schema.get_field_index("text"), "text", pa.array([text], pa.large_string()))
    batch = Batch(document)
    parts = counted(step, rule, batch)
    few = row["value"] < row["threshold"]
    if few and not rule.unit.startswith("fraction"):
        return Marked(remark=f"nothing is marked: {rule.name} requires more {rule.unit} than the text has")
    if not isinstance(parts, Parts) or parts.where.all():
        return Marked()
    if not few:
        return Marked(_merged(batch, parts, parts.where, text))
    others = _merged(batch, parts, ~parts.where, text)
    if 2 * sum(stop - start for start, stop in others) <= len(text):
        return Marked(others, f"{rule.name} counts everything that is not marked, in {rule.unit}")
    return Marked(
        _merged(batch, parts, parts.where, text),
        f"{rule.name} counts what is marked, which is too small a {rule.unit}",
    )


def _merged(batch: Batch, parts: Parts, where: np.ndarray, text: str) -> Marks:
    """Units of the text without blank ones, with adjacent units merged."""
    start, stop = (bounds[where] for bounds in parts.spans(batch.scan))
    data = batch.scan.data
    merged: list[tuple[int, int]] = []
    for begin, end in zip(_characters(data, start), _characters(data, stop), strict=True):
        if not text[begin:end].strip():
            continue
        if merged and not text[merged[-1][1] : begin].strip():
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((begin, end))
    return tuple(merged)


def _characters(data: np.ndarray, at: np.ndarray) -> list[int]:
    starts = np.append(0, np.cumsum((data & 0xC0) != 0x80))
    return starts[at].tolist()


def before_edits(text: str, edits: pa.Table, step: str, steps: list[str]) -> tuple[str, Marks]:
    """The text as it reached `step`, one of the `steps` that edited it in this order, and the spans that the step then
    cut out of it. `edits`: the document's rows of EDITS, by `start`."""
    for later in reversed(steps[steps.index(step) :]):
        own = edits.filter(pc.equal(edits["step"], later))
        text = restored(text, own)
    return text, spans(own, text)


def spans(edits: pa.Table, text: str) -> Marks:
    """The spans of rows of EDITS in the text before them, without white space."""
    found = zip(edits["start"].to_pylist(), edits["stop"].to_pylist(), strict=True)
    return tuple((start, stop) for start, stop in found if text[start:stop].strip())


def restored(text: str, edits: pa.Table) -> str:
    """Reconstruct the text before a step from the text after it and the step's rows of EDITS, by `start`.

    If the content of a span was not kept, each of its characters is replaced by a block.
    """
    pieces: list[str] = []
    before = at = 0  # end of the last span, in the text before and in the text after
    for row in edits.to_pylist():
        same = row["start"] - before
        removed = "\u2588" * (row["stop"] - row["start"]) if row["removed"] is None else row["removed"]
        pieces += [text[at : at + same], removed]
        at += same + len(row["replacement"])
        before = row["stop"]
    return "".join([*pieces, text[at:]])


_WORDS = 1200  # compared in each text, since difflib takes quadratic time
_CONTEXT = 8  # words shown at the ends of a folded stretch
_ALONE = 60  # words shown of a stretch that is not in the other text
_SHOWN = 240  # words shown of a text
_BEFORE = 8  # words of a passage before the first difference
_AHEAD = 400  # words after the first difference that are compared
_PASSAGE = 40  # words of a passage


@dataclass(frozen=True)
class Stretch:
    """Consecutive words. `alone`: they are not in the other text here; `folded`: number of hidden words after them."""

    text: str
    alone: bool
    folded: int = 0


class Passage(NamedTuple):
    """A few words of a text. `begins_within`, `ends_within`: whether the text has words before and after them."""

    stretches: list[Stretch]
    begins_within: bool
    ends_within: bool


def first_difference(one: str, other: str) -> tuple[Passage, Passage] | None:
    """The first passage of both texts with different words; None if no word differs."""
    words = one.split(), other.split()
    shorter = min(map(len, words))
    same = next((at for at, (a, b) in enumerate(zip(*words, strict=False)) if a != b), shorter)
    if same == len(words[0]) == len(words[1]):
        return None
    first = max(same - _BEFORE, 0)
    near = words[0][first : same + _AHEAD], words[1][first : same + _AHEAD]
    changes = SequenceMatcher(None, *near, autojunk=False).get_opcodes()
    sides = []
    for side, mine in enumerate(near):
        stretches = []
        for tag, *bounds in changes:
            start, stop = bounds[2 * side : 2 * side + 2]
            if start < _PASSAGE:
                stretches.append(Stretch(" ".join(mine[start : min(stop, _PASSAGE)]), tag != "equal"))
        sides.append(Passage(stretches, first > 0, len(mine) > _PASSAGE))
    return sides[0], sides[1]


def side_by_side(one: str, other: str) -> tuple[list[Stretch], list[Stretch]]:
    """The stretches of both texts, up to the number of words to compare and show. White space is not compared."""
    words = one.split(), other.split()
    compared = words[0][:_WORDS], words[1][:_WORDS]
    same = SequenceMatcher(None, *compared, autojunk=False).get_opcodes()
    if max(map(len, words)) > _WORDS and len(same) > 1 and same[-1][0] != "equal":
        same.pop()  # the end may match words that were not compared
    sides = []
    for side, (mine, all_mine) in enumerate(zip(compared, words, strict=True)):
        stretches: list[Stretch] = []
        for tag, *places in same:
            start, stop = places[2 * side : 2 * side + 2]
            stretches += _folded(mine[start:stop], tag != "equal", start == 0, stop == len(mine))
        sides.append(_cut(stretches, len(all_mine)))
    return sides[0], sides[1]


def _folded(words: list[str], alone: bool, first: bool, last: bool) -> Iterator[Stretch]:
    before, after = (_ALONE, 0) if alone else (0 if first else _CONTEXT, 0 if last else _CONTEXT)
    hidden = len(words) - before - after
    if hidden <= _CONTEXT:
        if words:
            yield Stretch(" ".join(words), alone)
        return
    yield Stretch(" ".join(words[:before]), alone, hidden)
    if after:
        yield Stretch(" ".join(words[-after:]), alone)


def _cut(stretches: list[Stretch], total: int) -> list[Stretch]:
    """The stretches that can be shown, and the number of words after them."""
    shown = covered = 0
    for at, stretch in enumerate(stretches):
        visible = len(stretch.text.split())
        if shown + visible > _SHOWN:
            words = stretch.text.split()[: _SHOWN - shown]
            return [*stretches[:at], Stretch(" ".join(words), stretch.alone, total - covered - len(words))]
        shown += visible
        covered += visible + stretch.folded
    return stretches + ([Stretch("", False, total - covered)] if total > covered else [])


# Parts of a text that a page shows: its beginning, or the context of marked parts.


_EXCERPT_CONTEXT = 160  # characters on either side of a marked part


class Piece(NamedTuple):
    """Consecutive characters of a text. `left_out`: number of hidden characters after them."""

    text: str
    marked: bool
    left_out: int = 0


def beginning(text: str, characters: int) -> list[Piece]:
    """The first characters of a text."""
    return [Piece(text[:characters], False, max(0, len(text) - characters))]


def excerpt(text: str, marks: Marks, characters: int) -> list[Piece]:
    """Marked parts with some context, as many as fit, or the beginning if there are no marks."""
    pieces: list[Piece] = []
    left, at = characters, 0
    for start, stop in marks:
        if left <= 0:
            break
        if start - at > 2 * _EXCERPT_CONTEXT:
            pieces.append(Piece(text[at : at + _EXCERPT_CONTEXT], False, start - at - 2 * _EXCERPT_CONTEXT))
            pieces.append(Piece(text[start - _EXCERPT_CONTEXT : start], False))
        else:
            pieces.append(Piece(text[at:start], False))
        shown = min(stop, start + left)
        pieces.append(Piece(text[start:shown], True, stop - shown))
        left -= shown - start + min(start - at, 2 * _EXCERPT_CONTEXT)
        at = stop
    end = at + max(left, _EXCERPT_CONTEXT)
    return [*pieces, Piece(text[at:end], False, max(0, len(text) - end))]
