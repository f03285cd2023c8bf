"""Duplicated spans of at least n words or bytes, found over the whole corpus (Lee et al. 2022, arXiv 2107.06499)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from gristmill.storage import files
from gristmill.tasks import kernels
from gristmill.tasks.dedup import exchange
from gristmill.tasks.dedup.exchange import CollectedShards, KeyRanges, SortedFiles
from gristmill.tasks.documents.measure import slices
from gristmill.tasks.documents.selection import select
from gristmill.tasks.documents.step import CorpusStep, Settings


class SpanSearch(Settings):
    """Which spans are duplicated, and the files in which they are exchanged."""

    unit: Literal["words", "bytes"] = Field("words", description="Unit of a span.")
    min_length: int = Field(50, ge=2, le=1 << 20, description="Minimum length of a duplicated span (words or bytes).")
    keep: Literal["first", "none"] = Field(
        "first",
        description="Occurrence of a span that is kept. first: the one in the document with the smallest "
        "id. none: all are removed.",
    )
    block_bytes: int = Field(
        64 << 20,
        ge=1 << 10,
        description="Text per suffix array (bytes). A worker needs about 20 times as much memory. Does not "
        "change results.",
    )


class SpanCutting(Settings):
    """What to do with documents that have duplicated spans."""

    step: Literal["substring_dedup"] = "substring_dedup"
    unit: Literal["words", "bytes"] = Field("words", description="Unit of a span.")
    policy: Literal["cut", "drop"] = Field("cut", description="Cut the spans out, or drop documents with many of them.")
    min_characters: int = Field(
        20, ge=1, description="With `cut`: a document that has fewer characters left after a cut is dropped."
    )
    max_share: float = Field(
        0.2, ge=0, lt=1, description="With `drop`: maximum fraction of a document's characters in duplicated spans."
    )


class SubstringDedup(SpanSearch, SpanCutting, CorpusStep):
    """Remove spans that occur in the corpus more than once, or the documents that consist of them.

    All windows of `min_length` words (or bytes) of all documents are compared with each other. Words are those of the
    rules, so that punctuation counts and white space does not; a token of Lee et al. is somewhat shorter than a word.
    Lee et al. and RefinedWeb remove all copies of a span, Dolma 3 leaves one. A span that is kept because
    it comes first counts as kept even if its document is then dropped. Cutting joins text that was apart, which can
    create new duplicates, so Lee et al. ran twice.
    """

    packages: ClassVar = ("pydivsufsort",)

    step: Literal["substring_dedup"] = "substring_dedup"

    def job_memory(self, documents: int, text_bytes: int) -> Iterator[tuple[int, str]]:
        yield self.block_bytes, "texts of a block"


# Duplicated spans of at least n words or bytes, found over the whole corpus.
#
# A word or byte is duplicated if it is in a window of n of them that also occurs somewhere else in the corpus, or
# with `keep: first` somewhere before, in the order of the documents' ids. Then text that is cut out of one place is
# still in another. Spans never reach from one document into the next.
#
# A suffix array of all text fits into no machine, and one for each part of the corpus, as Dolma 3 has them, does not
# see what parts have in common. So windows are divided into blocks by their minimizers
# (`gristmill.tasks.kernels.minimizers`): equal windows come into one block, whose suffix array finds them, byte by
# byte; and of text whose minimizers are met only once, most of a corpus, none is made. The result is that of one
# suffix array of everything.
#
# The phases, each of which waits for the one before; in the end all files but spans/ are removed:
#
#     for all shards:             count_characters                        how many there are
#     for all shards:             key_shard         keys/00000.parquet    the minimizers of its windows
#     for all partitions:         match_partition   hot/00000.parquet     which of them are met more than once
#     for all ranges of shards:   collect_shards    runs/00000.parquet    the same, by shards
#     for all shards:             gather_shard      texts/00000.parquet   the text of these runs of windows
#     for all blocks:             find_block        found/00000.parquet   the spans found in a block
#     for all ranges of shards:   collect_shards    spans/00000.parquet   the same, by shards
#
# `gristmill.tasks.dedup.substring_cuts` then cuts the spans out, or drops the documents.


# What `match_partition` holds for a run of windows; a range of shards for one that is met more than once, or a span.
RUN_BYTES, HOT_BYTES, SPAN_BYTES = 60, 16, 48
# Numbers of a `node`, of runs or documents of a shard.
NODES = 1 << 32
_DOCUMENT = 40  # bits of a place in a document
_END = np.uint8(0xFF)  # after each word: not a byte of UTF-8


@dataclass(frozen=True)
class _Units:
    """The words or bytes of some documents: document d has values[offsets[d]:offsets[d + 1]].

    `ends`: int64, how many bytes the units before each take where their text is compared, and the sum at the end.
    `data`: the bytes; `start`, `stop`: where each word is there, None for bytes.
    """

    values: np.ndarray
    offsets: np.ndarray
    ends: np.ndarray
    data: np.ndarray
    start: np.ndarray | None
    stop: np.ndarray | None

    def text(self, first: np.ndarray, last: np.ndarray) -> pa.LargeBinaryArray:
        """The units first[i]:last[i], in the form in which it is compared: of words each with `_END`."""
        sizes = self.ends[last] - self.ends[first]
        if self.start is None or self.stop is None:
            data = kernels.pieces.joined(self.data, first, last)
        else:
            counts = last - first
            word = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
            start, stop = np.empty((2, 2 * len(word)), np.int64)
            start[0::2], stop[0::2] = self.start[word], self.stop[word]
            start[1::2], stop[1::2] = len(self.data), len(self.data) + 1
            data = kernels.pieces.joined(np.append(self.data, _END), start, stop)
        offsets = np.append(0, np.cumsum(sizes))
        return pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(sizes), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        )


def _units(texts: pa.Array | pa.ChunkedArray, unit: str) -> _Units:
    if unit == "bytes":
        data, offsets = kernels.buffers.utf8(texts)
        data, offsets = data[offsets[0] : offsets[-1]], offsets - offsets[0]
        return _Units(data, offsets, np.arange(len(data) + 1), data, None, None)
    text = kernels.scan.scan(texts)
    ends = np.append(0, np.cumsum(text.word_stop - text.word_start + 1))
    return _Units(text.word_hash, text.words, ends, text.data, text.word_start, text.word_stop)


def exchanged(folder: str, kind: str, jobs: int) -> SortedFiles:
    """The files of a kind that `jobs` jobs have written."""
    return SortedFiles(files.join(folder, kind), jobs)


def by_shard(shards: int, rows: int, row_bytes: int) -> KeyRanges:
    """The ranges of shards by which `rows` rows with a column `node` are put together."""
    return KeyRanges(min(shards, exchange.partitions_of(rows, row_bytes)), shards, each=NODES)


def partitions(characters: int, settings: SpanSearch) -> int:
    """The number of partitions for the runs of windows of `characters` characters.

    There are two runs in n/2 + 1 units (`gristmill.tasks.kernels.minimizers`), and a word takes some four characters or
    more.
    """
    units = characters // (4 if settings.unit == "words" else 1)
    return exchange.partitions_of(2 * units // (settings.min_length // 2 + 1), RUN_BYTES)


def key_shard(
    folder: str, number: int, shard: int, documents: str, kept: str, settings: SpanSearch, ranges: KeyRanges | None
) -> dict:
    """Write the minimizer of each run of windows of a shard as the file `number`: `key`; `node`, the shard and the
    run's number in the order of the text; `size`, the bytes of its text where it is compared; `repeats`, see
    `minimizers.Runs`. `ranges`: see `exchange.write`.

    Holds the texts of the shard and 80 bytes a run. Returns how many windows and runs there are.
    """
    n = settings.min_length
    columns: dict[str, list[np.ndarray]]
    columns = {"key": [np.empty(0, np.uint64)], "size": [np.empty(0, np.int64)], "repeats": [np.empty(0, bool)]}
    windows = 0
    for part in slices(select(documents, kept, ["text"])):
        units = _units(part["text"], settings.unit)
        window_runs = kernels.minimizers.runs(units.values, units.offsets, n)
        first, last = _places(units, window_runs, n)
        columns["key"].append(window_runs.key)
        columns["size"].append(units.ends[last] - units.ends[first])
        columns["repeats"].append(window_runs.repeats)
        windows += int(window_runs.windows.sum())
    table = pa.table({name: np.concatenate(parts) for name, parts in columns.items()})
    table = table.append_column("node", pa.array((shard << 32) + np.arange(len(table))))
    exchange.write(exchanged(folder, "keys", number + 1).path(number), table, "key", ranges)
    return {"windows": windows, "runs": len(table)}


def _places(units: _Units, window_runs: kernels.minimizers.Runs, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The first unit of each run of windows, and the unit after its last, among the units of all documents."""
    first = units.offsets[window_runs.document] + window_runs.first
    return first, first + window_runs.windows + n - 1


def match_partition(
    folder: str, partition: int, ranges: KeyRanges, keys: SortedFiles, shards: KeyRanges | None
) -> dict:
    """Write the runs of a range of keys whose windows may be duplicated: `node`, the shard and the run's number.
    `shards`: the ranges by which the file is read, see `exchange.write`.

    That is where several runs have the key, or where the one repeats itself. Holds 60 bytes a run of the range. Returns
    how many runs are written, and the bytes of their texts.
    """
    table = pa.concat_tables(keys.each(*ranges.bounds(partition)))
    key = table["key"].to_numpy()
    order = np.argsort(key, kind="stable")
    key = key[order]
    again = np.append(False, key[1:] == key[:-1])
    hot = again | np.append(again[1:], False) | table["repeats"].to_numpy()[order]
    rows = order[hot]
    node = table["node"].to_numpy()[rows]
    exchange.write(exchanged(folder, "hot", partition + 1).path(partition), pa.table({"node": node}), "node", shards)
    return {"runs": len(node), "bytes": int(table["size"].to_numpy()[rows].sum())}


def gather_shard(
    folder: str,
    number: int,
    shard: int,
    documents: str,
    kept: str,
    settings: SpanSearch,
    runs: CollectedShards,
    ranges: KeyRanges | None,
) -> dict:
    """Write the runs of a shard that `match_partition` found as the file `number`: `key`; `id`; `node`, the shard and
    the document's row in it; `first`, the document's unit with which they begin; `content`. `runs`: their numbers, by
    shards; `ranges`: see `exchange.write`.

    Holds the texts of the shard, and three times the contents.
    """
    low = shard << 32
    hot = np.sort(runs.read(shard)["node"].to_numpy()) - low
    n, before, start, tables = settings.min_length, 0, low, [_GATHERED.empty_table()]
    for part in slices(select(documents, kept, ["text"])):
        units = _units(part["text"], settings.unit)
        window_runs = kernels.minimizers.runs(units.values, units.offsets, n)
        here = hot[slice(*np.searchsorted(hot, [before, before + len(window_runs.key)]))] - before
        before += len(window_runs.key)
        first, last = _places(units, window_runs, n)
        row = window_runs.document[here]
        columns = {
            "key": window_runs.key[here],
            "id": part["id"].take(pa.array(row)).combine_chunks(),
            "node": start + row,
            "first": window_runs.first[here],
            "content": units.text(first[here], last[here]),
        }
        tables.append(pa.table(columns, schema=_GATHERED))
        start += len(part)
    table = pa.concat_tables(tables)
    exchange.write(exchanged(folder, "texts", number + 1).path(number), table, "key", ranges)
    return {"runs": len(table)}


_GATHERED = pa.schema(
    [
        pa.field("key", pa.uint64()),
        pa.field("id", pa.string()),
        pa.field("node", pa.int64()),
        pa.field("first", pa.int64()),
        pa.field("content", pa.large_binary()),
    ]
)


def blocks(size: int, settings: SpanSearch) -> int:
    """Into how many blocks texts of `size` bytes are divided."""
    return max(-(-size // settings.block_bytes), 1)


def find_block(
    folder: str, block: int, settings: SpanSearch, ranges: KeyRanges, texts: SortedFiles, shards: KeyRanges | None
) -> dict:
    """Write the duplicated spans that a block shows: `node`; `first`, `stop`, units of the document. `shards`: the
    ranges by which the file is read, see `exchange.write`.

    Holds the texts of the block twice, and of those that are different 20 times as much. A block is of about
    `block_bytes`; but the runs of one minimizer, as of a template in a million documents, are all in one.
    """
    table = pa.concat_tables(texts.each(*ranges.bounds(block)))
    table = table.take(pc.sort_indices(table, [("id", "ascending"), ("first", "ascending")]))
    content = table["content"].combine_chunks().dictionary_encode()
    copy_of = content.indices.to_numpy()
    distinct = content.dictionary
    # `distinct` is in the order of the first copies, which is the order of the ids
    first_copy = np.append(True, copy_of[1:] > np.maximum.accumulate(copy_of)[:-1])[: len(copy_of)]
    copies = np.bincount(copy_of, minlength=len(distinct))
    whole = ~first_copy if settings.keep == "first" else copies[copy_of] > 1
    start, stop, content_of = _find_spans(distinct, settings)
    row = np.flatnonzero(first_copy)[content_of]
    apart = ~whole[row]
    units = _count_units(distinct, settings.unit)[copy_of[whole]]
    first = table["first"].to_numpy()
    node = table["node"].to_numpy()
    spans = {
        "node": np.append(node[whole], node[row[apart]]),
        "first": np.append(first[whole], first[row[apart]] + start[apart]),
        "stop": np.append(first[whole] + units, first[row[apart]] + stop[apart]),
    }
    exchange.write(exchanged(folder, "found", block + 1).path(block), pa.table(spans), "node", shards)
    return {"runs": len(table), "different": len(distinct), "bytes": _size(distinct), "spans": len(spans["node"])}


def _size(contents: pa.LargeBinaryArray) -> int:
    return pc.sum(pc.binary_length(contents)).as_py() or 0


def _bytes(contents: pa.LargeBinaryArray) -> tuple[np.ndarray, np.ndarray]:
    _, offsets, data = contents.buffers()
    offsets = np.frombuffer(offsets, np.int64)[contents.offset : contents.offset + len(contents) + 1]
    return np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]], offsets - offsets[0]


def _count_units(contents: pa.LargeBinaryArray, unit: str) -> np.ndarray:
    """How many units each content has: int64."""
    if not len(contents) or unit == "bytes":
        return np.asarray(pc.binary_length(contents), np.int64)
    data, offsets = _bytes(contents)
    return np.diff(np.searchsorted(np.flatnonzero(data == _END), offsets))


def _find_spans(contents: pa.LargeBinaryArray, settings: SpanSearch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(first, stop, content) of the spans of different contents whose windows occur in them twice, or occurred before.

    first, stop: units of the content.
    """
    # imported here: it brings the libraries of OpenMP, and most processes sort nothing
    from pydivsufsort import divsufsort, kasai

    n = settings.min_length
    if not len(contents):
        return (np.empty(0, np.int64),) * 3
    data, offsets = _bytes(contents)
    data = data.copy()  # the library takes no read-only buffer
    size = np.zeros(len(data), np.int32)
    if settings.unit == "words":
        after = np.flatnonzero(data == _END) + 1
        begin = np.append(0, after[:-1])
        word = np.searchsorted(begin, offsets)  # the first word of each content
        starts = _windows(word, n)
        size[begin[starts]] = after[starts + n - 1] - begin[starts]
    else:
        starts = _windows(offsets, n)
        size[starts] = n
    order = divsufsort(data)
    positions = np.flatnonzero(kernels.minimizers.repeated(order, kasai(data, order), size, settings.keep == "first"))
    first = np.searchsorted(begin, positions) if settings.unit == "words" else positions
    bounds = word if settings.unit == "words" else offsets
    content_of = np.searchsorted(bounds, first, side="right") - 1
    place = first + content_of  # so that contents do not touch each other
    first, stop = _spans(place, place + n)
    content_of = content_of[np.searchsorted(place, first)]
    return first - content_of - bounds[content_of], stop - content_of - bounds[content_of], content_of


def _spans(first: np.ndarray, stop: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(first, stop) of the spans that windows make together which overlap or touch; `first` ascends."""
    reach = np.maximum.accumulate(stop)
    apart = first[1:] > reach[:-1]
    return first[np.append(True, apart)[: len(first)]], reach[np.append(apart, True)[: len(first)]]


def _windows(bounds: np.ndarray, n: int) -> np.ndarray:
    """The first units of all windows of `n` that are within bounds[i]:bounds[i + 1]."""
    starts = np.zeros(bounds[-1] + 1, np.int8)
    starts[bounds[:-1]] += 1
    starts[bounds[1:] - n + 1] -= 1
    return np.flatnonzero(np.cumsum(starts[:-1], dtype=np.int8))


def spans_of(spans: CollectedShards, shard: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(row, first, stop) of the duplicated spans of a shard's documents, in their order: int64.

    row: of the selection; first, stop: the document's units. Spans that overlap or touch each other are made one.
    """
    table = spans.read(shard)
    row = table["node"].to_numpy() - (shard << 32)
    first, stop = ((row << _DOCUMENT) + table[name].to_numpy() for name in ("first", "stop"))
    order = np.argsort(first)
    first, stop = _spans(first[order], stop[order])
    inside = (1 << _DOCUMENT) - 1
    return first >> _DOCUMENT, first & inside, stop & inside
