"""Exact duplicates over the whole corpus: documents of the same words, or of the same URL."""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from pydantic import Field

from gristmill.storage import files, ledger, parquet
from gristmill.storage.schema import SELECTION
from gristmill.tasks import kernels
from gristmill.tasks.dedup import exchange, order
from gristmill.tasks.dedup.exchange import CollectedShards, KeyRanges, SortedFiles, partition_bytes
from gristmill.tasks.dedup.order import Criterion, KeepOrder
from gristmill.tasks.documents.selection import gather, select_groups
from gristmill.tasks.documents.step import CorpusStep
from gristmill.tasks.url.canonical import PUBLIC_SUFFIXES, Canonical, canonicalizer

# What a job that chooses holds for a document of its partition.
DOCUMENT_BYTES = 200


class Exact(KeepOrder, CorpusStep):
    """What `content_dedup` and `url_dedup` have in common.

    `column`: what documents are compared by; `rule`: the ledger's name for it.
    """

    step: str
    partitions: int | None = Field(
        None,
        ge=1,
        le=65536,
        description="Number of partitions of the exchange. A worker holds one in memory, about 200 bytes per document "
        "in it. null: chosen so that a partition takes half a gigabyte. Does not change results.",
    )
    column: ClassVar[str]
    rule: ClassVar[str]

    def job_memory(self, documents: int, text_bytes: int) -> Iterator[tuple[int, str]]:
        yield partition_bytes(documents * DOCUMENT_BYTES, self.partitions), "documents of a partition"


class ContentDedup(Exact):
    """Keep one of the documents with the same words in the same order.

    Words are runs of letters, marks and numbers (Unicode's L, M, N), lower-cased; punctuation, symbols, white space and
    lines do not count, and soft hyphens and zero-width marks leave no trace. The digest is that of the words, joined by
    single spaces, as UTF-8. Composed and decomposed forms of a character are unlike: the step `normalize` makes them
    one. A document without a word has nothing to be compared by, and is kept.
    """

    step: Literal["content_dedup"] = "content_dedup"
    column: ClassVar = "text"
    rule: ClassVar = "content"


class UrlDedup(Exact):
    """Keep one of the documents with the same URL: by default the most recently crawled.

    A document without a URL, or whose URL has no canonical form, is kept.

    The address that a page itself calls canonical (`rel=canonical`) does not count. RFC 6596 asks that the same
    content, or more, be found there, and search engines take it as a hint, to be checked against the content
    (Google, "5 common mistakes with rel=canonical", 2013). Of 36 pages of a sample of the web that name another address
    of their own site, nine name one of other content, as the home page. Copies under several addresses are found
    by their content.
    """

    package_data: ClassVar = (PUBLIC_SUFFIXES,)

    step: Literal["url_dedup"] = "url_dedup"
    keep: tuple[Criterion, ...] = Field(("newest",), description=KeepOrder.model_fields["keep"].description)
    canonical: Canonical | None = Field(
        None, description="Form in which URLs are compared; null: as in the recipe's step `url`."
    )
    column: ClassVar = "url"
    rule: ClassVar = "url"


# Exact duplicates as phases over the shards of a corpus, through sorted partition
# files:
#
#     hashes/00000.parquet          by `hash`: hash, low, id, order_0, ..., shard: one row a document
#     dropped/00000.parquet         by `shard`: shard, id, hash, low, representative, size: the rows of a partition
#     verdicts/00000.parquet        the same of a range of shards, until the stage ends
#     part-00000.parquet, ledger/   the kept documents of a shard, and why the others are gone
#
# `hash` and `low` are the halves of an xxh3-128: that unlike documents share one is not to be expected in any corpus.
# Which document of a group is kept depends only on its members, not on shards, partitions or the order of documents.
# A phase holds the texts of a row group, and of the documents of one shard, or one partition, about 200 bytes each.


# What a shard's range holds for a document that is dropped.
DROPPED_BYTES = 300
_BATCH_BYTES = 1 << 20


def hash_shard(
    folder: str,
    number: int,
    shard: int,
    documents: str,
    kept: str,
    signals: tuple[str, ...],
    source: int,
    settings: Exact,
    ranges: KeyRanges | None,
) -> dict:
    """Write the digests of a shard, as the file `number`. `signals`: its parts with the signal `best`; `source`: the
    number of its source; `ranges`: see `exchange.write`.

    Holds the texts, or the URLs, of a row group of the documents.
    """
    ids, digests, compared = [], [_digests(())], [np.empty(0, bool)]
    for group in select_groups(documents, kept, [settings.column]):
        content, has_any = _compared_by(group[settings.column], settings)
        ids += group["id"].chunks
        digests.append(content)
        compared.append(has_any)
    ids = pa.chunked_array(ids, pa.string())
    halves = np.concatenate(digests)

    ordered = gather((*signals, documents), kept, order.columns(settings))
    ordered = ordered.take(pc.index_in(ids, ordered["id"].combine_chunks()))
    ordered = order.keyed(ordered, source, settings)
    columns = {"hash": halves[:, 0], "low": halves[:, 1], "id": ids}
    columns |= {name: ordered[name] for name in order.order_names(settings)}
    columns["shard"] = np.full(len(ids), shard, np.int64)
    rows = pa.table(columns).filter(np.concatenate(compared))
    exchange.write(hashes_files(folder, number + 1).path(number), rows, "hash", ranges)
    return {"documents": len(ids), "compared": len(rows)}


def choose(
    folder: str, partition: int, ranges: KeyRanges, hashes: SortedFiles, shards: KeyRanges | None, settings: Exact
) -> dict:
    """Which documents of a partition of the digests are dropped, and for which other. `shards`: the ranges by which the
    file is read, see `exchange.write`.

    Returns counts: groups of several documents, documents dropped, documents of the largest group.
    """
    rows = pa.concat_tables(hashes.each(*ranges.bounds(partition)))
    high, low = rows["hash"].to_numpy(), rows["low"].to_numpy()
    by_digest = np.lexsort((low, high))
    high, low = high[by_digest], low[by_digest]
    begins = np.append(True, (high[1:] != high[:-1]) | (low[1:] != low[:-1]))[: len(high)]
    group = np.cumsum(begins) - 1
    size = np.bincount(group)[group]
    several = size > 1
    group, size, rows = group[several], size[several], rows.take(by_digest[several])

    rank = np.empty(len(rows), np.int64)
    rank[order.ranking(rows, settings)] = np.arange(len(rows))
    rows = rows.take(np.lexsort((rank, group)))
    kept = np.searchsorted(group, group)  # the row at which each row's group begins
    losses = pa.table(
        {
            **{name: rows[name] for name in ("shard", "id", "hash", "low")},
            "representative": rows["id"].take(kept),
            "size": size,
        }
    ).filter(kept != np.arange(len(rows)))
    exchange.write(dropped_files(folder, partition + 1).path(partition), losses, "shard", shards)
    return {"groups": len(rows) - len(losses), "dropped": len(losses), "largest": int(size.max(initial=0))}


def split_shard(folder: str, shard: int, documents: str, kept: str, verdicts: CollectedShards, settings: Exact) -> dict:
    """Write the kept documents of a shard; the ledger names each duplicate's representative, and what they share.
    `verdicts`: what is dropped, by shards."""
    arriving = parquet.read_table(kept, SELECTION.names)
    verdict_rows = verdicts.read(shard)
    verdict_rows = verdict_rows.take(pc.sort_indices(pc.index_in(verdict_rows["id"], arriving["id"].combine_chunks())))
    shared = zip(verdict_rows["size"].to_pylist(), _shared(documents, verdict_rows, settings), strict=True)
    losses = ledger.drops(
        settings.step,
        settings.rule,
        verdict_rows["id"],
        detail=pa.array([f"group of {size}: {what}" for size, what in shared], pa.string()),
        representative=verdict_rows["representative"],
    )
    return ledger.write_selection(folder, shard, arriving, [(settings.step, losses)])


def _compared_by(values: pa.ChunkedArray, settings: Exact) -> tuple[np.ndarray, np.ndarray]:
    """The halves of each document's digest, uint64 (n, 2), and whether it has anything to be compared by (n).

    Holds a megabyte of words, or the words of one document.
    """
    match settings:
        case ContentDedup():
            digests, compared = [_digests(())], [np.empty(0, bool)]
            for texts in _batches(values):
                data, ends = kernels.words.words_only(*kernels.buffers.utf8(texts))
                digests.append(_digests(data[a:b].data for a, b in pairwise(ends.tolist())))
                compared.append(np.diff(ends) > 0)
            return np.concatenate(digests), np.concatenate(compared)
        case UrlDedup():
            urls = _canonical(values, settings)
            return _digests(url.encode() for url in urls), np.array([url != "" for url in urls], bool)
    raise TypeError(f"{type(settings).__name__} does not name what documents are compared by")


def _shared(documents: str, verdict_rows: pa.Table, settings: Exact) -> list[str]:
    """What each dropped document shares with its group, for the ledger."""
    match settings:
        case ContentDedup():
            halves = zip(verdict_rows["hash"].to_pylist(), verdict_rows["low"].to_pylist(), strict=True)
            return [f"{high:016x}{low:016x}" for high, low in halves]
        case UrlDedup():
            table = parquet.read_table(documents, ["id", "url"])
            return _canonical(
                table["url"].take(pc.index_in(verdict_rows["id"], table["id"].combine_chunks())), settings
            )
    raise TypeError(f"{type(settings).__name__} does not name what documents are compared by")


def _canonical(urls: pa.ChunkedArray, settings: UrlDedup) -> list[str]:
    canonical = canonicalizer(settings.canonical or Canonical())
    return [canonical(url) if url else "" for url in urls.to_pylist()]


def hashes_files(folder: str, count: int) -> SortedFiles:
    return SortedFiles(files.join(folder, "hashes"), count)


def dropped_files(folder: str, partitions: int) -> SortedFiles:
    return SortedFiles(files.join(folder, "dropped"), partitions)


def _batches(texts: pa.ChunkedArray) -> Iterator[pa.Array]:
    """The texts a megabyte at a time, which a processor keeps at hand, or one that is larger."""
    for chunk in texts.chunks:
        _, offsets = kernels.buffers.utf8(chunk)
        begin = 0
        while begin < len(chunk):
            end = int(np.searchsorted(offsets, offsets[begin] + _BATCH_BYTES, side="right")) - 1
            end = max(end, begin + 1)
            yield chunk[begin:end]
            begin = end


def _digests(pieces: Iterable[bytes | memoryview]) -> np.ndarray:
    """The two halves of the xxh3-128 of each piece: uint64, (n, 2)."""
    digests = b"".join(map(xxhash.xxh3_128_digest, pieces))
    return np.frombuffer(digests, ">u8").astype(np.uint64).reshape(-1, 2)
