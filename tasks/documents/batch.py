"""Documents on their way through steps, and the columns that steps give them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

import pyarrow as pa

from gristmill.tasks import kernels
from gristmill.tasks.documents.step import Signal, Step

_TYPES: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "bool": pa.bool_(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
}


def field(signal: Signal) -> pa.Field:
    """The column of a signal, with its unit and the source of its definition as metadata."""
    metadata = {"unit": signal.unit, "source": signal.source}
    return pa.field(signal.name, _TYPES[signal.kind], metadata=metadata)


def schema(step: Step | type[Step]) -> pa.Schema:
    """The columns of a step's signals."""
    return pa.schema([field(signal) for signal in step.signals])


def names(steps: Iterable[Step]) -> list[str]:
    """The names of the signals of steps, in their order."""
    return [signal.name for step in steps for signal in step.signals]


class Batch:
    """Documents on their way through the steps: columns `id`, `url`, `text` and the signals so far.

    `scanned` gives the scan of the texts, where there is a shorter way than to read them.
    """

    def __init__(self, table: pa.Table, scanned: Callable[[], kernels.scan.Scan] | None = None) -> None:
        self.table = table
        self._scanned = scanned

    def __getitem__(self, column: str) -> pa.ChunkedArray:
        return self.table[column]

    def __len__(self) -> int:
        return len(self.table)

    def add(self, signals: pa.Schema, columns: Mapping[str, pa.Array]) -> None:
        """Put a step's signals behind the columns."""
        schema = pa.schema([*self.table.schema, *signals], self.table.schema.metadata)
        added = [columns[name] for name in signals.names]
        self.table = pa.Table.from_arrays([*self.table.columns, *added], schema=schema)

    def replace(self, columns: Mapping[str, pa.Array]) -> None:
        """Put other values into columns that there are; not into `text`, which has a scan."""
        for name, values in columns.items():
            index = self.table.schema.get_field_index(name)
            self.table = self.table.set_column(index, self.table.schema.field(index), values)

    @cached_property
    def scan(self) -> kernels.scan.Scan:
        """The words, lines, ... of the texts: found once, read by all rules."""
        return self._scanned() if self._scanned else kernels.scan.scan(self.table["text"])
