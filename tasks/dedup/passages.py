"""Passages that occur more than once in the corpus: lines, paragraphs, spans of sentences. The first is kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from gristmill.storage import files, ledger, parquet
from gristmill.storage.schema import EDITS, LEDGER, carried
from gristmill.tasks import kernels
from gristmill.tasks.dedup import exchange
from gristmill.tasks.dedup.exchange import CollectedShards, KeyRanges, SortedFiles, partition_bytes
from gristmill.tasks.documents.edits import Edits, applied, line_removals, merged, rows, write_cut
from gristmill.tasks.documents.measure import slices
from gristmill.tasks.documents.selection import select
from gristmill.tasks.documents.step import CorpusStep

# What a job that finds repeats holds for a passage.
PASSAGE_BYTES = 100
# Of a passage: fewer than the lines of the web have, so that there are not more than expected.
PASSAGE_CHARACTERS = 64


class Passages(CorpusStep):
    """What the steps that cut repeated passages have in common. They cut lines, unless they say otherwise."""

    rule: ClassVar[str]

    min_characters: int = Field(
        10,
        ge=1,
        description="Minimum number of letters, numbers and symbols in a passage. Shorter passages may "
        "repeat, such as dates, prices and the brackets of programs.",
    )
    min_words: int = Field(
        1,
        ge=1,
        description="Minimum number of words, each with a letter, mark or number. A document that has "
        "fewer after a cut is dropped.",
    )
    partitions: int | None = Field(
        None,
        ge=1,
        le=65536,
        description="Number of partitions of the exchange. A worker holds one in memory, 70 to 150 bytes per passage "
        "in it. null: chosen so that a partition takes half a gigabyte. Does not change results.",
    )

    def job_memory(self, documents: int, text_bytes: int) -> Iterator[tuple[int, str]]:
        passages = text_bytes // PASSAGE_CHARACTERS
        yield partition_bytes(passages * PASSAGE_BYTES, self.partitions), "passages of a partition"


class LineDedup(Passages):
    """Cut all but the first occurrence of lines that occur more than once in the whole corpus.

    After CCNet (Wenzek et al. 2020, arXiv 1911.00359, section 3.2; cc_net/dedup.py, text_normalizer.py), whose
    paragraphs are lines, and with it LLaMA (Touvron et al. 2023, arXiv 2302.13971, section 2.1). Otherwise than there:

    - the first occurrence stays; in CCNet's own run none does (`deduplicate_two_pass`: "even removing the first
      occurence"), and only within groups of its 1600 shards are lines compared;
    - keys are 64 bits of our own hash, not of SHA-1, of a text that is folded as its paper says (lower case, digits to
      0, no punctuation, no accents); its code takes off neither accents nor the punctuation of ASCII;
    - lines of fewer than `min_characters` may repeat; in CCNet the shortest are cut, too.

    It is in few recipes for a reason: for FineWeb it made models consistently worse to cut repeated lines of the whole
    corpus, also with a minimum of ten words, after near-duplicates had gone from each crawl (Penedo et al. 2024, arXiv
    2406.17557, appendix E.3 and figure 15: 77.8 % and 85 % of the tokens went). Compare before you keep it.
    """

    rule: ClassVar = "repeated_line"
    step: Literal["line_dedup"] = "line_dedup"


class ParagraphDedup(Passages):
    """Cut all but the first occurrence of paragraphs that occur more than once in the whole corpus.

    A paragraph is a run of lines that are not blank; its line breaks do not matter. Otherwise this step works like
    `line_dedup`, and has the same risks. CCNet and LLaMA call lines paragraphs.
    """

    rule: ClassVar = "repeated_paragraph"
    step: Literal["paragraph_dedup"] = "paragraph_dedup"


class SentenceDedup(Passages):
    """Cut all but the first occurrence of spans of sentences that occur more than once in the whole corpus.

    C4 (Raffel et al. 2020, arXiv 1910.10683, section 2.2): "we discarded all but one of any three-sentence span
    occurring more than once in the data set". Overlapping spans are handled as in datatrove
    (dedup/sentence_dedup.py): all spans of three consecutive sentences of a document count, also across lines and also
    overlapping ones; first occurrences are determined before anything is cut; a sentence is cut if it is in any span
    that is not the first of its kind. So each sentence stays at least once. The code of C4 (c4_utils.py of
    tensorflow/datasets) compares single lines instead, in lower case: that is nearer to `line_dedup`.

    Minimum lengths are datatrove's. Differences: spans are normalized as in `line_dedup` (datatrove replaces a
    number of any length by one 0, and drops the marks of all scripts), there is no `min_words_to_remove_span` (0), and
    sentences are those of `gristmill.tasks.kernels.scan`.

    FineWeb's spans of three lines made models worse, as its lines did: see `line_dedup`.
    """

    # 2: terminal punctuation follows Unicode 17, so it includes Khmer's full stop
    work_version: ClassVar[int] = 2
    rule: ClassVar = "repeated_sentences"
    step: Literal["sentence_dedup"] = "sentence_dedup"
    sentences: int = Field(3, ge=1, le=64, description="Sentences per span.")
    min_characters: int = Field(
        1, ge=1, description="Minimum number of letters, numbers and symbols in a span. Shorter spans may repeat."
    )
    min_words: int = Field(
        50,
        ge=1,
        description="Minimum number of words, each with a letter, mark or number. A document that has "
        "fewer after a cut is dropped.",
    )
    min_sentences: int = Field(
        3, ge=1, description="Minimum number of sentences. A document that has fewer after a cut is dropped."
    )


# Passages that occur more than once in the corpus, as phases. The first occurrence
# stays.
#
# A passage's key is the hash of its text, folded (`gristmill.tasks.kernels.folding`). Occurrences are ordered by the id
# of their document, then by their place in it, so that neither shards nor the order of documents in them change what
# stays. The phases:
#
#     for all shards:             hash_shard
#     for all partitions:         find_partition
#     for all ranges of shards:   `gristmill.tasks.dedup.exchange.collect_shards`
#     for all shards:             cut_shard
#
#     passages/00000.parquet    by `hash` uint64: rank uint64, shard int32, place int64
#     repeated/00000.parquet    by `shard` int64: place int64, of all that is cut for a partition
#     cuts/00000.parquet        the same of a range of shards, until the stage ends
#
# A rank is the first 64 bits of a document's id, a place the row of the selection, 32 bits, and the passage's number in
# the document. A passage stays in its first document even if that document is then dropped for being too short.


# What a shard's range holds for a passage that is cut.
REPEATED_BYTES = 40
_NUMBER = np.int64((1 << 32) - 1)


def partitions(characters: int) -> int:
    """The number of partitions for the passages of a text of `characters` characters."""
    return exchange.partitions_of(characters // PASSAGE_CHARACTERS, PASSAGE_BYTES)


def hash_shard(
    folder: str, number: int, shard: int, documents: str, kept: str, step: Passages, ranges: KeyRanges | None
) -> dict:
    """Write the keys of a shard's passages as the sorted file `number`. Holds its texts and 80 bytes a passage.
    `ranges`: see `exchange.write`."""
    table = select(documents, kept, ["text"])
    rank = ranks(table["id"])
    hashes, places = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
    row = 0
    for part in slices(table):
        text = kernels.scan.scan(part["text"])
        bounds = _bounds(text, step)
        keys, counts = _passages(text, step)
        positions = np.flatnonzero(counts)
        document = np.searchsorted(bounds, positions, side="right") - 1
        hashes.append(keys[positions])
        places.append(((document + row) << 32) + (positions - bounds[document]))
        row += len(part)
    place = np.concatenate(places)
    columns = {"hash": np.concatenate(hashes), "rank": rank[place >> 32]}
    columns |= {"shard": np.full(len(place), shard, np.int32), "place": place}
    exchange.write(passages_files(folder, number + 1).path(number), pa.table(columns), "hash", ranges)
    return {"passages": len(place)}


def find_partition(
    folder: str, partition: int, ranges: KeyRanges, among: SortedFiles, shards: KeyRanges | None
) -> dict:
    """Write the places of all passages of a range of keys that are not the first of their kind. `shards`: the ranges by
    which the file is read, see `exchange.write`.

    Holds about 70 bytes a passage of the range, and 80 more for those that are repeated.
    """
    passages = pa.concat_tables(among.each(*ranges.bounds(partition)))
    keys = passages["hash"].to_numpy()
    order = np.argsort(keys, kind="stable")
    same = keys[order][1:] == keys[order][:-1]
    shared = np.zeros(len(keys), bool)
    shared[1:] |= same
    shared[:-1] |= same
    several = order[shared]
    keys = keys[several]
    rank, shard, place = (passages[name].to_numpy()[several] for name in ("rank", "shard", "place"))
    order = np.lexsort((place, shard, rank, keys))
    later = order[1:][keys[order][1:] == keys[order][:-1]]
    table = pa.table({"shard": shard[later].astype(np.int64), "place": place[later]})
    exchange.write(repeated_files(folder, partition + 1).path(partition), table, "shard", shards)
    return {"passages": len(passages), "repeated": len(later)}


def cut_shard(folder: str, shard: int, documents: str, kept: str, step: Passages, cuts: CollectedShards) -> dict:
    """Write a shard's documents without the passages that are repeated, and the ledgers of cuts and drops. `cuts`:
    these passages, by shards.

    Holds the shard's texts four times, and 24 bytes a passage that is cut. Only texts that are cut are scanned again.
    """
    arriving = select(documents, kept, carried(parquet.schema(documents)))
    place = np.sort(cuts.read(shard, ["place"])["place"].to_numpy())
    return write_without(folder, shard, step, arriving, place)


def write_without(folder: str, shard: int, step: Passages, arriving: pa.Table, place: np.ndarray) -> dict:
    """Write a shard's documents without the passages at some places, which ascend, and the ledgers of cuts and
    drops."""
    touched, document = np.unique(place >> 32, return_inverse=True)
    texts, edits, drops = _without(arriving.take(pa.array(touched)), document, place & _NUMBER, step)
    return write_cut(folder, shard, step.step, arriving, touched, texts, edits, drops)


def _without(
    documents: pa.Table, document: np.ndarray, number: np.ndarray, step: Passages
) -> tuple[pa.ChunkedArray, pa.Table, pa.Table]:
    """Documents without some passages of each: the texts; the rows of EDITS; the ledger of what is too short now.

    `document`, `number`: which passages, ascending.
    """
    texts, cuts, drops = [pa.array([], pa.large_string())], [EDITS.empty_table()], [LEDGER.empty_table()]
    row = 0
    for part in slices(documents):
        first, last = np.searchsorted(document, [row, row + len(part)])
        text = kernels.scan.scan(part["text"])
        repeated = np.zeros(_bounds(text, step)[-1], bool)
        repeated[_bounds(text, step)[document[first:last] - row] + number[first:last]] = True
        edits = merged(_edits(text, repeated, step))
        ids = part["id"].combine_chunks()
        texts.append(applied(part["text"], edits))
        cuts.append(rows(ids, step.step, text, edits, keeps_removed=True))
        drops.append(_too_short(ids, text, edits, step))
        row += len(part)
    return pa.chunked_array(texts), pa.concat_tables(cuts), pa.concat_tables(drops)


def _bounds(text: kernels.scan.Scan, step: Passages) -> np.ndarray:
    """Where the passages of each document begin in the columns of passages. A span of sentences has the number of its
    first sentence."""
    match step:
        case ParagraphDedup():
            return text.paragraphs
        case SentenceDedup():
            return text.sentences
        case _:
            return text.lines


def _passages(text: kernels.scan.Scan, step: Passages) -> tuple[np.ndarray, np.ndarray]:
    """(key, counts) of all passages: uint64, and whether it is one that may not repeat."""
    match step:
        case ParagraphDedup():
            keys, size = kernels.folding.folded(text.data, *text.spans("paragraphs"))
        case SentenceDedup():
            keys, size = _span_keys(text, step.sentences)
        case _:
            keys, size = kernels.folding.folded(text.data, *text.spans("lines"))
    return keys, size >= step.min_characters


def _span_keys(text: kernels.scan.Scan, n: int) -> tuple[np.ndarray, np.ndarray]:
    """(key, size) of the spans of n sentences, each at its first; size 0 where the document ends before the span."""
    hashes, sizes = kernels.folding.folded(text.data, *text.spans("sentences"))
    spans = max(len(hashes) - n + 1, 0)
    keys, size = np.zeros(len(hashes), np.uint64), np.zeros(len(hashes), np.int64)
    for k in range(n):
        keys[:spans] = keys[:spans] * kernels.shingles.BASE + hashes[k : k + spans]
        size[:spans] += sizes[k : k + spans]
    ends = np.repeat(text.sentences[1:], np.diff(text.sentences))
    return keys, np.where(np.arange(len(hashes)) + n <= ends, size, 0)


def _edits(text: kernels.scan.Scan, repeated: np.ndarray, step: Passages) -> Edits:
    """What to cut so that the passages `repeated` are gone."""
    none = np.empty(0, np.int64)
    line, start, stop = none, none, none
    match step:
        case ParagraphDedup():
            gone = covered(text.paragraph_start[repeated], text.paragraph_stop[repeated], len(text.line_start))
        case SentenceDedup():
            first = np.flatnonzero(repeated)
            gone, line, start, stop = _sentences(text, covered(first, first + step.sentences, len(repeated)))
        case _:
            gone = repeated
    gone = gone | _blank_lines(text, gone)
    return line_removals(text, np.where(gone, 0, -1), line, start, stop, 0, (step.rule,))


def covered(start: np.ndarray, stop: np.ndarray, size: int) -> np.ndarray:
    """Which of `size` places are in one of the ranges from start to stop: bool."""
    change = np.bincount(start, minlength=size + 1) - np.bincount(stop, minlength=size + 1)
    return np.cumsum(change)[:size] > 0


def _sentences(text: kernels.scan.Scan, gone: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(lines, line, start, stop): lines of which no sentence stays, and the pieces of other lines that go.

    A sentence goes with the white space before it, so that a line still ends as it did; one with which a line begins,
    with the white space after it.
    """
    start, stop = text.spans("sentences")
    line = np.searchsorted(text.line_words, text.sentence_words[:-1], side="right") - 1
    staying = np.bincount(line[~gone], minlength=len(text.line_start))
    lines = (np.bincount(line, minlength=len(text.line_start)) > 0) & (staying == 0)
    inside = np.flatnonzero(gone & (staying[line] > 0))
    before = np.append(0, np.cumsum(~gone))[inside]  # how many of the remaining sentences are before it
    leading = before == np.append(0, np.cumsum(staying))[line[inside]]
    after, ahead = np.append(start, 0)[inside + 1], np.append(0, stop)[inside]
    return (
        lines,
        line[inside],
        np.where(leading, start[inside], ahead),
        np.where(leading, after, stop[inside]),
    )


def _blank_lines(text: kernels.scan.Scan, gone: np.ndarray) -> np.ndarray:
    """The blank lines that go with paragraphs of which no line stays: those after them, and after the last remaining
    paragraph if the document ends with such paragraphs. bool, one entry a line."""
    kept_before = np.append(0, np.cumsum(~gone))
    staying = kept_before[text.paragraph_stop] > kept_before[text.paragraph_start]
    document = np.repeat(np.arange(len(text.chars)), np.diff(text.lines))
    above = np.searchsorted(text.paragraph_start, np.arange(len(gone)), side="right") - 1  # the paragraph
    end = text.paragraphs[1:][document]
    kept = np.append(-1, np.flatnonzero(staying))
    last_kept = kept[np.searchsorted(kept, end - 1, side="right") - 1]
    follows_gone = (above >= text.paragraphs[document]) & ~np.append(staying, True)[above]
    trailing = (last_kept <= above) & (above + 1 < end)
    return (text.line_words[1:] == text.line_words[:-1]) & (follows_gone | trailing)


def _too_short(ids: pa.Array, text: kernels.scan.Scan, edits: Edits, step: Passages) -> pa.Table:
    """The ledger's rows of the documents that are left with too few words, or sentences."""
    real = (text.word_bits & kernels.scan.REAL) != 0
    least = {"min_words": (step.min_words, _remaining_counts(text, text.words, text.word_start, real, edits))}
    if isinstance(step, SentenceDedup):
        start, _ = text.spans("sentences")
        every = np.ones(len(start), bool)
        least["min_sentences"] = (step.min_sentences, _remaining_counts(text, text.sentences, start, every, edits))
    drops, alive = [LEDGER.empty_table()], np.ones(len(ids), bool)
    for rule, (threshold, counts) in least.items():
        short = np.flatnonzero(alive & (counts < threshold))
        alive[short] = False
        short_ids, values = ids.take(pa.array(short)), counts[short].astype(np.float64)
        drops.append(ledger.drops(step.step, rule, short_ids, value=values, threshold=threshold))
    return pa.concat_tables(drops)


def _remaining_counts(
    text: kernels.scan.Scan, bounds: np.ndarray, start: np.ndarray, counts: np.ndarray, edits: Edits
) -> np.ndarray:
    """How many of the units that count are left of each document: int64. A unit is cut whole or not at all."""
    begin = text.documents[edits.document]
    before = np.append(0, np.cumsum(counts))
    first, last = np.searchsorted(start, begin + edits.start), np.searchsorted(start, begin + edits.stop)
    cut = np.bincount(edits.document, before[last] - before[first], minlength=len(text.chars))
    return text.sum(bounds, counts) - cut.astype(np.int64)


def ranks(ids: pa.ChunkedArray) -> np.ndarray:
    """The first 64 bits of ids, which are hexadecimal digits: uint64."""
    return np.array([int(key[:16], 16) for key in ids.to_pylist()], np.uint64)


def passages_files(folder: str, count: int) -> SortedFiles:
    return SortedFiles(files.join(folder, "passages"), count)


def repeated_files(folder: str, partitions: int) -> SortedFiles:
    return SortedFiles(files.join(folder, "repeated"), partitions)
