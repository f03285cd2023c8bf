"""Vectors of documents in Parquet: `id`, and `vector` as a list of a fixed size of float16."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa


def vector_table(ids: Sequence[str] | pa.ChunkedArray, vectors: np.ndarray) -> pa.Table:
    """`vectors`: float16 (n, dimension)."""
    flat = pa.array(vectors.reshape(-1), pa.float16())
    return pa.table({"id": ids, "vector": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])})


def vectors_of(table: pa.Table) -> np.ndarray:
    """The column `vector`: float16 (n, dimension)."""
    column = table["vector"].combine_chunks()
    return column.flatten().to_numpy().reshape(len(column), column.type.list_size)
