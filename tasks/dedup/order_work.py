"""Keep order on columns: keys by which documents are sorted, and the order that they give."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.tasks.dedup.order import KeepOrder
from gristmill.tasks.documents.instants import instant

_LAST = np.iinfo(np.int64).max
_COLUMNS = {"newest": "date", "oldest": "date", "longest": "characters"}


def columns(order: KeepOrder) -> list[str]:
    """The columns of documents, and the signal, on which an order depends."""
    names = (order.best if criterion == "best" else _COLUMNS.get(criterion) for criterion in order.keep)
    return list(dict.fromkeys(name for name in names if name is not None))


def order_names(order: KeepOrder) -> list[str]:
    """The names of the columns that `keyed` adds: `order_0`, ..."""
    return [f"order_{i}" for i in range(len(order.keep))]


def keyed(table: pa.Table, source_rank: int, order: KeepOrder) -> pa.Table:
    """The documents of one source with a column for each criterion, int64 or float64, of which the smallest is kept.

    `table` has `columns(order)`; `source_rank` is the position of the source in the recipe. A document without
    a valid date, or with null or NaN for the signal, has the largest number there is. Raises ValueError if the signal
    is not a number.
    """

    def best() -> pa.ChunkedArray:
        assert order.best is not None, "`keep` has `best` only where a signal is named"
        return pc.fill_null(pc.negate(_numbers(order.best, table[order.best])), np.inf)

    made = {
        "source": lambda: pa.array(np.full(len(table), source_rank, np.int64)),
        "newest": lambda: pc.fill_null(pc.negate(_instants(table["date"])), _LAST),
        "oldest": lambda: pc.fill_null(_instants(table["date"]), _LAST),
        "longest": lambda: pc.negate(table["characters"]),
        "best": best,
    }
    for name, criterion in zip(order_names(order), order.keep, strict=True):
        table = table.append_column(name, made[criterion]())
    return table


def ranking(table: pa.Table, order: KeepOrder) -> np.ndarray:
    """The rows (int64) in keep order: by the columns that `keyed` added, then by `id`, compared as bytes."""
    keys = [(name, "ascending") for name in (*order_names(order), "id")]
    return pc.sort_indices(table, sort_keys=keys).to_numpy().astype(np.int64)


def _instants(dates: pa.ChunkedArray) -> pa.Array:
    return pa.array(map(instant, dates.to_pylist()), pa.int64())


def _numbers(name: str, values: pa.ChunkedArray) -> pa.ChunkedArray:
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        raise ValueError(f"`best` is {name}, which is no number but {values.type}: name another signal")
    numbers = values.cast(pa.float64())
    return pc.if_else(pc.is_nan(numbers), pa.scalar(None, pa.float64()), numbers)
