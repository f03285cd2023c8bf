"""Fourth and fifth phase where documents are not compared (`threshold: null`): of each component one document is kept.

    gathered/00000.parquet   by `group`, a hash of the label: doc, id, order_0, ...
    decided/00000.parquet    as `verify` writes it, without similarities

A component is all documents that are connected by shared bands, directly or through others. No text is read.
"""

import numpy as np
import pyarrow as pa

from gristmill.storage import sorted_files
from gristmill.tasks.dedup.near.documents import OwnShard
from gristmill.tasks.dedup.near.gather import gathered_file, labelled
from gristmill.tasks.dedup.near.verify import DECIDED, check_ids, decided_file
from gristmill.tasks.dedup.order import KeepOrder
from gristmill.tasks.dedup.order_work import order_names


def gather_members(folder: str, number: int, shard: OwnShard, labels: str, partitions: int, order: KeepOrder) -> dict:
    """Write what decides the order of a shard's documents that have a label. `labels`: the file that has theirs.

    Held: 200 bytes for each document of the shard.
    """
    members = sorted_files.sorted_by(labelled(shard, labels, order), "group")
    members = members.select(["group", "doc", "id", *order_names(order)])
    sorted_files.write(gathered_file(folder, number), members, "group", sorted_files.bounds(partitions))
    return {"candidates": len(members)}


def choose_partition(folder: str, partition: int, partitions: int, gathered: list[str], order: KeepOrder) -> dict:
    """Keep the first document of each component of a partition of the labels, in keep order, then by id.

    Held: 300 bytes a document. Raises ValueError where two have the same id.
    """
    low, high = sorted_files.bounds(partitions)[partition : partition + 2]
    members = pa.concat_tables([sorted_files.read(path, low, high) for path in gathered])
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
    sorted_files.write(decided_file(folder, partition), decided, "doc")
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
