"""How many pairs of near-duplicates a shard's documents stand for."""

from gristmill.storage import parquet


def count_pairs(folder: str, shard: int, kept: str) -> dict:
    """The pairs within the clusters whose kept document is in a shard. `kept`: its part with `cluster_size`."""
    sizes = parquet.read_table(kept, ["cluster_size"])["cluster_size"].to_numpy()
    return {"pairs": int((sizes * (sizes - 1) // 2).sum())}
