"""What a rule met: the text as it reached the step that dropped it, and the parts of it that offended."""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tasks.documents.batch import Batch
from tasks.documents.step import EditStep, Step
from tasks.rules.rule import RuleStep
from tasks.rules.rule_work import Parts, counted

Marks = tuple[tuple[int, int], ...]  # (start, stop) in code points, in order, not overlapping


@dataclass(frozen=True)
class Marked:
    """Parts of a text; `remark`: what they are, where they are not all that a rule counts."""

    marks: Marks = ()
    remark: str = ""


def marks(step: Step, row: dict[str, Any], document: pa.Table, text: str) -> Marked | None:
    """What offended a rule of a step, by the ledger's row; None for a step that has no rules of that kind.

    `document`: its one row, with the signals that the step reads.
    """
    if isinstance(step, RuleStep):
        return offending(step, row, document, text)
    if isinstance(step, EditStep) and (phrase := step.sought.get(row["rule"])):
        return Marked(tuple(match.span() for match in re.finditer(re.escape(phrase), text, re.IGNORECASE)))
    return None


def offending(step: RuleStep, row: dict[str, Any], document: pa.Table, text: str) -> Marked:
    """The words, lines, ... of the text that a rule counts.

    Where too small a part counted, the others; or again those that count, where the others are most of the text. Of a
    number that is too small nothing: what is missing cannot be marked. Empty, too, where a rule counts all, as a mean
    does. Raises LookupError for a rule that the step does not have.
    """
    found = [rule for rule in step.rules if rule.name == row["rule"]]
    if not found:
        raise LookupError(f"{step.step} has no rule {row['rule']} any more")
    [rule] = found
    document = document.set_column(document.schema.get_field_index("text"), "text", pa.array([text], pa.large_string()))
    batch = Batch(document)
    parts = counted(step, rule, batch)
    few = row["value"] < row["threshold"]
    if few and not rule.unit.startswith("fraction"):
        return Marked(remark=f"nothing is marked: {rule.name} asks for more {rule.unit} than the text has")
    if not isinstance(parts, Parts) or parts.where.all():
        return Marked()
    if not few:
        return Marked(_merged(batch, parts, parts.where, text))
    others = _merged(batch, parts, ~parts.where, text)
    if 2 * sum(stop - start for start, stop in others) <= len(text):
        return Marked(others, f"marked is what {rule.name} does not count, in {rule.unit}")
    return Marked(
        _merged(batch, parts, parts.where, text), f"marked is what {rule.name} counts, too small a {rule.unit}"
    )


def _merged(batch: Batch, parts: Parts, where: np.ndarray, text: str) -> Marks:
    """Units of the text, those next to each other as one, without blank ones."""
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
    """The text as it reached `step`, one of the `steps` that cut into it in their order, and what that step then cut
    out of it. `edits`: the document's rows of EDITS, by `start`."""
    for later in reversed(steps[steps.index(step) :]):
        own = edits.filter(pc.equal(edits["step"], later))
        text = restored(text, own)
    return text, spans(own, text)


def spans(edits: pa.Table, text: str) -> Marks:
    """Where rows of EDITS are in the text before them, but for white space."""
    found = zip(edits["start"].to_pylist(), edits["stop"].to_pylist(), strict=True)
    return tuple((start, stop) for start, stop in found if text[start:stop].strip())


def restored(text: str, edits: pa.Table) -> str:
    """The text before a step cut into it, from the text behind it and the step's rows of EDITS for it, by `start`.

    Where the content of a span was not kept, there are as many blocks as it had characters.
    """
    pieces: list[str] = []
    before = at = 0  # where the last span ended, in the text before and in the text behind
    for row in edits.to_pylist():
        same = row["start"] - before
        removed = "\u2588" * (row["stop"] - row["start"]) if row["removed"] is None else row["removed"]
        pieces += [text[at : at + same], removed]
        at += same + len(row["replacement"])
        before = row["stop"]
    return "".join([*pieces, text[at:]])
