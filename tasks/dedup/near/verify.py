"""Fifth phase: which candidates are kept, by exact Jaccard similarity of their sets, or by containment.

decided/00000.parquet   by `doc`: DECIDED: all documents of clusters of more than one
refused/00000.parquet   by `doc`: REFUSED: with `verify: containment`, what is kept though it shares a band, and why
"""

import os
import tempfile
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import files
from gristmill.storage.damage import damaged
from gristmill.tasks.dedup import exchange
from gristmill.tasks.dedup.exchange import KeyRanges, SortedFiles
from gristmill.tasks.dedup.near.documents import crawl_of
from gristmill.tasks.dedup.near.gather import distinct
from gristmill.tasks.dedup.near.settings import Banding, Verifying
from gristmill.tasks.dedup.near.sign import unpacked
from gristmill.tasks.dedup.order import KeepOrder, order_names
from gristmill.tasks.kernels.duplicates import REASONS, contained, gram_sets, representatives

DECIDED = pa.schema(
    [
        pa.field("doc", pa.int64(), metadata={"what": "global document id"}),
        pa.field("id", pa.string()),
        pa.field("kept_doc", pa.int64(), metadata={"what": "global id of its representative, its own if it is kept"}),
        pa.field("representative", pa.string(), metadata={"what": "id of that"}),
        pa.field(
            "jaccard",
            pa.float64(),
            metadata={
                "what": "exact similarity to the representative, if compared: Jaccard, or the share of 3-grams it holds"
            },
        ),
        pa.field("cluster_size", pa.int64(), metadata={"what": "the representative and all dropped for it"}),
    ]
)

REFUSED = pa.schema(
    [
        pa.field("doc", pa.int64(), metadata={"what": "global id of a document that is kept"}),
        pa.field("id", pa.string()),
        pa.field("kept_doc", pa.int64(), metadata={"what": "global id of the document that nearly holds it"}),
        pa.field("representative", pa.string(), metadata={"what": "id of that"}),
        pa.field("contained", pa.float64(), metadata={"what": "share of its 3-grams that are there"}),
        pa.field("reason", pa.string(), metadata={"what": "why it is not dropped, of `contained.REASONS`"}),
    ]
)

# Bytes of a row of DECIDED, about: its ids have 32 characters.
DECIDED_BYTES = 150


def candidate_bytes(banding: Banding, shingles: int) -> int:
    """What `verify_partition` holds for a candidate, by the size of its set of shingles."""
    return 700 + 60 * banding.bands + 8 * shingles


def decided_files(folder: str, partitions: int) -> SortedFiles:
    return SortedFiles(files.join(folder, "decided"), partitions)


def verify_partition(
    folder: str,
    partition: int,
    ranges: KeyRanges,
    gathered: SortedFiles,
    shards: KeyRanges | None,
    crawl: int,
    order: KeepOrder,
    verifying: Verifying,
    memory: int,
) -> dict:
    """Decide on the candidates of a partition of the labels; `crawl` is the number of this crawl; `shards`: the ranges
    by which the file is read, see `exchange.write`.

    Held, for containment with the sets twice: 700 bytes a candidate and 60 for each band of a set; the sets of some
    files of candidates; the sets of all, 8 bytes a shingle, in a temporary file where they are more than `memory`.
    All candidates of a component are in one partition, however large it is: the record has the largest.
    """
    low, high = ranges.bounds(partition)
    columns = ["group", "doc", "id", "size", "content", "bands", *order_names(order)]
    containment = verifying.verify == "containment"
    columns += ["key"] if containment else []
    parts = list(gathered.each(low, high, columns))
    candidates = pa.concat_tables(parts)
    check_ids(candidates)
    by_order = _in_order(candidates, order)
    candidates = candidates.take(pa.array(by_order))
    first, set_of = distinct(candidates)
    sets = candidates.take(pa.array(first))
    buckets = _buckets(unpacked(sets["bands"], "<u8"))
    number = np.empty(len(set_of), np.int64)  # of the set of each candidate, as they are in the files
    number[by_order] = set_of
    numbers = np.split(number, np.cumsum([len(part) for part in parts])[:-1])
    sizes = np.where((buckets >= 0).any(axis=1), sets["size"].to_numpy(), 0)
    values, offsets = _sets(gathered, (low, high), numbers, sizes, memory)
    earlier = int((crawl_of(sets["doc"].to_numpy()) < crawl).sum())
    shared = (buckets, int(buckets.max(initial=-1)) + 1, earlier, verifying.least, verifying.comparisons)
    refused: Counter[str] = Counter()
    if containment:
        grams = _room(int(offsets[-1]), memory)
        counts = gram_sets(values, offsets, grams)
        *decision, nearest, share, reason = contained(values, offsets, grams, counts, sets["key"].to_numpy(), *shared)
        kept, similarity, comparisons, left_out = decision
        refusals = _refusals(sets, nearest, share, reason)
        exchange.write(refused_files(folder, partition + 1).path(partition), refusals, "doc", shards)
        refused = Counter(refusals["reason"].to_pylist())
    else:
        kept, similarity, comparisons, left_out = representatives(values, offsets, *shared)
    representative = first[kept[set_of]]
    cluster = np.bincount(representative, minlength=len(candidates))[representative]
    decided = pa.table(
        {
            "doc": candidates["doc"],
            "id": candidates["id"],
            "kept_doc": candidates["doc"].take(pa.array(representative)),
            "representative": candidates["id"].take(pa.array(representative)),
            "jaccard": np.where(kept[set_of] == set_of, 1.0, similarity[set_of]),
            "cluster_size": cluster,
        },
        DECIDED,
    ).filter(pa.array(cluster > 1))
    exchange.write(decided_files(folder, partition + 1).path(partition), decided, "doc", shards)
    is_kept = representative == np.arange(len(candidates))
    return {
        "candidates": len(candidates),
        "largest_component": pc.max(pc.value_counts(candidates["group"]).field("counts")).as_py() or 0,
        "sets": len(sets),
        "comparisons": comparisons,
        "left_out": left_out,
        "refused": dict(refused),
        "clusters": int((is_kept & (cluster > 1)).sum()),
        "dropped": int((~is_kept).sum()),
        "largest_cluster": int(cluster.max(initial=0)),
    }


def refused_files(folder: str, partitions: int) -> SortedFiles:
    return SortedFiles(files.join(folder, "refused"), partitions)


def _refusals(sets: pa.Table, nearest: np.ndarray, share: np.ndarray, reason: np.ndarray) -> pa.Table:
    """Rows of REFUSED, of the sets whose `nearest` refusal is one; see `kernels.duplicates.contained.contained`."""
    rows = np.flatnonzero(nearest >= 0)
    kept = sets.select(["doc", "id"]).take(pa.array(nearest[rows]))
    refused = sets.take(pa.array(rows))
    return pa.table(
        {
            "doc": refused["doc"],
            "id": refused["id"],
            "kept_doc": kept["doc"],
            "representative": kept["id"],
            "contained": share[rows],
            "reason": pa.array([REASONS[r] for r in reason[rows].tolist()], pa.string()),
        },
        REFUSED,
    )


def check_ids(candidates: pa.Table) -> None:
    """Raise ValueError where two candidates of one crawl have the same id."""
    crawl = pa.array(crawl_of(candidates["doc"].to_numpy()))
    counts = candidates.append_column("crawl", crawl).group_by(["crawl", "id"]).aggregate([([], "count_all")])
    twice = counts.filter(pc.greater(counts["count_all"], 1))["id"]
    if len(twice):
        raise ValueError(
            f"two documents of one crawl have the id {pc.min(twice).as_py()!r}: rename their sources, or use "
            "a column that makes their rows distinct (`id_column`)"
        )


def _in_order(candidates: pa.Table, order: KeepOrder) -> np.ndarray:
    """The rows, int64, in keep order: rows of the oldest crawl first."""
    crawl = pa.array(crawl_of(candidates["doc"].to_numpy()))
    keys = [(name, "ascending") for name in ("crawl", *order_names(order), "id")]
    return pc.sort_indices(candidates.append_column("crawl", crawl), sort_keys=keys).to_numpy().astype(np.int64)


def _buckets(bands: np.ndarray) -> np.ndarray:
    """The bucket of each band of each set, int64, (n, bands); -1 where no other set has it."""
    _, bucket, count = np.unique(bands.ravel(), return_inverse=True, return_counts=True)
    shared = count > 1
    return np.where(shared, np.cumsum(shared) - 1, -1)[bucket].reshape(bands.shape)


def _sets(
    gathered: SortedFiles, ends: tuple[int, int], numbers: list[np.ndarray], sizes: np.ndarray, memory: int
) -> tuple[np.ndarray, np.ndarray]:
    """The sets, one after the other, and their n+1 offsets; `numbers`: the set of each candidate, file by file;
    `sizes`: the shingles of each set, 0 of those that are not compared."""
    offsets = np.append(0, np.cumsum(sizes))
    values = _room(int(offsets[-1]), memory)
    missing = sizes > 0
    for table, set_numbers in zip(gathered.each(*ends, ["set"]), numbers, strict=True):
        done = 0
        for chunk in table["set"].chunks:
            here, done = set_numbers[done : done + len(chunk)], done + len(chunk)
            _, bounds, data = chunk.buffers()
            bounds = np.frombuffer(bounds, np.int64)[chunk.offset : chunk.offset + len(chunk) + 1] // 8
            stored = np.frombuffer(data, "<u8", bounds[-1]) if bounds[-1] else values[:0]
            [rows] = np.nonzero(missing[here] & (bounds[1:] > bounds[:-1]))
            copied = zip(offsets[here[rows]].tolist(), bounds[rows].tolist(), sizes[here[rows]].tolist(), strict=True)
            for begin, low, size in copied:
                values[begin : begin + size] = stored[low : low + size]
            missing[here[rows]] = False
    if missing.any():
        raise damaged(gathered.path(0), f"and those beside it lack {int(missing.sum())} sets of shingles")
    return values, offsets


def _room(shingles: int, memory: int) -> np.ndarray:
    """An array for shingles: in memory, or, where that is not allowed, in a file that goes with it."""
    if shingles * 8 <= memory:
        return np.empty(shingles, np.uint64)
    with tempfile.TemporaryFile() as f:
        if hasattr(os, "posix_fallocate"):  # a full disk is an error here, not a signal later
            os.posix_fallocate(f.fileno(), 0, shingles * 8)
        return np.asarray(np.memmap(f, np.uint64, "w+", shape=shingles))
