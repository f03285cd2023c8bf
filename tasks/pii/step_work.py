"""The step `pii`: candidates found by their bytes, judged by kind, masked."""

import re
from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.tasks.documents.batch import Batch
from gristmill.tasks.documents.edits import Edits, applied
from gristmill.tasks.kernels.buffers import utf8
from gristmill.tasks.pii import candidates as shapes
from gristmill.tasks.pii.addresses import ipv4, ipv6
from gristmill.tasks.pii.candidates import Sought, candidates
from gristmill.tasks.pii.cards import cards, ibans, lengths
from gristmill.tasks.pii.credentials import BEGINNINGS, blocks, hooks, keys, named, passwords, tokens
from gristmill.tasks.pii.emails import emails, escaped_emails, spelled, wide_emails
from gristmill.tasks.pii.national_ids import national_ids
from gristmill.tasks.pii.passwords import basic, of_curl, said
from gristmill.tasks.pii.phones import foreign_phones, phones
from gristmill.tasks.pii.plans import groupings
from gristmill.tasks.pii.step import KINDS, Kind, Pii

_BEFORE, _AFTER = 80, 24  # bytes of its surroundings by which a candidate is judged


def edit(step: Pii, documents: Batch) -> tuple[Edits, dict[str, pa.Array]]:
    """A span for each that is masked, and how many there are of each kind; and the columns that the step rewrites."""
    languages = None
    if all(name in documents.table.column_names for name in step.considers) and step.considers:
        languages = documents["language"].to_pylist()
    rows = len(documents)
    edits = _edits(step, documents["text"], languages)
    counts = {
        f"pii_{name}s": pa.array(np.bincount(edits.document[edits.rule == number], minlength=rows))
        for number, name in enumerate(KINDS)
    }
    rewritten = {name: _masked(step, documents[name], languages) for name in step.rewrites}
    return edits, {"pii_spans": pa.array(np.bincount(edits.document, minlength=rows)), **counts, **rewritten}


def _edits(step: Pii, texts: pa.ChunkedArray, languages: list[str] | None) -> Edits:
    data, offsets = utf8(texts)
    regions = [_regions(step, language) for language in languages] if languages else [step.regions] * (len(offsets) - 1)
    document, start, stop, kind = _spans(step, data, offsets, regions)
    replacements = pa.array([getattr(step.replacements, name) for name in KINDS])
    return Edits(document, start, stop, kind.astype(np.int32), KINDS, replacements.take(pa.array(kind)))


def _masked(step: Pii, column: pa.ChunkedArray, languages: list[str] | None) -> pa.Array:
    """The values of a column, masked; null where they are."""
    values = pc.fill_null(column, "")
    masked = applied(values, _edits(step, values, languages)).cast(column.type)
    return pc.if_else(pc.is_null(column).combine_chunks(), pa.scalar(None, column.type), masked)


def _regions(step: Pii, language: str | None) -> tuple[str, ...]:
    more = step.regions_by_language.get(language, ()) if language else ()
    return tuple(dict.fromkeys((*more, *step.regions)))


def _spans(step: Pii, data: np.ndarray, offsets: np.ndarray, regions: list[tuple[str, ...]]) -> np.ndarray:
    """Documents, starts and stops in them, numbers of the kinds: int64, shape (4, n), sorted, not overlapping.

    regions: of each document, those whose national phone numbers are found.
    """
    sought = {shape: found for shape in _JUDGES if (found := [(k, j) for k, j in _JUDGES[shape] if k in step.kinds])}
    written = groupings(tuple(sorted({region for some in set(regions) for region in some})))
    codes = shapes.CODE in sought and bool(step.national_ids)
    places = candidates(data, offsets, Sought(BEGINNINGS, lengths(), written, codes))
    order = np.lexsort((places.stop, places.start))
    order = order[np.isin(places.shape[order], list(sought))]
    text = data.data
    marks = b"|".join(re.escape(mark.encode()[:8]) for mark in step.replacements.model_dump().values() if mark)
    # What was left because of what follows it must be left when that is masked, too.
    masked = re.compile(rb"[\s,.:/+*=^-]{0,4}(?:" + marks + rb")") if marks else None
    spans = []
    edge = block = 0
    columns = [column[order] for column in (places.shape, places.document, places.start, places.stop)]
    begins, ends = offsets[columns[1]], offsets[columns[1] + 1]
    for shape, document, start, stop, begin, end in zip(
        *(column.tolist() for column in (*columns, begins, ends)), strict=True
    ):
        if start < block:
            continue
        if shape in _BEHIND and start < edge < stop:  # it stands beside what is masked, without a space
            start = edge
        value = bytes(text[start:stop])
        after = bytes(text[stop : min(end, stop + _AFTER)])
        if masked and masked.match(after):
            continue
        before = bytes(text[max(begin, start - _BEFORE) : start])
        if start - len(before) < edge <= start:  # what is masked says nothing about what stands behind it
            before = b"|" + bytes(text[edge:start])
        for kind, judge in sought[shape]:
            more = {"phone": (regions[document],), "national_id": (step.national_ids,)}.get(kind, ())
            for first, last in judge(value, before, after, *more):
                spans.append((document, start - begin + first, start - begin + last, KINDS.index(kind)))
                edge = max(edge, start + last)
                if shape == shapes.BLOCK:
                    block = stop
    return np.array(_apart(sorted(spans)), np.int64).reshape(-1, 4).T


_JUDGES: dict[int, list[tuple[Kind, Callable[..., Iterable[tuple[int, int]]]]]] = {
    shapes.MAILBOX: [("email", emails)],
    shapes.SPELLED: [("email", spelled)],
    shapes.WIDE_MAILBOX: [("email", wide_emails)],
    shapes.ESCAPED: [("email", escaped_emails)],
    shapes.QUAD: [("ip", ipv4)],
    shapes.HEXTETS: [("ip", ipv6)],
    shapes.CARD: [("credit_card", cards)],
    shapes.NUMBER: [("phone", phones)],
    shapes.FOREIGN: [("phone", foreign_phones)],
    shapes.ACCOUNT: [("iban", ibans)],
    shapes.KEY: [("api_key", keys)],
    shapes.TOKEN: [("api_key", tokens)],
    shapes.SECRET: [("api_key", named)],
    shapes.HOOK: [("api_key", hooks)],
    shapes.BLOCK: [("api_key", blocks)],
    shapes.LOGIN: [("api_key", passwords)],
    shapes.PASSWORD: [("api_key", said)],
    shapes.CURL: [("api_key", of_curl)],
    shapes.BASIC: [("api_key", basic)],
    shapes.CODE: [("national_id", national_ids)],
}


_BEHIND = (shapes.MAILBOX, shapes.WIDE_MAILBOX, shapes.ESCAPED, shapes.NUMBER, shapes.FOREIGN)


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
