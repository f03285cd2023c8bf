"""Stage three: clusters of linked documents, which one survives, and how similar the others are to it."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from storage import files, shards
from tasks.dedup.links import link_path
from tasks.dedup.minhash import MinHash
from tasks.dedup.signatures import gather, node, sets, signature_path
from tasks.kernels.jaccard import similarities

CLUSTERED = pa.schema(
    [
        pa.field("row", pa.int32()),
        pa.field("id", pa.string()),
        pa.field("representative", pa.string()),
        pa.field("jaccard", pa.float64()),
        pa.field("cluster_size", pa.int64()),
    ]
)


def cluster_path(folder: str, shard: int) -> str:
    return files.join(folder, "clusters", f"part-{shard:05d}.parquet")


def cluster(folder: str, signed: str, n_shards: int, settings: MinHash, held: int = 1 << 30) -> dict[str, int]:
    """Write, for every shard, its documents that are in a cluster:

    `row`; `id`; `representative`, the id of the document that survives (its own if it is the one); `jaccard`,
    similarity with that document, exact, which can be below the threshold where a chain of links leads there;
    `cluster_size`, documents of the cluster.

    Returns counts: clusters, dropped documents, the size of the largest cluster, and dropped documents whose
    similarity with their representative is below the threshold. Held: about 150 bytes and an id for each
    linked document, `held` bytes of representatives' shingle sets, and the shingles of one shard; shards are
    read twice for each `held` bytes. Raises ValueError if two linked documents have the same id.
    """
    # imported here: it takes a third of a second, and most processes cluster nothing
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    links = pa.concat_tables([shards.read_table(link_path(folder, p)) for p in range(settings.partitions)])
    ends = [
        node(links[f"{end}shard"].to_numpy(), links[f"{end}row"].to_numpy()).reshape(1, -1) for end in ("", "other_")
    ]
    nodes, place = np.unique(np.concatenate(ends), return_inverse=True)
    if not len(nodes):
        for shard in range(n_shards):
            shards.write_table(cluster_path(folder, shard), CLUSTERED.empty_table())
        return {"clusters": 0, "dropped": 0, "largest": 0, "below_threshold": 0}
    place = place.reshape(2, -1)
    graph = coo_array((np.ones(place.shape[1], bool), (place[0], place[1])), shape=(len(nodes), len(nodes)))
    n_clusters, label = connected_components(graph, directed=False)

    facts = gather(signed, nodes, ["id", "length", "size", "content"])
    survivor = _survivors(facts, label, settings)[label]
    jaccard = _similarity(signed, nodes, facts, survivor, held)
    size = np.bincount(label)
    table = pa.table(
        {
            "row": (nodes & 0xFFFFFFFF).astype(np.int32),
            "id": facts["id"],
            "representative": facts["id"].take(pa.array(survivor)),
            "jaccard": jaccard,
            "cluster_size": size[label],
        },
        schema=CLUSTERED,
    )
    bounds = np.searchsorted(nodes >> 32, np.arange(n_shards + 1))
    for shard in range(n_shards):
        shards.write_table(cluster_path(folder, shard), table[bounds[shard] : bounds[shard + 1]])
    return {
        "clusters": int(n_clusters),
        "dropped": len(nodes) - int(n_clusters),
        "largest": int(size.max()),
        "below_threshold": int(np.count_nonzero(jaccard < settings.threshold)),
    }


def split(folder: str, signed: str, shard: int) -> tuple[pa.Table, pa.Table]:
    """The shard's documents that stay (`id`, `cluster_size`) and that go (`id`, `representative`, `jaccard`,
    `cluster_size`), in the order of its signatures. Every document that was signed is in one of the two.
    """
    ids = shards.read_table(signature_path(signed, shard), ["id"])["id"]
    clustered = shards.read_table(cluster_path(folder, shard), ["id", "representative", "jaccard", "cluster_size"])
    dropped = clustered.filter(pc.not_equal(clustered["id"], clustered["representative"]))
    staying = ids.filter(pc.invert(pc.is_in(ids, value_set=dropped["id"])))
    found = pc.index_in(staying, value_set=clustered["id"])
    sizes = pc.fill_null(clustered["cluster_size"].take(found), 1)
    return pa.table({"id": staying, "cluster_size": sizes}), dropped


def _survivors(facts: pa.Table, label: np.ndarray, settings: MinHash) -> np.ndarray:
    """For each label, the place in `facts` of the document that survives."""
    ids = facts["id"].combine_chunks()
    order = pc.sort_indices(ids).to_numpy()
    by_id = ids.take(pa.array(order))
    same = pc.equal(by_id[1:], by_id[:-1])
    if pc.any(same).as_py():
        twice = by_id[1:].filter(same)[0].as_py()
        raise ValueError(f"two documents have the id {twice!r}; ids must be unique over all shards")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    longest = -facts["length"].to_numpy() if settings.survivor == "longest" else np.zeros_like(rank)
    order = np.lexsort((rank, longest, label))
    return order[np.searchsorted(label[order], np.arange(label.max() + 1))]


def _similarity(signed: str, nodes: np.ndarray, facts: pa.Table, survivor: np.ndarray, held: int) -> np.ndarray:
    """Jaccard similarity of each document with its survivor; equal sets are not read."""
    content, size = facts["content"].to_numpy(), facts["size"].to_numpy()
    jaccard = np.ones(len(nodes))
    unlike = np.flatnonzero((content != content[survivor]) | (size != size[survivor]))
    compared = np.unique(survivor[unlike])
    block = (np.cumsum(size[compared]) * 8) // held
    for b in np.unique(block):
        mine = compared[block == b]
        kept_values, kept_offsets = sets(gather(signed, nodes[mine], ["shingles"])["shingles"])
        others = unlike[np.isin(survivor[unlike], mine)]
        for shard in np.unique(nodes[others] >> 32):
            here = others[nodes[others] >> 32 == shard]
            values, offsets = sets(gather(signed, nodes[here], ["shingles"])["shingles"])
            with_set = np.searchsorted(mine, survivor[here])
            jaccard[here] = similarities(values, offsets, kept_values, kept_offsets, with_set)
    return jaccard
