"""MinHash-LSH as phases over the shards of a corpus: what a flow maps; `tasks.dedup` has the work itself."""

import pyarrow as pa
import pyarrow.compute as pc

from storage import ledger, shards, stages
from storage.schema import SELECTION
from tasks.dedup import clusters, links, signatures
from tasks.dedup.minhash import MinHash
from tasks.selection import select


def sign_shard(folder: str, shard: int, documents: str, kept: str, settings: MinHash) -> dict:
    """Signatures of a selection's documents. Holds one shard's texts and shingle sets."""
    return signatures.sign(select(documents, kept, ["text"]), folder, shard, settings)


def band_shard(folder: str, shard: int, signed: str, settings: MinHash) -> dict:
    return signatures.band(folder, signed, shard, settings)


def link_partition(folder: str, partition: int, signed: str, n_shards: int, settings: MinHash) -> dict:
    return links.link(folder, signed, partition, n_shards, settings)


def cluster_all(folder: str, _: int, signed: str, n_shards: int, settings: MinHash) -> dict:
    return clusters.cluster(folder, signed, n_shards, settings)


def split_shard(folder: str, shard: int, signed: str, kept: str, threshold: float) -> dict:
    """Write the survivors of a shard; the ledger names the representative of each duplicate and their Jaccard."""
    _, dropped = clusters.split(folder, signed, shard)
    rows = len(dropped)
    losses = ledger.from_columns(
        {
            "id": dropped["id"],
            "step": pa.repeat("minhash", rows),
            "rule": pa.repeat("near_duplicate", rows),
            "value": dropped["jaccard"],
            "threshold": pa.repeat(threshold, rows),
            "detail": pc.binary_join_element_wise("cluster of", pc.cast(dropped["cluster_size"], pa.string()), " "),
            "representative": dropped["representative"],
        }
    )
    arriving = shards.read_table(kept, SELECTION.names)
    return stages.write_selection(folder, shard, arriving, [("minhash", losses)])
