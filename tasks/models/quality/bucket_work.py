"""The step `quality_bucket`: scores gathered, the ends of their buckets found, documents numbered."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from gristmill.storage import files, layout, parquet
from gristmill.tasks.documents.selection import gather
from gristmill.tasks.models.percentiles import percentiles
from gristmill.tasks.models.quality.bucket import Scorers

_GATHERED = "gathered"


def gathered_folder(folder: str) -> str:
    """Where the scores of the documents that arrive lie while the stage is made."""
    return files.join(folder, _GATHERED)


def gather_shard(folder: str, shard: int, signals: tuple[str, ...], kept: str, settings: Scorers) -> dict:
    """Write `id` and the scores, float64, of the documents that arrive."""
    names = [*settings.scores, *settings.inverse]
    table = gather(signals, kept, names)
    for name in names:
        kind = table[name].type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise ValueError(f"the step `quality_bucket` has the score {name}, whose values are {kind}; name numbers")
        table = table.set_column(table.column_names.index(name), name, table[name].cast(pa.float64()))
    parquet.write_table(layout.part(gathered_folder(folder), shard), table)
    return {"rows": len(table)}


def find_edges(folder: str, number: int, parts: Sequence[str], settings: Scorers) -> dict:
    """`edges`: of each score the percentiles between its buckets, `buckets - 1`; of one that no document has, none.
    `parts`: what `gather_shard` has written."""
    wanted = [100 * each / settings.buckets for each in range(1, settings.buckets)]
    names = (*settings.scores, *settings.inverse)
    return {"edges": {name: percentiles(parts, name, wanted).get("", []) for name in names}}


def bucket_shard(folder: str, shard: int, edges: Mapping[str, list[float]], settings: Scorers) -> dict:
    """Write `id` and `quality_bucket`."""
    table = parquet.read_table(layout.part(gathered_folder(folder), shard))
    best = np.full(len(table), -1)
    for name, sign in [*((name, 1) for name in settings.scores), *((name, -1) for name in settings.inverse)]:
        values = sign * table[name].to_numpy()
        # of equal scores all are in the bucket of the worst of them
        found = np.searchsorted(np.sort(sign * np.asarray(edges[name], np.float64)), values, side="left")
        best = np.maximum(best, np.where(np.isnan(values), -1, found))
    numbers = pa.array(best, pa.int32(), mask=best < 0)
    parquet.write_table(layout.part(folder, shard), pa.table({"id": table["id"], "quality_bucket": numbers}))
    return {"rows": len(table)}
