"""The scores of documents that a model is not asked about: there, and null."""

import pyarrow as pa

from storage import layout, parquet


def null_scores_shard(folder: str, shard: int, kept: str, signal: str) -> dict:
    """Write `id` and the signal, null, of a selection's documents: so that every shard has the column."""
    ids = parquet.read_table(kept, ["id"])["id"]
    parquet.write_table(layout.part(folder, shard), pa.table({"id": ids, signal: pa.nulls(len(ids), pa.float64())}))
    return {"rows": len(ids)}
