"""What functions of users may return: columns of signals, edits, decisions. Each check raises `Unacceptable`, which
says what came back and what to return instead."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from gristmill.tasks import kernels
from gristmill.tasks.documents.edits import Edits
from gristmill.tasks.documents.step import Bound, Clause, Decision, EditStep, Member
from gristmill.tasks.engine.own_code import Unacceptable, shown

_CONTINUATION = 0b1000_0000  # the upper two bits of a byte of UTF-8 that begins no character: 10


def accepted_columns(signals: pa.Schema, rows: int, result: Any) -> dict[str, pa.ChunkedArray]:
    """The columns of `signals` that `measure` returned, of their types; each has a value for each of `rows`
    documents."""
    if not isinstance(result, Mapping):
        names = ", ".join(signals.names) or "none"
        raise Unacceptable(f"returned {shown(result)}; return a mapping with an array for each signal ({names})")
    return {field.name: _column(field, rows, result) for field in signals}


def _column(field: pa.Field, rows: int, columns: Mapping[str, Any]) -> pa.ChunkedArray:
    if field.name not in columns:
        there = ", ".join(map(str, columns)) or "none"
        raise Unacceptable(f"gives no column {field.name}, which its signals name; it gives {there}")
    values = columns[field.name]
    try:
        length = len(values)
    except TypeError:
        raise Unacceptable(
            f"gives {shown(values)} as the column {field.name}; give an array with {rows:,} values"
        ) from None
    if length != rows:
        raise Unacceptable(
            f"gives {length:,} values in the column {field.name} for {rows:,} documents; give one for each"
        )
    try:
        return pa.Table.from_arrays([values], schema=pa.schema([field])).column(0)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        what = f"type {values.type}" if hasattr(values, "type") else shown(values)
        raise Unacceptable(
            f"gives the column {field.name} as {what}, which is not {field.type} ({' '.join(str(error).split())[:100]})"
        ) from error


def accepted_edits(
    step: EditStep, signals: pa.Schema, texts: pa.ChunkedArray, result: Any
) -> tuple[Edits, dict[str, Any]]:
    """The edits of `texts` and the columns that `edit` returned: of `signals` and of the step's `rewrites`.

    The spans must be in the order of the documents and of their places, not overlap, and begin and end where
    characters do."""
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], Edits)):
        raise Unacceptable(f"returned {shown(result)}; return a pair of Edits and a mapping of columns")
    edits, columns = result
    _check_spans(edits, texts)
    needed = pa.schema([field for field in signals if field.name != step.left])
    checked: dict[str, Any] = dict(accepted_columns(needed, len(texts), columns))
    for name in step.rewrites:
        if name not in columns or len(columns[name]) != len(texts):
            raise Unacceptable(f"gives no value for some documents in {name}, which its `rewrites` lists")
        checked[name] = columns[name]
    return edits, checked


def _check_spans(edits: Edits, texts: pa.ChunkedArray) -> None:
    numbers = {name: np.asarray(getattr(edits, name)) for name in ("document", "start", "stop", "rule")}
    lengths = {name: len(values) for name, values in numbers.items()} | {"replacement": len(edits.replacement)}
    if len(set(lengths.values())) > 1:
        raise Unacceptable(f"gives Edits of unequal length ({', '.join(f'{n}: {k}' for n, k in lengths.items())})")
    for name, values in numbers.items():
        if len(values) and values.dtype.kind not in "iu":
            raise Unacceptable(f"gives Edits whose {name} is not an array of integers")
    if not len(edits):
        return
    document, start, stop, rule = numbers.values()
    for what, values, count in (("document", document, len(texts)), ("rule", rule, len(edits.rules))):
        if values.min() < 0 or values.max() >= count:
            wrong = values.min() if values.min() < 0 else values.max()
            raise Unacceptable(f"gives an edit with the {what} {wrong}; there are {count:,}, numbered from 0")
    data, offsets = kernels.buffers.utf8(texts)
    sizes = np.diff(offsets)[document]
    outside = (start < 0) | (stop < start) | (stop > sizes)
    if outside.any():
        n = int(np.argmax(outside))
        raise Unacceptable(
            f"gives an edit of bytes {start[n]} to {stop[n]} of a text of {sizes[n]} bytes (document {document[n]})"
        )
    same = document[1:] == document[:-1]
    if (document[1:] < document[:-1]).any() or (start[1:] < stop[:-1])[same].any():
        raise Unacceptable("gives edits that overlap or are not sorted by document and start; see `removals`")
    for places in (start, stop):
        first = data[(offsets[document] + places)[places < sizes]]
        if ((first & 0b1100_0000) == _CONTINUATION).any():
            raise Unacceptable("gives an edit that begins or ends within a character; count bytes, not characters")


def accepted_decisions(columns: Sequence[str], result: Any) -> Sequence[Decision]:
    """The bounds and choices that `decisions` returned. `columns`: the step's own signals, where it has any."""
    if not isinstance(result, Sequence) or isinstance(result, str):
        raise Unacceptable(f"returned {shown(result)}; return a list of Bound, Member or Clause")
    for each in result:
        if not isinstance(each, Bound | Member | Clause):
            raise Unacceptable(f"returned a list with {shown(each)}; return Bound, Member or Clause")
        if columns and isinstance(each, Bound | Member) and each.signal not in columns:
            raise Unacceptable(
                f"bounds {each.signal} by the rule {each.rule}, which is not a signal of the step "
                f"({', '.join(columns)})"
            )
    return result
