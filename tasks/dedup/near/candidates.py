"""Who may be a near-duplicate of whom, by MinHash-LSH over the whole corpus, as phases over shards and partitions.

    signatures   every shard: sets of shingles, their signatures
    candidates   every shard: `bands`, a sorted run of band hashes
                 every partition of hashes: `index`, all of them merged; of the buckets with more than one document
                 the `members`, and `edges` between them
                 `labels`: connected components of the edges (`tasks.dedup.near.components`), so that all whom a
                 document may be compared with have one label

Who survives is decided in `tasks.dedup.near.phases`. An exchange is one file a writer, sorted, of which a reader takes
its range (`storage.sorted_files`). What is held is said with each phase; nothing grows with the corpus but
the band hashes of one partition, fewer of them the more there are.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise, zip_longest

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage import files, layout, parquet, sorted_files
from tasks.dedup import order
from tasks.dedup.near.nodes import node, row_of, segment_of, shard_of, shard_range
from tasks.dedup.near.settings import MinHash
from tasks.dedup.near.signatures import SIGNED, band_hashes, by_this_code, signed
from tasks.dedup.takedowns import taken_down
from tasks.documents.rows import read_each, read_rows
from tasks.documents.selection import gather
from tasks.kernels.shingles import STEP
from tasks.url.step import Url

# Characters of texts, and bytes of signatures, of the documents that are signed at once.
_SIGNED = 1 << 24
# Band hashes of a partition, and edges of a partition of the labels, about: small crawls have fewer partitions.
_BANDS, _EDGES = 1 << 18, 1 << 17
# Rows of a row group of members, of which each shard asks for a few.
_MEMBERS = 1 << 13
# The disk is told of so many indexes before they are looked through: of more, workers wait for what others asked for.
_AHEAD = 1


@dataclass(frozen=True)
class Place:
    """Where a shard's documents lie, and what is known of them; of an earlier crawl's shard, of its survivors."""

    segment: int
    shard: int
    documents: str
    signatures: str
    known: str


def sign_shard(folder: str, shard: int, documents: str, kept: str, settings: MinHash) -> dict:
    """Signatures of a selection's documents. Holds the ids of the shard; texts, sets and signatures of `_SIGNED`."""
    wanted = parquet.read_table(kept, ["id"])["id"].combine_chunks()
    table = parquet.read_table(documents, ["id", "characters"])
    rows = np.flatnonzero(pc.is_in(table["id"], wanted))
    if len(rows) != len(wanted):
        raise LookupError(f"{kept} names {len(wanted)} documents, {documents} holds {len(rows)} of them")
    table = table.take(rows).append_column("at", pa.array(rows))
    held = np.cumsum(table["characters"].to_numpy() + 4 * settings.permutations)
    ends = np.flatnonzero(np.diff(held // _SIGNED, append=-1)) + 1
    pieces = list(pairwise([0, *ends.tolist()]))
    texts = read_each(((documents, rows[begin:end]) for begin, end in pieces), ["text"])
    schema = SIGNED.append(pa.field("signature", pa.binary(4 * settings.permutations), nullable=False))
    shingles = 0
    with parquet.create(layout.part(folder, shard), schema) as out:
        for (begin, end), text in zip(pieces, texts, strict=True):
            found = signed(table[begin:end].append_column("text", text["text"]), settings)
            out.write_table(found.cast(schema))
            shingles += pc.sum(found["size"]).as_py() or 0
    return {"documents": len(rows), "shingles": shingles}


def band_partitions(documents: int, settings: MinHash) -> int:
    """Into how many partitions the band hashes of so many documents are dealt out."""
    return min(settings.partitions, 1 + documents * settings.bands // _BANDS)


def bands_run(folder: str, shard: int) -> str:
    return files.join(folder, "bands", f"run-{shard:05d}.parquet")


def band_shard(folder: str, shard: int, signatures: str, settings: MinHash) -> dict:
    """The run of a shard's band hashes; documents without a word have none.

    Held: 4 bytes a permutation and about 50 bytes a band for each document.
    """
    table = parquet.read_table(signatures, ["size", "signature"])
    rows = np.flatnonzero(table["size"].to_numpy()).astype(np.int32)
    hashes = band_hashes(table["signature"], settings)[rows].ravel()
    run = pa.table({"hash": hashes, "row": np.repeat(rows, settings.bands)})
    sorted_files.write(bands_run(folder, shard), run, "hash", sorted_files.bounds(settings.partitions))
    return {"bands": len(run)}


def index_run(folder: str, partition: int) -> str:
    return files.join(folder, "index", f"partition-{partition:05d}.parquet")


def found_again(places: list[Place], index: Callable[[int, int], list[str]], settings: MinHash) -> bool:
    """Whether an earlier crawl's first document with a word, signed again, gives what is stored of it, and its first
    band is in the index: else hashes were others then, and nobody would be met. `index` gives the runs that have hashes
    from the first of two numbers up to the second."""
    if not by_this_code([place.signatures for place in places], [place.documents for place in places], settings):
        return False
    for place in places:
        [rows] = np.nonzero(parquet.read_table(place.signatures, ["size"])["size"].to_numpy())
        if len(rows):
            hashes = band_hashes(read_rows(place.signatures, rows[:1], ["signature"])["signature"], settings)
            first = int(hashes[0, 0])
            met = [sorted_files.find(run, hashes[0, :1])["node"].to_numpy() for run in index(first, first + 1)]
            return bool((np.concatenate(met) == node(place.segment, place.shard, rows[:1])).any())
    return True


def edges_run(folder: str, partition: int) -> str:
    return files.join(folder, "edges", f"partition-{partition:05d}.parquet")


def members_run(folder: str, partition: int) -> str:
    return files.join(folder, "members", f"partition-{partition:05d}.parquet")


def match_partition(
    folder: str, partition: int, own: int, parts: list[int], settings: MinHash, indexes: list[str]
) -> dict:
    """The buckets of a partition of the hashes that have more than one document: their members, and each of these tied
    to the first.

    `own` is the number of this crawl's segment, `parts` are its shards; `indexes` are runs of those before, of which
    the row groups alone are read that can have a hash of ours. Held: about 90 bytes a band row of the partition and 110
    for each match in an index, and some of its row groups.
    """
    ends = sorted_files.bounds(settings.partitions)
    low, high = ends[partition], ends[partition + 1]
    hashes, nodes = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
    for shard in parts:
        run = sorted_files.read(bands_run(folder, shard), low, high)
        hashes.append(run["hash"].to_numpy())
        nodes.append(node(own, shard, run["row"].to_numpy()))
    for index in indexes[:_AHEAD]:
        sorted_files.readahead(index, hashes[-1])  # of one shard, which are in order
    hashes, nodes = np.concatenate(hashes), np.concatenate(nodes)
    by_hash = sorted_files.order(hashes)
    hashes, nodes = hashes[by_hash], nodes[by_hash]
    del by_hash
    sorted_files.write(index_run(folder, partition), pa.table({"hash": hashes, "node": nodes}), "hash")

    first = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)])
    size = np.diff(np.append(first, len(hashes)))
    leader = np.repeat(nodes[first], size)
    others = leader != nodes
    edges = [np.stack([leader[others], nodes[others]])]
    buckets, leader = hashes[first], nodes[first]
    shared, earlier = size > 1, []
    for index, later in zip_longest(indexes, indexes[_AHEAD:]):
        if later:
            sorted_files.readahead(later, buckets)
        known = sorted_files.find(index, buckets)
        bucket = np.searchsorted(buckets, known["hash"].to_numpy())
        shared[bucket] = True
        edges.append(np.stack([known["node"].to_numpy(), leader[bucket]]))
        earlier.append(known.select(["node", "hash"]))
    del leader, others, buckets
    n_edges = _write_edges(edges_run(folder, partition), edges)
    among = np.repeat(shared, size)
    members = pa.concat_tables([*earlier, pa.table({"node": nodes[among], "hash": hashes[among]})])
    del hashes, nodes, earlier
    sorted_files.write(members_run(folder, partition), members, "node", row_group=_MEMBERS)
    return {"buckets": int((size > 1).sum()), "largest": int(size.max(initial=0)), "edges": n_edges}


def _write_edges(path: str, edges: list[np.ndarray]) -> int:
    """Write each edge, (2, n) of its nodes, once; returns how many there are. Empties the list."""
    one, other = np.concatenate(edges, axis=1)
    edges.clear()
    by_edge = np.lexsort((other, one))
    one, other = one[by_edge], other[by_edge]
    fresh = np.append(True, (one[1:] != one[:-1]) | (other[1:] != other[:-1]))[: len(one)]
    sorted_files.write(path, pa.table({"first": one[fresh], "second": other[fresh]}), "first")
    return int(fresh.sum())


def label_partitions(edges: int, settings: MinHash) -> int:
    """Into how many partitions the labels are dealt out: two at least, if so many are allowed, for two workers."""
    return min(settings.partitions, 2 + edges // _EDGES)


def of_places(places: list[Place], paths: list[str], columns: list[str] | None = None) -> Iterator[pa.Table]:
    """The rows of some runs by node for each of the shards, which follow each other, in order. Holds those of all."""
    low, _ = shard_range(places[0].segment, places[0].shard)
    _, high = shard_range(places[-1].segment, places[-1].shard)
    rows = sorted_files.sorted_by(sorted_files.read_all(paths, low, high, columns), "node")
    shard = shard_of(rows["node"].to_numpy())
    for place in places:
        here = shard_of(node(place.segment, place.shard, np.zeros(1, np.int64)))
        [first], [last] = (np.searchsorted(shard, here, side) for side in ("left", "right"))
        yield rows[first:last]


def shared_bands(candidates: pa.Table, members: pa.Table) -> pa.LargeListArray:
    """Of each candidate of a shard the hashes of the bands that it shares with others, uint64, by rows of the runs of
    members. Raises SortedFileError where it has none."""
    nodes, of = candidates["node"].to_numpy(), members["node"].to_numpy()
    at = np.searchsorted(nodes, of)
    there = np.append(nodes, -1)[at] == of
    count = np.bincount(at[there], minlength=len(nodes))
    if not count.all():
        raise sorted_files.SortedFileError(
            f"the document {candidates['id'][int(count.argmin())]} has a label, but is in no bucket"
        )
    hashes = members["hash"].to_numpy()[there]
    return pa.LargeListArray.from_arrays(np.append(0, np.cumsum(count)), hashes)


def know_shard(
    folder: str,
    shard: int,
    place: Place,
    kept: str,
    signals: tuple[str, ...],
    source: int,
    takedowns: Url,
    settings: MinHash,
) -> dict:
    """What is asked of candidates, as one run: of each document of a shard that has a word and is not taken down
    `node`, `id`, `at`, `size` and `content` as in `SIGNED`, and what `order.keyed` adds.

    `signals` hold what documents are ordered by; `source` is the number of their source. Held: 200 bytes a document.
    """
    facts = parquet.read_table(place.signatures, ["id", "at", "size", "content"])
    facts = facts.append_column("node", pa.array(node(place.segment, place.shard, np.arange(len(facts)))))
    facts = facts.filter(pc.greater(facts["size"], 0))
    columns = [*(["url"] if takedowns.takedowns else []), *order.columns(settings.survivor, settings.best)]
    named = gather((*signals, place.documents, kept), kept, columns)
    at = pc.index_in(facts["id"], named["id"].combine_chunks())
    if at.null_count:
        raise LookupError(f"{place.signatures} has {at.null_count} documents that {kept} does not name")
    named = named.take(at)
    keyed = order.keyed(named, source, settings.survivor, settings.best)
    for name in order.order_names(settings.survivor):
        facts = facts.append_column(name, keyed[name])
    known = facts.filter(pc.is_null(taken_down(named, takedowns)))
    sorted_files.write(place.known, known, "node")
    return {"known": len(known)}


def candidates_of(place: Place, label: pa.Table, takedowns: Url) -> pa.Table:
    """Of the documents of a shard in `label` those that are known and not taken down: what `know_shard` says of them,
    and their `label`.

    Held: 200 bytes for each document that is known, 300 for each candidate; ids and URLs where there are takedowns.
    """
    nodes = label["node"].to_numpy()
    known = sorted_files.read(place.known, *((nodes[0], nodes[-1] + 1) if len(nodes) else (0, 0)))
    there = known["node"].to_numpy()
    at = np.searchsorted(there, nodes)
    met = np.append(there, -1)[at] == nodes
    candidates = known.take(at[met]).append_column("label", label["label"].filter(pa.array(met)))
    if not takedowns.takedowns:
        return candidates
    named = read_rows(place.documents, candidates["at"].to_numpy(), ["id", "url"])
    if not named["id"].equals(candidates["id"]):
        raise LookupError(f"{place.documents} does not hold, row by row, the documents of {place.signatures}")
    return candidates.filter(pc.is_null(taken_down(named, takedowns)))


def bands_of(place: Place, candidates: pa.Table, settings: MinHash) -> np.ndarray:
    """The band hashes of candidates of a shard, uint64, (n, bands). Holds their signatures."""
    rows = row_of(candidates["node"].to_numpy())
    return band_hashes(read_rows(place.signatures, rows, ["signature"])["signature"], settings)


def in_order(candidates: pa.Table, settings: MinHash) -> pa.Table:
    """Candidates (columns `node`, `id`, and what orders them) of any shards, the first to survive first."""
    segment = pa.array(segment_of(candidates["node"].to_numpy()))
    keys = [(name, "ascending") for name in ("segment", *order.order_names(settings.survivor), "id")]
    return candidates.take(pc.sort_indices(candidates.append_column("segment", segment), sort_keys=keys))


def distinct(candidates: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """The first row of each set of shingles, ascending, and for each row the number of its set in these."""
    # as one number; unlike sets share it as seldom as the hash
    keys = candidates["content"].to_numpy() + candidates["size"].to_numpy().view(np.uint64) * STEP
    _, first, numbers = np.unique(keys, return_index=True, return_inverse=True)
    by_row = np.argsort(first)
    place = np.empty(len(first), np.int64)
    place[by_row] = np.arange(len(first))
    return first[by_row], place[numbers]
