"""Fourth and fifth phase where documents are not compared (`threshold: null`): of each component one document is kept.

    gathered/00000.parquet   by `group`, a hash of the label: doc, id, order_0, ...
    decided/00000.parquet    as `verify` writes it, without similarities

A component is all documents that are connected by shared bands, directly or through others. No text is read.
"""

import numpy as np
import pyarrow as pa

from gristmill.storage import sorted_files
from gristmill.tasks.dedup import exchange
from gristmill.tasks.dedup.exchange import KeyRanges, SortedFiles
from gristmill.tasks.dedup.near.documents import OwnShard
from gristmill.tasks.dedup.near.gather import gathered_files, labelled
from gristmill.tasks.dedup.near.verify import DECIDED, check_ids, decided_files
from gristmill.tasks.dedup.order import KeepOrder
from gristmill.tasks.dedup.order_work import order_names

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
