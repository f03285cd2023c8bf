"""Cut duplicated spans (`gristmill.tasks.dedup.substrings`) out of documents, or drop the documents.

Lee et al. 2022 (arXiv 2107.06499) cut. RefinedWeb (arXiv 2306.01116, appendix G.3.2) tried to cut, to drop documents
of which more than a fifth is duplicated, and to drop any with a span, and stayed with the first; it cuts all copies of
a span (`keep: none`) and discards documents of which fewer than 20 characters are left.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import ledger, parquet
from gristmill.storage.schema import EDITS, LEDGER, SELECTION, carried
from gristmill.tasks.dedup.exchange import CollectedShards
from gristmill.tasks.dedup.substrings import SubstringDedup, spans_of
from gristmill.tasks.documents.edits import Edits, applied, removals, rows, write_cut
from gristmill.tasks.documents.measure import slices
from gristmill.tasks.documents.selection import select
from gristmill.tasks.kernels.pieces import characters
from gristmill.tasks.kernels.scan import Scan, scan

_CUT = "repeated_span"


def cut_shard(
    folder: str, shard: int, documents: str, kept: str, spans: CollectedShards, settings: SubstringDedup
) -> dict:
    """Write a shard's documents without their duplicated spans, and the ledgers of cuts and drops.

    A span of words goes with the white space on one of its sides; one of bytes loses what it has of characters that
    are not all in it. `spans`: what was found, by shards. Holds the shard's texts three times.
    """
    arriving = select(documents, kept, carried(parquet.schema(documents)))
    row, first, stop = spans_of(spans, shard)
    touched, document = np.unique(row, return_inverse=True)
    texts, cuts, drops = [pa.array([], pa.large_string())], [EDITS.empty_table()], [LEDGER.empty_table()]
    first_row = 0
    for part in slices(arriving.take(pa.array(touched))):
        here = slice(*np.searchsorted(document, [first_row, first_row + len(part)]))
        text = scan(part["text"])
        edits = _edits(text, document[here] - first_row, first[here], stop[here], settings)
        ids = part["id"].combine_chunks()
        remaining = applied(part["text"], edits)
        lengths = np.asarray(pc.utf8_length(remaining), np.int64)
        cut_into = np.bincount(edits.document, minlength=len(part)) > 0
        short = np.flatnonzero(cut_into & (lengths < settings.min_characters))
        texts.append(remaining)
        cuts.append(rows(ids, settings.step, text, edits, keeps_removed=True))
        drops.append(_drop_rows(settings, "min_characters", ids, short, lengths[short]))
        first_row += len(part)
    return write_cut(
        folder,
        shard,
        settings.step,
        arriving,
        touched,
        pa.chunked_array(texts),
        pa.concat_tables(cuts),
        pa.concat_tables(drops),
    )


def drop_shard(
    folder: str, shard: int, documents: str, kept: str, spans: CollectedShards, settings: SubstringDedup
) -> dict:
    """Write which documents of a shard stay, and the ledger of the others. Holds the texts of those with spans."""
    row, first, stop = spans_of(spans, shard)
    touched, document = np.unique(row, return_inverse=True)
    first_row, drops = 0, [LEDGER.empty_table()]
    for part in slices(select(documents, kept, ["text"]).take(pa.array(touched))):
        here = slice(*np.searchsorted(document, [first_row, first_row + len(part)]))
        text = scan(part["text"])
        document_of = document[here] - first_row
        begin, end = _bytes(text, document_of, first[here], stop[here], settings)
        span_characters = characters(text.data, text.documents, document_of, end) - characters(
            text.data, text.documents, document_of, begin
        )
        share = np.bincount(document_of, weights=span_characters, minlength=len(part)) / np.maximum(text.chars, 1)
        drop_indices = np.flatnonzero(share > settings.max_share)
        drops.append(_drop_rows(settings, "max_share", part["id"].combine_chunks(), drop_indices, share[drop_indices]))
        first_row += len(part)
    arriving = parquet.read_table(kept, SELECTION.names)
    return ledger.write_selection(folder, shard, arriving, [(settings.step, pa.concat_tables(drops))])


def _drop_rows(settings: SubstringDedup, rule: str, ids: pa.Array, rows: np.ndarray, values: np.ndarray) -> pa.Table:
    threshold = getattr(settings, rule)
    return ledger.drops(
        settings.step, rule, ids.take(pa.array(rows)), value=values.astype(np.float64), threshold=threshold
    )


def _bytes(
    text: Scan, document: np.ndarray, first: np.ndarray, stop: np.ndarray, settings: SubstringDedup
) -> tuple[np.ndarray, np.ndarray]:
    """(start, stop) of spans of units in `text.data`; of bytes only whole characters."""
    if settings.unit == "words":
        first, stop = text.words[document] + first, text.words[document] + stop
        return text.word_start[first], text.word_stop[stop - 1]
    start, end = text.documents[document] + first, text.documents[document] + stop
    limit = text.documents[document + 1]
    for _ in range(3):  # a character has at most three bytes after its first
        start += _inside(text.data, start, limit)
        end -= _inside(text.data, end, limit)
    return start, np.maximum(start, end)


def _inside(data: np.ndarray, place: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """Whether a place is within a character; the document's end is not."""
    return (place < limit) & ((data.take(place, mode="clip") & 0xC0) == 0x80)


def _edits(text: Scan, document: np.ndarray, first: np.ndarray, stop: np.ndarray, settings: SubstringDedup) -> Edits:
    start, end = _bytes(text, document, first, stop, settings)
    if settings.unit == "words":
        start, end = _with_space(text, document, first, stop, start, end)
    there = start < end
    document, start, end = document[there], start[there], end[there]
    begin = text.documents[document]
    return removals(document, start - begin, end - begin, np.zeros(len(document), np.int32), (_CUT,))


def _with_space(
    text: Scan, document: np.ndarray, first: np.ndarray, stop: np.ndarray, start: np.ndarray, end: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Spans with the white space that would be left over: all of it at an end of the text; else, if there is some on
    both sides, that after a span which begins a line, and that before any other span.
    """
    word, last = text.words[document] + first, text.words[document] + stop
    leading, trailing = first == 0, last == text.words[document + 1]
    before = np.where(leading, text.documents[document], text.word_stop.take(word - 1, mode="clip"))
    after = np.where(trailing, text.documents[document + 1], text.word_start.take(last, mode="clip"))
    lines = text.line_words
    begins = lines[np.searchsorted(lines, word).clip(max=len(lines) - 1)] == word
    both = (before < start) & (end < after)
    start = np.where(leading | trailing | (both & ~begins), before, start)
    return start, np.where(leading | trailing | (both & begins), after, end)
