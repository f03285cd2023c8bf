"""Exact duplicates over the whole corpus: documents of the same words, or of the same URL.

As phases over the shards of a corpus, through sorted runs:

    hashes/run-00000.parquet          by `hash`: hash, low, id, order_0, ..., shard: one row a document
    dropped/partition-00000.parquet   by `shard`: shard, id, hash, low, representative, size
    part-00000.parquet, ledger/       the survivors of a shard, and why the others are gone

`hash` and `low` are the halves of an xxh3-128: that unlike documents share one is not to be expected in any corpus.
Which document of a group survives depends on its members alone, not on shards, partitions or the order of documents.
A phase holds the texts of a row group, and of the documents of one shard, or one partition, about 200 bytes each.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from pydantic import Field

from storage import files, layout, ledger, parquet, sorted_files
from storage.schema import SELECTION
from tasks.dedup import order
from tasks.dedup.order import Criterion, Ordered
from tasks.documents.selection import gather, select_groups
from tasks.documents.step import CorpusStep
from tasks.kernels.buffers import utf8
from tasks.kernels.words import words_only
from tasks.url.canonical import Canonical
from tasks.url.canonical_work import canonicalizer

_BATCH_BYTES = 1 << 20


class Exact(Ordered, CorpusStep):
    """What `content_dedup` and `url_dedup` have in common.

    `column`: what documents are compared by; `rule`: the ledger's name for it.
    """

    step: str
    partitions: int = Field(
        16,
        ge=1,
        le=65536,
        description="pieces of the exchange, of which a worker holds one, about 200 bytes for each of its documents; "
        "no result depends on it",
    )
    column: ClassVar[str]
    rule: ClassVar[str]

    @abstractmethod
    def digests(self, values: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
        """The halves of each document's digest, uint64 (n, 2), and whether it has anything to be compared by (n)."""

    @abstractmethod
    def shared(self, documents: str, dropped: pa.Table) -> list[str]:
        """What each dropped document shares with its group, for the ledger."""


class ContentDedup(Exact):
    """Of documents that consist of the same words, in the same order, one stays.

    Words are runs of letters, marks and numbers (Unicode's L, M, N), lower-cased; punctuation, symbols, white space and
    lines do not count. The digest is that of the words, joined by single spaces, as UTF-8. Composed and decomposed
    forms of a character are unlike: the step `normalize` makes them one. A document without a word has nothing to be
    compared by, and stays.
    """

    step: Literal["content_dedup"] = "content_dedup"
    column: ClassVar = "text"
    rule: ClassVar = "content"

    def digests(self, values: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
        """Of the words, a megabyte of which it holds, or those of one document."""
        digests, compared = [_digests(())], [np.empty(0, bool)]
        for texts in _batches(values):
            data, ends = words_only(*utf8(texts))
            digests.append(_digests(data[a:b] for a, b in pairwise(ends.tolist())))
            compared.append(np.diff(ends) > 0)
        return np.concatenate(digests), np.concatenate(compared)

    def shared(self, documents: str, dropped: pa.Table) -> list[str]:
        halves = zip(dropped["hash"].to_pylist(), dropped["low"].to_pylist(), strict=True)
        return [f"{high:016x}{low:016x}" for high, low in halves]


class UrlDedup(Exact):
    """Of documents that have the same URL one stays, as a rule the one that was crawled last.

    A document without a URL, or whose URL has no canonical form, stays.

    The address that a page itself calls canonical (`rel=canonical`) does not count. RFC 6596 asks that the same
    content, or more, be found there, and search engines take it as a hint, to be checked against the content
    (Google, "5 common mistakes with rel=canonical", 2013). Of 36 pages of a sample of the web that name another address
    of their own site, nine name one of other content, as the home page. Copies under several addresses are found
    by their content.
    """

    step: Literal["url_dedup"] = "url_dedup"
    survivor: tuple[Criterion, ...] = Field(("newest",), description=Ordered.model_fields["survivor"].description)
    canonical: Canonical | None = Field(
        None, description="the form in which URLs are compared; null: that of the recipe's step `url`, or its default"
    )
    column: ClassVar = "url"
    rule: ClassVar = "url"

    def digests(self, values: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
        urls = self._canonical(values)
        return _digests(url.encode() for url in urls), np.array([url != "" for url in urls], bool)

    def shared(self, documents: str, dropped: pa.Table) -> list[str]:
        table = parquet.read_table(documents, ["id", "url"])
        return self._canonical(table["url"].take(pc.index_in(dropped["id"], table["id"].combine_chunks())))

    def _canonical(self, urls: pa.ChunkedArray) -> list[str]:
        canonical = canonicalizer(self.canonical or Canonical())
        return [canonical(url) if url else "" for url in urls.to_pylist()]


def hash_shard(
    folder: str, shard: int, documents: str, kept: str, signals: tuple[str, ...], source: int, settings: Exact
) -> dict:
    """The run of a shard. `signals` are its parts with the signal `best`, `source` is the number of its source.

    Holds the texts, or the URLs, of a row group of the documents.
    """
    ids, digests, compared = [], [_digests(())], [np.empty(0, bool)]
    for group in select_groups(documents, kept, [settings.column]):
        found, has_any = settings.digests(group[settings.column])
        ids += group["id"].chunks
        digests.append(found)
        compared.append(has_any)
    ids = pa.chunked_array(ids, pa.string())
    digests = np.concatenate(digests)

    ordered = gather((*signals, documents), kept, order.columns(settings.survivor, settings.best))
    ordered = ordered.take(pc.index_in(ids, ordered["id"].combine_chunks()))
    ordered = order.keyed(ordered, source, settings.survivor, settings.best)
    columns = {"hash": digests[:, 0], "low": digests[:, 1], "id": ids}
    columns |= {name: ordered[name] for name in order.order_names(settings.survivor)}
    columns["shard"] = np.full(len(ids), shard, np.int64)
    run = pa.table(columns).filter(np.concatenate(compared))
    sorted_files.write(_hashes_run(folder, shard), run, "hash", sorted_files.bounds(settings.partitions))
    return {"documents": len(ids), "compared": len(run)}


def choose(folder: str, partition: int, n_shards: int, settings: Exact) -> dict:
    """Which documents of a partition of the digests are dropped, and for which other.

    Returns counts: groups of several documents, documents dropped, documents of the largest group.
    """
    ends = sorted_files.bounds(settings.partitions)
    paths = [_hashes_run(folder, shard) for shard in range(n_shards)]
    rows = sorted_files.read_all(paths, ends[partition], ends[partition + 1])
    high, low = rows["hash"].to_numpy(), rows["low"].to_numpy()
    by_digest = np.lexsort((low, high))
    high, low = high[by_digest], low[by_digest]
    begins = np.append(True, (high[1:] != high[:-1]) | (low[1:] != low[:-1]))[: len(high)]
    group = np.cumsum(begins) - 1
    size = np.bincount(group)[group]
    several = size > 1
    group, size, rows = group[several], size[several], rows.take(by_digest[several])

    rank = np.empty(len(rows), np.int64)
    rank[order.ranking(rows, settings.survivor)] = np.arange(len(rows))
    rows = rows.take(np.lexsort((rank, group)))
    survivor = np.searchsorted(group, group)  # the row at which each row's group begins
    dropped = pa.table(
        {
            **{name: rows[name] for name in ("shard", "id", "hash", "low")},
            "representative": rows["id"].take(survivor),
            "size": size,
        }
    ).filter(survivor != np.arange(len(rows)))
    sorted_files.write(_dropped_run(folder, partition), dropped, "shard")
    return {"groups": len(rows) - len(dropped), "dropped": len(dropped), "largest": int(size.max(initial=0))}


def split_shard(folder: str, shard: int, documents: str, kept: str, settings: Exact) -> dict:
    """Write the survivors of a shard; the ledger names each duplicate's representative, and what their group shares."""
    arriving = parquet.read_table(kept, SELECTION.names)
    paths = [_dropped_run(folder, partition) for partition in range(settings.partitions)]
    dropped = sorted_files.read_all(paths, shard, shard + 1)
    dropped = dropped.take(pc.sort_indices(pc.index_in(dropped["id"], arriving["id"].combine_chunks())))
    shared = zip(dropped["size"].to_pylist(), settings.shared(documents, dropped), strict=True)
    losses = ledger.from_columns(
        {
            "id": dropped["id"],
            "step": pa.repeat(settings.step, len(dropped)),
            "rule": pa.repeat(settings.rule, len(dropped)),
            "detail": pa.array([f"group of {size}: {what}" for size, what in shared], pa.string()),
            "representative": dropped["representative"],
        }
    )
    return layout.write_selection(folder, shard, arriving, [(settings.step, losses)])


def _hashes_run(folder: str, shard: int) -> str:
    return files.join(folder, "hashes", f"run-{shard:05d}.parquet")


def _dropped_run(folder: str, partition: int) -> str:
    return files.join(folder, "dropped", f"partition-{partition:05d}.parquet")


def _batches(texts: pa.ChunkedArray) -> Iterator[pa.Array]:
    """The texts a megabyte at a time, which a processor keeps at hand, or one that is larger."""
    for chunk in texts.chunks:
        _, offsets = utf8(chunk)
        at = 0
        while at < len(chunk):
            end = int(np.searchsorted(offsets, offsets[at] + _BATCH_BYTES, side="right")) - 1
            end = max(end, at + 1)
            yield chunk[at:end]
            at = end


def _digests(pieces: Iterable[bytes | np.ndarray]) -> np.ndarray:
    """The two halves of the xxh3-128 of each piece: uint64, (n, 2)."""
    digests = b"".join(map(xxhash.xxh3_128_digest, pieces))
    return np.frombuffer(digests, ">u8").astype(np.uint64).reshape(-1, 2)
