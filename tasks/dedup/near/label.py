"""Third phase: connected components of the edges, by one union-find pass in one process; and what is kept of each,
which the last phase writes.

    labels/00000.parquet   by `doc`: doc, label: the documents with an edge, of some shards that follow each other

All documents with which one may be compared have its label: the number of the component, counted by smallest ids. So
labels depend only on the edges, not on the files that have them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import files, ledger, parquet, sorted_files
from gristmill.storage.damage import damaged
from gristmill.storage.schema import DOCUMENTS, SELECTION
from gristmill.tasks.dedup import exchange
from gristmill.tasks.dedup.exchange import CollectedShards, KeyRanges, SortedFiles
from gristmill.tasks.dedup.near.documents import OwnShard, row_of, shard_of, shard_range, signed_rows
from gristmill.tasks.dedup.near.gather import gathered_files, known_documents, labelled
from gristmill.tasks.dedup.near.settings import Verifying
from gristmill.tasks.dedup.near.verify import DECIDED, check_ids, decided_files
from gristmill.tasks.dedup.order import KeepOrder, order_names
from gristmill.tasks.dedup.takedowns import taken_down
from gristmill.tasks.documents.selection import gather
from gristmill.tasks.kernels.duplicates import label, mark, ranks, unite
from gristmill.tasks.url.step import Url

# What `choose_partition` holds for a candidate.
MEMBER_BYTES = 300


def gather_members(
    folder: str, number: int, shard: OwnShard, labels: str, ranges: KeyRanges | None, order: KeepOrder
) -> dict:
    """Write what decides the order of a shard's documents that have a label. `labels`: the file that has theirs;
    `ranges`: see `exchange.write`.

    Held: 200 bytes for each document of the shard.
    """
    members = sorted_files.sorted_by(labelled(shard, labels, order), "group")
    members = members.select(["group", "doc", "id", *order_names(order)])
    exchange.write(gathered_files(folder, number + 1).path(number), members, "group", ranges)
    return {"candidates": len(members)}


def choose_partition(
    folder: str, partition: int, ranges: KeyRanges, gathered: SortedFiles, shards: KeyRanges | None, order: KeepOrder
) -> dict:
    """Keep the first document of each component of a partition of the labels, in keep order, then by id. `shards`: the
    ranges by which the file is read, see `exchange.write`.

    Held: 300 bytes a document. Raises ValueError where two have the same id.
    """
    members = pa.concat_tables(gathered.each(*ranges.bounds(partition)))
    check_ids(members)
    members = members.sort_by([(name, "ascending") for name in ("group", *order_names(order), "id")])
    group = members["group"].to_numpy()
    first = np.flatnonzero(np.append(True, group[1:] != group[:-1])[: len(group)])
    sizes = np.diff(np.append(first, len(group)))
    representative = pa.array(np.repeat(first, sizes))
    decided = pa.table(
        {
            "doc": members["doc"],
            "id": members["id"],
            "kept_doc": members["doc"].take(representative),
            "representative": members["id"].take(representative),
            "jaccard": pa.nulls(len(members), pa.float64()),
            "cluster_size": np.repeat(sizes, sizes),
        },
        DECIDED,
    )
    exchange.write(decided_files(folder, partition + 1).path(partition), decided, "doc", shards)
    largest = int(sizes.max(initial=0))
    return {
        "candidates": len(members),
        "largest_component": largest,
        "comparisons": 0,
        "left_out": 0,
        "clusters": len(first),
        "dropped": len(members) - len(first),
        "largest_cluster": largest,
    }


_MAX_DOCUMENTS = 1 << 32  # documents that a parent of 32 bits can name
_SHARDS = 64  # of a file of labels


@dataclass(frozen=True)
class Shards:
    """The shards of all crawls in the order of the ids of their documents: the `first` id of each, its `rows`, and
    where its bits begin (`begins`, n+1 multiples of 64). All int64."""

    first: np.ndarray
    rows: np.ndarray
    begins: np.ndarray


def shards_of(signatures: tuple[str, ...]) -> Shards:
    """`signatures`: the folders of the stages `signatures` of all crawls, the oldest first."""
    rows = [signed_rows(folder) for folder in signatures]
    first = [shard_range(crawl, shard)[0] for crawl, some in enumerate(rows) for shard in range(len(some))]
    each = np.array([count for some in rows for count in some], np.int64)
    return Shards(np.array(first, np.int64), each, np.append(0, np.cumsum(-(-each // 64) * 64)))


def labels_file(folder: str, number: int) -> str:
    """The file with the labels of a shard, the `number`-th of all crawls."""
    return files.join(folder, "labels", f"{number // _SHARDS:05d}.parquet")


def label_documents(folder: str, _: int, edges: SortedFiles, signatures: tuple[str, ...], memory: int) -> dict:
    """Write the label of each document that has an edge. `signatures`: see `shards_of`.

    Held: 2 bits for each document of all crawls and 4 bytes for each that has an edge; beside these some files of
    edges, or a file of labels, twice. So a crawl of 2.5 billion documents of which 1 billion have an edge needs 4.6 GB,
    one after nine such crawls, of which 3 billion have, 18 GB. Returns how many labels each shard has. Raises
    ValueError, which names `memory`, where the documents need more; DamagedFileError for an edge that is none.
    """
    shards = shards_of(signatures)
    bits = np.zeros(shards.begins[-1] // 64, np.uint64)
    for path, ends in _edges(edges):
        for ids in ends:
            mark(bits, _positions(ids, shards, path))
    before = ranks(bits)
    documents = int(before[-1])
    n_bytes = bits.nbytes + before.nbytes + 4 * documents
    if n_bytes > memory or documents >= _MAX_DOCUMENTS:
        raise ValueError(
            f"labels of {documents:,} documents that share bands need {n_bytes:,} bytes, but `memory` allows "
            f"{memory:,}: set GRISTMILL_MEMORY to {n_bytes} or more, or use bands with more rows, which "
            "fewer documents share"
        )
    parent = np.arange(documents, dtype=np.uint32)
    for path, ends in _edges(edges):
        unite(parent, bits, before, *(_positions(ids, shards, path) for ids in ends))
    components = label(parent)
    counts: list[int] = []
    for number in range(0, len(shards.rows), _SHARDS):
        counts += _write(folder, number, shards, bits, before, parent)
    return {"documents": documents, "components": components, "shards": counts}


def _edges(edges: SortedFiles) -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray]]]:
    """Each file with the documents of its edges."""
    for path, table in zip(edges.paths(), edges.each(*sorted_files.EVERYTHING), strict=True):
        yield path, (table["first"].to_numpy(), table["second"].to_numpy())


def _positions(ids: np.ndarray, shards: Shards, path: str) -> np.ndarray:
    """The bits of documents. Raises DamagedFileError for one that no shard has."""
    shard_index = np.searchsorted(shards.first, ids, side="right") - 1
    wrong = (
        (shard_index < 0)
        | (shard_of(ids) != shard_of(shards.first)[shard_index])
        | (row_of(ids) >= shards.rows[shard_index])
    )
    if wrong.any():
        raise damaged(path, f"has an edge of {ids[wrong.argmax()]}, which is not a document")
    return shards.begins[shard_index] + row_of(ids)


def _write(
    folder: str, number: int, shards: Shards, bits: np.ndarray, before: np.ndarray, parent: np.ndarray
) -> list[int]:
    """Write the file of labels that begins with the shard `number`; returns how many each of its shards has."""
    begins = shards.begins[number : number + _SHARDS + 1]
    first = shards.first[number : number + _SHARDS]
    low, high = begins[0] // 64, begins[-1] // 64
    positions = begins[0] + np.flatnonzero(np.unpackbits(bits[low:high].view(np.uint8), bitorder="little"))
    shard_index = np.searchsorted(begins, positions, side="right") - 1
    labels = parent[before[low] : before[high]].astype(np.int64)
    table = pa.table({"doc": first[shard_index] + positions - begins[shard_index], "label": labels})
    ends = [*first.tolist(), sorted_files.EVERYTHING[1]]
    sorted_files.write(labels_file(folder, number), table, "doc", ends)
    return np.bincount(shard_index, minlength=len(first)).tolist()


# Last phase: the selection and the ledger of a shard, and what is known of its kept documents, for later crawls.
#
# part-00000.parquet, ledger/   the kept documents with their `cluster_size`, and why the others are gone
# kept/00000.parquet            by `doc`: what `gather.known_documents` gives of the kept documents


_NAMED = pa.schema([SELECTION.field("id"), DOCUMENTS.field("url")])


def kept_file(folder: str, shard: int) -> str:
    return files.join(folder, "kept", f"{shard:05d}.parquet")


def split_shard(
    folder: str,
    number: int,
    shard: OwnShard,
    verdicts: CollectedShards,
    takedowns: Url,
    order: KeepOrder,
    verifying: Verifying,
) -> dict:
    """Write the kept documents of a shard, and what is known of them; the ledger names the representative of each
    duplicate. `verdicts`: what was decided on this crawl, by shards.

    Held: the selection, what is known of its documents, and ids and URLs where there are takedowns.
    """
    decided = verdicts.read(shard.shard)
    arriving = parquet.read_table(shard.selection, SELECTION.names)
    losers = decided.filter(pc.not_equal(decided["doc"], decided["kept_doc"]))
    duplicates = ledger.drops(
        "minhash",
        "near_duplicate",
        losers["id"],
        value=losers["jaccard"],
        threshold=verifying.least,
        detail=pc.binary_join_element_wise("cluster of", losers["cluster_size"].cast(pa.string()), " "),
        representative=losers["representative"],
    )
    listed_documents = _NAMED.empty_table()
    if takedowns.takedowns and not shard.exempt:
        listed_documents = gather((shard.documents,), shard.selection, ["url"])
    listed_documents = listed_documents.append_column("detail", taken_down(listed_documents, takedowns))
    listed_documents = listed_documents.filter(pc.is_valid(listed_documents["detail"]))
    listed = ledger.drops("minhash", "takedown", listed_documents["id"], detail=listed_documents["detail"])
    losses = pa.concat_tables([listed, duplicates])

    facts = known_documents(shard, order)
    remaining = facts.filter(pc.invert(pc.is_in(facts["id"], losses["id"].combine_chunks())))
    sorted_files.write(kept_file(folder, number), remaining, "doc")
    indices = pc.index_in(arriving["id"], decided["id"].combine_chunks())
    sizes = pc.fill_null(decided["cluster_size"].take(indices), 1)
    return ledger.write_selection(folder, number, arriving.append_column("cluster_size", sizes), [("minhash", losses)])
