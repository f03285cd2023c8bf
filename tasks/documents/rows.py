"""Single rows of a shard, by number. Only the row groups that have one of them are read."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from gristmill.storage.checked_parquet import open_checked


def read_rows(path: str, rows: np.ndarray, columns: list[str]) -> pa.Table:
    """The rows of a shard with these numbers, int64, each once and ascending.

    Holds them, and the chosen columns of one row group. Raises ValueError for other numbers.
    """
    return pa.concat_tables(read_groups(path, rows, columns))


def read_groups(path: str, rows: np.ndarray, columns: list[str]) -> Iterator[pa.Table]:
    """What `read_rows` gives, row group by row group; at first a table without rows."""
    with open_checked(path) as shard:
        sizes = [shard.metadata.row_group(group).num_rows for group in range(shard.metadata.num_row_groups)]
        ends = np.cumsum([0, *sizes])
        if (np.diff(rows, prepend=-1, append=ends[-1]) <= 0).any():
            raise ValueError(f"the rows asked of {path} do not ascend, each once, or are not all in it")
        yield pa.schema([shard.schema.field(name) for name in columns]).empty_table()
        begins = np.searchsorted(rows, ends)
        for group, (low, high) in enumerate(pairwise(begins.tolist())):
            if low < high:
                yield shard.read([group], columns).select(columns).take(pa.array(rows[low:high] - ends[group]))
