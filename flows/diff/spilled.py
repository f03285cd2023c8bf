"""Rows of all shards divided by a hash of one of their columns into files of a temporary folder.

What belongs together comes into the same file, so that a join holds one file of either side, however large the corpora.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa

from gristmill.tasks.documents.sampling import uniform

ROWS = 500_000  # of a file, about
_MOST = 512  # files that are open together


class Spilled:
    """Rows of one schema, in `files` files of a folder. To be filled within a `with`, and read behind it."""

    def __init__(self, folder: Path, name: str, schema: pa.Schema, files: int) -> None:
        self._paths = [folder / f"{name}-{number:04d}.arrow" for number in range(files)]
        self._schema = schema
        self.rows = 0

    def __enter__(self) -> "Spilled":
        self._open = ExitStack()
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        self._writers = [
            self._open.enter_context(pa.ipc.new_stream(str(path), self._schema, options=options))
            for path in self._paths
        ]
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def add(self, table: pa.Table, column: str) -> None:
        """Add rows, divided by a column of strings without nulls."""
        table = table.select(self._schema.names).cast(self._schema)
        self.rows += len(table)
        if len(self._paths) == 1:
            self._writers[0].write_table(table)
            return
        at = (uniform(table[column], 0, "diff") * len(self._paths)).astype(np.int64)
        order = np.argsort(at, kind="stable")
        ends = np.searchsorted(at[order], np.arange(len(self._paths) + 1))
        for number in np.unique(at).tolist():
            self._writers[number].write_table(table.take(pa.array(order[ends[number] : ends[number + 1]])))

    def tables(self) -> Iterator[pa.Table]:
        """The rows of each file, one file after the other. Holds one."""
        for path in self._paths:
            with pa.ipc.open_stream(str(path)) as stream:
                yield stream.read_all()


def files_for(rows: int) -> int:
    """How many files so many rows are divided into."""
    return min(max(1, -(-rows // ROWS)), _MOST)
