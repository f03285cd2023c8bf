"""First phases: the signatures of a shard's documents, the hashes of their bands, and the documents that share one.

part-00000.parquet     one row a document: SIGNED and `signature`
bands/00000.parquet    by `hash`: hash, doc: the hash of each band of each document that has a word

`doc` is the global id as of crawl 0: how many crawls come before, the signatures do not know.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import files, layout, parquet, sorted_files
from gristmill.tasks.dedup import exchange
from gristmill.tasks.dedup.exchange import KeyRanges, SortedFiles
from gristmill.tasks.dedup.near.documents import SHARDS, EarlierShard, document_ids, shard_of
from gristmill.tasks.dedup.near.settings import Banding, Shingling
from gristmill.tasks.documents.selection import read_rows
from gristmill.tasks.kernels import minhash, shingles
from gristmill.tasks.kernels.buffers import utf8

_SIGNED_AGAIN = 1_000  # documents of an earlier stage

SIGNED = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("at", pa.int64(), metadata={"what": "row of the documents' shard"}),
        pa.field("size", pa.int64(), metadata={"what": "shingles of the set"}),
        pa.field("content", pa.uint64(), metadata={"what": "hash of the set; equal sets have equal size and content"}),
        pa.field("holdout", pa.uint64(), metadata={"what": "minimum of the set under a permutation of no band"}),
        # pa.field("signature", fixed_size_binary of `permutations` uint32 values, little-endian)
    ]
)


def sign_shard(
    folder: str,
    shard: int,
    documents: str,
    kept: str,
    shingling: Shingling,
    banding: Banding,
    ranges: KeyRanges | None,
    exempt: bool = False,
) -> dict:
    """Write the signatures of a selection's documents, and their band hashes. `ranges`: see `exchange.write`; `exempt`:
    whether none are signed, since the step does not apply to their source.

    Held: the ids of the shard, the texts and signatures of a row group, about 50 bytes for each band of a document.
    """
    kept_ids = pa.array([], pa.string()) if exempt else parquet.read_table(kept, ["id"])["id"].combine_chunks()
    schema = SIGNED.append(pa.field("signature", pa.binary(4 * shingling.permutations), nullable=False))
    hashes, rows = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
    before, signed_rows, set_sizes = 0, 0, 0
    with parquet.create(layout.part(folder, shard), schema) as out:
        for group in () if exempt else parquet.groups(documents, ["id", "text"]):
            kept_rows = np.flatnonzero(pc.is_in(group["id"], kept_ids))
            arriving = group if len(kept_rows) == len(group) else group.take(pa.array(kept_rows))
            signatures = signed(arriving.append_column("at", pa.array(before + kept_rows)), shingling)
            out.write_table(signatures.cast(schema))
            worded = np.flatnonzero(signatures["size"].to_numpy())
            hashes.append(band_hashes(signatures["signature"], banding)[worded].ravel())
            rows.append(np.repeat(signed_rows + worded, banding.bands))
            before, signed_rows = before + len(group), signed_rows + len(signatures)
            set_sizes += pc.sum(signatures["size"]).as_py() or 0
    if signed_rows != len(kept_ids):
        raise LookupError(f"{kept} names {len(kept_ids)} documents, {documents} holds {signed_rows} of them")
    docs = document_ids(0, shard, np.concatenate(rows))
    bands = pa.table({"hash": np.concatenate(hashes), "doc": docs})
    exchange.write(bands_files(folder, shard + 1).path(shard), bands, "hash", ranges)
    return {"documents": signed_rows, "shingles": set_sizes}


def bands_files(folder: str, shards: int) -> SortedFiles:
    return SortedFiles(files.join(folder, "bands"), shards)


def signed(documents: pa.Table, shingling: Shingling) -> pa.Table:
    """The rows of SIGNED and `signature` for documents (columns `id`, `at`, `text`), in their order.

    Held, beside the documents: 4 bytes a permutation and 30 a document, and the shingles of the longest.
    """
    result = minhash.signed(
        *utf8(documents["text"]), shingling.shingle, shingling.unit, shingling.permutations, shingling.seed
    )
    return pa.table(
        {
            "id": documents["id"].cast(pa.string()),
            "at": documents["at"],
            "size": pa.array(result.size),
            "content": pa.array(result.content),
            "holdout": pa.array(result.holdout),
            "signature": packed(result.signature.astype("<u4", copy=False)),
        }
    )


def shingle_sets(texts: pa.ChunkedArray, shingling: Shingling) -> tuple[np.ndarray, np.ndarray]:
    """Sorted sets of shingle hashes, uint64, one after the other, and their n+1 offsets."""
    return shingles.SHINGLES[shingling.unit](*utf8(texts), shingling.shingle)


def band_hashes(signature: pa.ChunkedArray, banding: Banding) -> np.ndarray:
    """uint64, (n, bands): two documents share a band if a hash of theirs in one column is equal."""
    return minhash.band_hashes(unpacked(signature, "<u4"), banding.bands, banding.rows)


def packed(rows: np.ndarray) -> pa.FixedSizeBinaryArray:
    """The rows of a two-dimensional array, each as one binary."""
    width = rows.shape[1] * rows.itemsize
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(rows), [None, pa.py_buffer(rows)])


def unpacked(column: pa.ChunkedArray, kind: str) -> np.ndarray:
    """(n, values a row) of a column of fixed-size binaries that hold numbers of this numpy type."""
    array = column.combine_chunks()
    width = array.type.byte_width
    raw = np.frombuffer(array.buffers()[1], np.uint8) if len(array) else np.empty(0, np.uint8)
    each = np.dtype(kind).itemsize
    return raw[array.offset * width : (array.offset + len(array)) * width].view(kind).reshape(-1, width // each)


def by_this_code(signatures: Sequence[str], documents: Sequence[str], shingling: Shingling) -> bool:
    """Whether the first documents with a word, signed again, give what is stored of them in a stage's parts.

    Otherwise the hashes were computed differently, and no document would be similar to them. Many are signed, since a
    change may affect only one script. Held: `_SIGNED_AGAIN` documents, or the documents of a row group.
    """
    for signed_part, part in zip(signatures, documents, strict=True):
        [rows] = np.nonzero(parquet.read_table(signed_part, ["size"])["size"].to_numpy())
        if len(rows):
            facts = ["size", "content", "signature"]
            stored = read_rows(signed_part, rows[:_SIGNED_AGAIN], ["id", "at", *facts])
            positions = stored["at"].to_numpy()
            if positions[-1] >= parquet.rows(part):
                return False
            text = read_rows(part, positions, ["text"])["text"]
            again = signed(stored.select(["id", "at"]).append_column("text", text), shingling)
            return again.select(facts).cast(stored.select(facts).schema).equals(stored.select(facts))
    return True


# Second phase: of a range of the band hashes an index for later crawls, and edges between documents that share one.
#
# index/00000.parquet    by `hash`: hash, doc: all band hashes of this crawl in the range
# edges/00000.parquet    by `first`: first, second: two documents, the smaller id first; each edge once


@dataclass(frozen=True)
class Index:
    """The band hashes of an earlier crawl: the folder of its stage `candidates`, and its partitions of the hashes."""

    folder: str
    partitions: int

    def having(self, low: int, high: int) -> list[str]:
        """The files that have hashes from `low` up to `high`."""
        ends = enumerate(pairwise(KeyRanges(self.partitions).ends()))
        return [index_file(self.folder, p) for p, (begin, end) in ends if begin < high and end > low]


def index_file(folder: str, partition: int) -> str:
    return files.join(folder, "index", f"{partition:05d}.parquet")


def edges_files(folder: str, partitions: int) -> SortedFiles:
    return SortedFiles(files.join(folder, "edges"), partitions)


def match_partition(
    folder: str,
    partition: int,
    ranges: KeyRanges,
    crawl: int,
    bands: SortedFiles,
    earlier: tuple[Index, ...],
    groups: tuple[int, ...] = (),
) -> dict:
    """Write the index of a partition of the hashes, and an edge from the first document of each bucket to each other.

    `bands`: the band hashes of this crawl, `crawl` its number; `groups`: first shards of groups of shards, if a bucket
    holds documents of one group. Held: about 90 bytes a band hash of the partition, 60 for each match in an index, and
    some row groups of an index.
    """
    low, high = ranges.bounds(partition)
    parts = list(bands.each(low, high))
    hashes = np.concatenate([np.empty(0, np.uint64), *(part["hash"].to_numpy() for part in parts)])
    docs = np.concatenate([np.empty(0, np.int64), *(part["doc"].to_numpy() for part in parts)])
    docs = document_ids(crawl, 0, docs)  # which are of crawl 0
    del parts
    by_hash = sorted_files.order(hashes)
    hashes, docs = hashes[by_hash], docs[by_hash]
    del by_hash
    sorted_files.write(index_file(folder, partition), pa.table({"hash": hashes, "doc": docs}), "hash")

    begins_bucket = np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)]
    if groups:  # documents of equal hashes are in the order of their shards
        group = np.searchsorted(np.array(groups), shard_of(docs) - crawl * SHARDS, side="right")
        begins_bucket[1:] |= group[1:] != group[:-1]
    begins = np.flatnonzero(begins_bucket)
    size = np.diff(np.append(begins, len(hashes)))
    buckets, firsts = hashes[begins], docs[begins]
    first_doc = np.repeat(firsts, size)
    others = first_doc != docs
    edges = [np.stack([first_doc[others], docs[others]])]
    del first_doc, others, hashes, docs
    for index in (path for crawl_before in earlier for path in crawl_before.having(low, high)):
        matches = sorted_files.find(index, buckets)
        first_doc = firsts[np.searchsorted(buckets, matches["hash"].to_numpy())]
        edges.append(np.stack([matches["doc"].to_numpy(), first_doc]))
    count = _write_edges(edges_files(folder, partition + 1).path(partition), edges)
    return {"buckets": int((size > 1).sum()), "largest": int(size.max(initial=0)), "edges": count}


def _write_edges(path: str, edges: list[np.ndarray]) -> int:
    """Write each edge, (2, n) of its documents, once; returns how many there are. Empties the list."""
    first, second = np.concatenate(edges, axis=1)
    edges.clear()
    by_edge = np.lexsort((second, first))
    first, second = first[by_edge], second[by_edge]
    fresh = np.append(True, (first[1:] != first[:-1]) | (second[1:] != second[:-1]))[: len(first)]
    sorted_files.write(path, pa.table({"first": first[fresh], "second": second[fresh]}), "first")
    return int(fresh.sum())


def found_again(shards: list[EarlierShard], index: Index, shingling: Shingling, banding: Banding) -> bool:
    """Whether an earlier crawl's first documents with a word, signed again, give what is stored of them, and the first
    band of the first is in the index: else hashes were others then, and no document of that crawl would be found."""
    if not by_this_code([shard.signatures for shard in shards], [shard.documents for shard in shards], shingling):
        return False
    for shard in shards:
        [rows] = np.nonzero(parquet.read_table(shard.signatures, ["size"])["size"].to_numpy())
        if len(rows):
            signature = read_rows(shard.signatures, rows[:1], ["signature"])["signature"]
            first = band_hashes(signature, banding)[0, :1]
            doc = document_ids(shard.crawl, shard.shard, rows[:1])
            paths = index.having(int(first[0]), int(first[0]) + 1)
            return any((sorted_files.find(path, first)["doc"].to_numpy() == doc).any() for path in paths)
    return True
