"""The scores of documents that a model is not asked about: there, and null."""

import pyarrow as pa

from gristmill.storage import layout, parquet


def null_scores_shard(
    folder: str, shard: int, kept: str, signals: tuple[str, ...], groups: tuple[str, ...] = ()
) -> dict:
    """Write `id`, the signals and the groups, null, of a selection's documents: so that every shard has the columns."""
    ids = parquet.read_table(kept, ["id"])["id"]
    nulls = {name: pa.nulls(len(ids), pa.float64()) for name in signals}
    nulls |= {name: pa.nulls(len(ids), pa.string()) for name in groups}
    parquet.write_table(layout.part(folder, shard), pa.table({"id": ids, **nulls}))
    return {"rows": len(ids)}
