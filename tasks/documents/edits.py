"""Cutting spans out of texts, with a row for each cut: what was removed, where, by which rule; and writing the
documents that are left."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import layout, ledger, parquet
from gristmill.storage.schema import DOCUMENTS, EDITS
from gristmill.tasks import kernels

_DOCUMENT = 40  # bits of a place in a document: 1 TB


@dataclass(frozen=True)
class Edits:
    """Spans of text to replace, sorted by document and start, without overlaps.

    Attributes:
        document: Number of the document in the batch, from 0; int64, shape (n,).
        start: First byte of the span in the UTF-8 text of its document; int64, shape (n,).
        stop: Byte after the span, so the end is exclusive; int64, shape (n,).
        rule: Index into `rules`; int32, shape (n,).
        rules: Names of the rules.
        replacement: Strings that replace the spans; "" removes a span. A `pyarrow.Array`.
        lines: Whether a span covers each line of the batch (bool, one entry per line), or None if unknown.
    """

    document: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    rule: np.ndarray
    rules: tuple[str, ...]
    replacement: pa.Array
    lines: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.document)


def removals(
    document: np.ndarray, start: np.ndarray, stop: np.ndarray, rule: np.ndarray, rules: tuple[str, ...]
) -> Edits:
    """Return edits that remove spans. The spans may be in any order, but must not overlap.

    Args:
        document: Number of each span's document in the batch; int64, shape (n,).
        start: First byte of each span in its document's UTF-8 text; int64, shape (n,).
        stop: Byte after each span; int64, shape (n,).
        rule: Index of each span's rule in `rules`; integers, shape (n,).
        rules: Names of the rules.
    """
    place = (document << _DOCUMENT) + start
    if (place[1:] < place[:-1]).any():
        order = np.argsort(place, kind="stable")  # linear where lists in order follow each other
        document, start, stop, rule = document[order], start[order], stop[order], rule[order]
    return Edits(document, start, stop, rule.astype(np.int32), rules, pa.repeat("", len(document)))


def line_removals(
    text: kernels.scan.Scan,
    rule: np.ndarray,
    line: np.ndarray,
    start: np.ndarray,
    stop: np.ndarray,
    inside: int,
    rules: tuple,
) -> Edits:
    """Return edits that remove whole lines, and pieces of other lines.

    Args:
        text: `batch.scan`.
        rule: Index of the rule that removes each line of the batch, or -1; int32, one entry per line.
        line: Line of each piece, counted over the batch; int64, shape (n,).
        start: First byte of each piece in `text.data`; int64, shape (n,).
        stop: Byte after each piece in `text.data`; int64, shape (n,).
        inside: Index of the rule that removes the pieces.
        rules: Names of the rules.
    """
    gone = rule >= 0
    document, first, last = line_spans(text, gone)
    document_of = np.searchsorted(text.lines, line, side="right") - 1
    edits = removals(
        np.append(document, document_of),
        np.append(first, start - text.documents[document_of]),
        np.append(last, stop - text.documents[document_of]),
        np.append(rule[gone], np.full(len(line), inside)),
        rules,
    )
    return replace(edits, lines=gone)


def line_spans(text: kernels.scan.Scan, removed: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(document, start, stop) of the spans that remove lines, one a line; `removed`: bool, one entry a line.

    A line is removed with the break after it, and a document's last lines with the break before them. So the remaining
    lines keep the breaks between them, and the last one keeps its break only if it was the last line before.
    """
    line = np.flatnonzero(removed)
    document = np.repeat(np.arange(len(text.chars)), np.diff(text.lines))[line]
    last = text.lines[1:][document] - 1
    start = text.line_start[line]
    following = text.line_start.take(line + 1, mode="clip")
    stop = np.where(line == last, text.documents[1:][document], following)
    # of the lines after the last remaining one, the first is removed with the break before it
    kept = np.append(-1, np.flatnonzero(~removed))
    last_kept = kept[np.searchsorted(kept, last, side="right") - 1]
    trailing = (line == last_kept + 1) & (last_kept >= text.lines[document])
    start[trailing] = text.line_stop[line[trailing] - 1]
    begin = text.documents[document]
    return document, start - begin, stop - begin


def scanned(text: kernels.scan.Scan, edits: Edits, remaining: pa.ChunkedArray | pa.Array) -> kernels.scan.Scan:
    """`scan(left)`: the scan of the texts that the edits leave, of which `text` was the scan."""
    if edits.lines is None:
        return kernels.scan.scan(remaining)
    spans = np.bincount(edits.document, minlength=len(text.chars))
    return kernels.rescan.without_lines(text, edits.lines, spans > text.sum(text.lines, edits.lines), remaining)


def merged(edits: Edits) -> Edits:
    """The same cuts, with adjacent cuts of one rule merged."""
    if not len(edits):
        return edits
    plain = pc.equal(edits.replacement, "").to_numpy(zero_copy_only=False)
    joins = (
        (edits.document[1:] == edits.document[:-1])
        & (edits.start[1:] == edits.stop[:-1])
        & (edits.rule[1:] == edits.rule[:-1])
        & plain[1:]
        & plain[:-1]
    )
    first = np.flatnonzero(np.append(True, ~joins))
    last = np.append(first[1:], len(edits)) - 1
    return Edits(
        edits.document[first],
        edits.start[first],
        edits.stop[last],
        edits.rule[first],
        edits.rules,
        edits.replacement.take(pa.array(first)),
    )


def applied(texts: pa.ChunkedArray | pa.Array, edits: Edits) -> pa.Array:
    """The texts with the spans replaced, large_string. Holds the new texts, and the old once more if any is put in."""
    data, offsets = kernels.buffers.utf8(texts)
    data, offsets = data[offsets[0] : offsets[-1]], offsets - offsets[0]
    documents, cuts = len(offsets) - 1, len(edits)
    until = np.searchsorted(edits.document, np.arange(documents + 1))  # the edits of the documents before each
    # what stays: a piece before each edit, and one more at the end of each document
    start, stop = np.empty((2, cuts + documents), np.int64)
    before = np.arange(cuts) + edits.document
    ends = np.arange(documents) + until[1:]
    begins = offsets[edits.document]
    start[np.arange(documents) + until[:-1]] = offsets[:-1]
    start[before + 1] = begins + edits.stop
    stop[before] = begins + edits.start
    stop[ends] = offsets[1:]
    inserted, bounds = kernels.buffers.utf8(edits.replacement)
    if bounds[-1] > bounds[0]:
        put = np.zeros((2, cuts + documents), np.int64)
        put[:, before] = bounds[:-1] + len(data), bounds[1:] + len(data)
        start, stop = np.stack([start, put[0]], 1).ravel(), np.stack([stop, put[1]], 1).ravel()
        data = np.concatenate([data, inserted])
        ends = 2 * ends
    sizes = np.cumsum(stop - start)
    return kernels.pieces.strings(kernels.pieces.joined(data, start, stop), np.append(0, sizes[ends]))


def rows(ids: pa.Array, step: str, text: kernels.scan.Scan, edits: Edits, keeps_removed: bool) -> pa.Table:
    """The rows of EDITS for a batch: lines and characters as they stood in the text that reached the step."""
    if not len(edits):
        return EDITS.empty_table()
    begin = text.documents[edits.document]
    start, stop = begin + edits.start, begin + edits.stop
    first_of_document = text.lines[edits.document]
    last_of_document = np.maximum(text.lines[edits.document + 1] - 1, first_of_document)
    first = np.clip(np.searchsorted(text.line_start, start, side="right") - 1, first_of_document, last_of_document)
    last = np.clip(
        np.searchsorted(text.line_start, np.maximum(stop - 1, start), side="right") - 1,
        first_of_document,
        last_of_document,
    )
    columns = {
        "id": ids.take(pa.array(edits.document)),
        "step": pa.repeat(step, len(edits)),
        "rule": pa.array(edits.rules, pa.string()).take(pa.array(edits.rule)),
        "first_line": np.minimum(first + _at_break(text, edits.document, first, start, stop), last) - first_of_document,
        "last_line": last - first_of_document,
        "start": kernels.pieces.characters(text.data, text.documents, edits.document, start),
        "stop": kernels.pieces.characters(text.data, text.documents, edits.document, stop),
        "removed": kernels.pieces.pieces(text.data, start, stop) if keeps_removed else pa.nulls(len(edits)),
        "replacement": edits.replacement,
    }
    return pa.table(columns).cast(EDITS)


def _at_break(
    text: kernels.scan.Scan, document: np.ndarray, first: np.ndarray, start: np.ndarray, stop: np.ndarray
) -> np.ndarray:
    """Whether a cut begins with the break of a line that stays, as a cut of a document's last lines does.

    An empty line begins with its break, too: it stays if the cut, with those that touch it, goes on to the end.
    """
    if not len(text.line_stop):
        return np.zeros(len(start), bool)
    first = np.minimum(first, len(text.line_stop) - 1)
    begin, end = text.documents[document], text.documents[document + 1]
    touches = np.append(False, (start[1:] == stop[:-1]) & (document[1:] == document[:-1]))
    chain = np.cumsum(~touches) - 1
    goes_on = (stop == end)[np.append(np.flatnonzero(~touches)[1:] - 1, len(start) - 1)][chain]
    empty = text.line_start[first] == text.line_stop[first]
    return (start >= text.line_stop[first]) & (~empty | (goes_on & ~touches & (start > begin)))


# Documents rewritten after a corpus step that cut into their texts, with the ledgers of cuts and drops.


def write_cut(
    folder: str,
    shard: int,
    step: str,
    arriving: pa.Table,
    touched: np.ndarray,
    texts: pa.Array | pa.ChunkedArray,
    edits: pa.Table,
    drops: pa.Table,
) -> dict:
    """Write a shard's documents, its rows of EDITS and of the LEDGER, and return its record.

    arriving: the documents (DOCUMENTS) as they reached the step; touched: the rows of those that were cut, ascending;
    texts: what is left of these. Holds the texts twice.
    """
    remaining = _replaced(arriving, touched, texts)
    staying = remaining.filter(pc.invert(pc.is_in(remaining["id"], drops["id"].combine_chunks())))
    parquet.write_table(layout.part(folder, shard), staying)
    parquet.write_table(layout.edits_part(folder, shard), edits)
    ledger.write_ledger(folder, shard, drops)
    before, after = (pc.sum(table["characters"]).as_py() or 0 for table in (arriving, staying))
    cuts = {rule: n for (rule,), n in sorted(ledger.tally(edits, "rule").items())}
    return {
        "rows_in": len(arriving),
        "rows_out": len(staying),
        "steps": [ledger.count(step, len(arriving), before, drops, before - after) | {"edits": cuts}],
    }


def _replaced(documents: pa.Table, touched: np.ndarray, texts: pa.Array | pa.ChunkedArray) -> pa.Table:
    """The documents with other texts in the rows `touched`."""
    indices = np.arange(len(documents))
    indices[touched] = len(documents) + np.arange(len(touched))
    chunks = texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]
    whole = pa.chunked_array([*documents["text"].chunks, *chunks], pa.large_string()).take(pa.array(indices))
    columns = {"characters": pc.utf8_length(whole).cast(pa.int64()), "text": whole}
    for name, column in columns.items():
        documents = documents.set_column(documents.schema.get_field_index(name), DOCUMENTS.field(name), column)
    return documents
