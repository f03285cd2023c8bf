"""Keep order: which of several duplicates is kept, as settings and as an order of columns.

An order is a list of criteria, each of which decides where those before it do not; in the end the smallest id decides,
so that no two documents are equal.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, model_validator

from gristmill.tasks.documents.instants import instant
from gristmill.tasks.documents.step import Settings

Criterion = Literal["source", "newest", "oldest", "longest", "best"]


class KeepOrder(Settings):
    """The settings of a step that drops duplicates: in which order documents come, of which the first is kept."""

    renamed: ClassVar[Mapping[str, str]] = {"survivor": "`keep`"}

    keep: tuple[Criterion, ...] = Field(
        (),
        description="Criteria that decide which duplicate is kept, the most important first; ties go to "
        "the smallest id. source: the recipe's order of sources. newest, oldest: by date, "
        "documents without one last. longest: most characters. best: see `best`.",
    )
    best: str | None = Field(
        None, description="Numeric signal for the criterion `best`, such as `quality`: the highest value is kept."
    )

    @model_validator(mode="after")
    def _one_order(self) -> Self:
        if len(set(self.keep)) != len(self.keep):
            raise ValueError(f"`keep` has a criterion twice: {', '.join(self.keep)}; remove one")
        if {"newest", "oldest"} <= set(self.keep):
            raise ValueError(
                f"`keep` has newest and oldest: {', '.join(self.keep)}; remove the second, which never decides"
            )
        if "best" in self.keep and self.best is None:
            raise ValueError("`keep` has `best`: set the signal that decides in the setting `best`")
        if self.best is not None and "best" not in self.keep:
            raise ValueError(f"`best` is {self.best}, but `keep` does not have `best`: add it, or remove the setting")
        return self


# Keep order on columns: keys by which documents are sorted, and the order that they give.


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

    makers = {
        "source": lambda: pa.array(np.full(len(table), source_rank, np.int64)),
        "newest": lambda: pc.fill_null(pc.negate(_instants(table["date"])), _LAST),
        "oldest": lambda: pc.fill_null(_instants(table["date"]), _LAST),
        "longest": lambda: pc.negate(table["characters"]),
        "best": best,
    }
    for name, criterion in zip(order_names(order), order.keep, strict=True):
        table = table.append_column(name, makers[criterion]())
    return table


def ranking(table: pa.Table, order: KeepOrder) -> np.ndarray:
    """The rows (int64) in keep order: by the columns that `keyed` added, then by `id`, compared as bytes."""
    keys = [(name, "ascending") for name in (*order_names(order), "id")]
    return pc.sort_indices(table, sort_keys=keys).to_numpy().astype(np.int64)


def _instants(dates: pa.ChunkedArray) -> pa.Array:
    return pa.array(map(instant, dates.to_pylist()), pa.int64())


def _numbers(name: str, values: pa.ChunkedArray) -> pa.ChunkedArray:
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        raise ValueError(f"`best` is {name}, which is {values.type} and not a number: use another signal")
    numbers = values.cast(pa.float64())
    return pc.if_else(pc.is_nan(numbers), pa.scalar(None, pa.float64()), numbers)
