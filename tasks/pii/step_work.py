"""The step `pii`: candidates found by their bytes, judged by kind, masked."""

import re
from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa

from tasks.documents.batch import Batch
from tasks.documents.edits import Edits
from tasks.kernels.buffers import utf8
from tasks.pii.addresses import ipv4, ipv6
from tasks.pii.candidates import ACCOUNT, HEXTETS, KEY, MAILBOX, NUMBER, QUAD, candidates
from tasks.pii.cards import cards
from tasks.pii.emails import emails
from tasks.pii.ibans import ibans
from tasks.pii.keys import BEGINNINGS, keys
from tasks.pii.phones import phones
from tasks.pii.step import KINDS, Kind, Pii

_BEFORE, _AFTER = 80, 12  # bytes of its surroundings by which a candidate is judged


def edit(step: Pii, documents: Batch) -> tuple[Edits, dict[str, pa.Array]]:
    """A span for each that is masked, and how many there are of each kind."""
    data, offsets = utf8(documents["text"])
    document, start, stop, kind = _spans(step, data, offsets)
    texts = pa.array([getattr(step.replacements, name) for name in KINDS])
    edits = Edits(document, start, stop, kind.astype(np.int32), KINDS, texts.take(pa.array(kind)))
    rows = len(offsets) - 1
    counts = {
        f"pii_{name}s": pa.array(np.bincount(document[kind == number], minlength=rows))
        for number, name in enumerate(KINDS)
    }
    return edits, {"pii_spans": pa.array(np.bincount(document, minlength=rows)), **counts}


def _spans(step: Pii, data: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Documents, starts and stops in them, numbers of the kinds: int64, shape (4, n), sorted, not overlapping."""
    places = candidates(data, offsets, BEGINNINGS)
    order = np.lexsort((places.stop, places.start))
    text = data.data
    marks = b"|".join(re.escape(mark.encode()[:8]) for mark in step.replacements.model_dump().values() if mark)
    # What was left because of what follows it must be left when that is masked, too.
    masked = re.compile(rb"[\s,.:/+*=^-]{0,4}(?:" + marks + rb")") if marks else None
    spans = []
    edge = 0
    columns = [column[order] for column in (places.shape, places.document, places.start, places.stop)]
    begins, ends = offsets[columns[1]], offsets[columns[1] + 1]
    for shape, document, start, stop, begin, end in zip(
        *(column.tolist() for column in (*columns, begins, ends)), strict=True
    ):
        value = bytes(text[start:stop])
        after = bytes(text[stop : min(end, stop + _AFTER)])
        if masked and masked.match(after):
            continue
        before = bytes(text[max(begin, start - _BEFORE) : start])
        if start - len(before) < edge <= start:  # what is masked says nothing about what stands behind it
            before = b"|" + bytes(text[edge:start])
        for kind, (first, last) in _judged(step, shape, value, before, after):
            spans.append((document, start - begin + first, start - begin + last, KINDS.index(kind)))
            edge = max(edge, start + last)
    return np.array(_apart(sorted(spans)), np.int64).reshape(-1, 4).T


def _judged(step: Pii, shape: int, value: bytes, before: bytes, after: bytes) -> list[tuple[Kind, tuple[int, int]]]:
    """The kinds that stand in a candidate, with their places in it."""
    judged = []
    for kind, judge in _JUDGES[shape]:
        if kind in step.kinds:
            more = (step.regions,) if kind == "phone" else ()
            judged += [(kind, span) for span in judge(value, before, after, *more)]
    return judged


_JUDGES: dict[int, list[tuple[Kind, Callable[..., Iterable[tuple[int, int]]]]]] = {
    MAILBOX: [("email", emails)],
    QUAD: [("ip", ipv4)],
    HEXTETS: [("ip", ipv6)],
    NUMBER: [("credit_card", cards), ("phone", phones)],
    ACCOUNT: [("iban", ibans)],
    KEY: [("api_key", keys)],
}


def _apart(spans: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Sorted spans (document, start, stop, kind); of two that overlap the one of the lower kind, or the first."""
    kept: list[tuple[int, int, int, int]] = []
    for span in spans:
        if kept and kept[-1][0] == span[0] and span[1] < kept[-1][2]:
            if span[3] < kept[-1][3]:
                kept[-1] = span
        else:
            kept.append(span)
    return kept
