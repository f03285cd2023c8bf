"""Columns that both sides have, and how their values are distributed over the documents that each keeps.

Numbers are counted by their first eleven binary digits, so that few are different, however many documents there are;
values of text as they are, up to 10,000 different ones of a column.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.flows.reports.diff.sides import Side
from gristmill.storage import files, parquet
from gristmill.tasks.documents.selection import gather

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
_DIGITS = np.uint64(42)  # of the 52 of a float64's mantissa, left out
_VALUES = 10_000  # different ones of a column of texts that are counted
_CHARACTERS = 100  # of a text that count
_MOST = 10  # values shown of either side
# What is of one document alone; texts are compared by themselves, URLs by their hosts.
_ONES_OWN = {
    *("id", "url", "date", "ip", "file", "offset", "length", "record_id", "digest"),
    *("title", "canonical_url", "published", "text"),
}


@dataclass
class Numbers:
    """`documents`: with a value; `missing`: without one, or with NaN."""

    documents: int = 0
    missing: int = 0
    total: float = 0.0
    _values: np.ndarray = field(default_factory=lambda: np.empty(0), repr=False)
    _counts: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64), repr=False)

    def add(self, column: pa.ChunkedArray) -> None:
        values = np.asarray(pc.drop_null(column).cast(pa.float64(), safe=False), np.float64)
        values = values[~np.isnan(values)]
        self.documents += len(values)
        self.missing += len(column) - len(values)
        self.total += float(values.sum())
        bits = np.ascontiguousarray(values + 0.0).view(np.uint64)  # -0.0 becomes 0.0
        all_values = np.concatenate([self._values, (bits >> _DIGITS << _DIGITS).view(np.float64)])
        weights = np.concatenate([self._counts, np.ones(len(values), np.int64)])
        self._values, at = np.unique(all_values, return_inverse=True)
        self._counts = np.zeros(len(self._values), np.int64)
        np.add.at(self._counts, at, weights)

    def quantile(self, share: float) -> float | None:
        """The least value that so large a share of the documents does not exceed; None without documents."""
        if not self.documents:
            return None
        at = np.searchsorted(np.cumsum(self._counts), share * self.documents)
        return float(self._values[min(int(at), len(self._values) - 1)])

    def below(self, value: float) -> float:
        """The share of the documents with a smaller value, in [0, 1], to eleven binary digits."""
        at = int(np.searchsorted(self._values, value))
        return float(self._counts[:at].sum() / self.documents) if self.documents else 0.0

    def histogram(self, edges: np.ndarray) -> np.ndarray:
        """How many documents lie between each two of the edges, int64; those beyond are in the outermost bins."""
        inside = np.clip(self._values, edges[0], edges[-1])
        return np.histogram(inside, edges, weights=self._counts)[0].astype(np.int64)

    @property
    def mean(self) -> float | None:
        return self.total / self.documents if self.documents else None

    def same(self, other: "Numbers") -> bool:
        """Whether the same share of the documents has each value."""
        if self.missing * other.documents != other.missing * self.documents or len(self._values) != len(other._values):
            return False
        shares = np.array_equal(self._counts * other.documents, other._counts * self.documents)
        return np.array_equal(self._values, other._values) and shares


@dataclass
class Values:
    """Documents by value; `full`: there are more than 10,000 different ones, of which the first are counted."""

    documents: int = 0
    missing: int = 0
    full: bool = False
    counts: Counter[str] = field(default_factory=Counter, repr=False)

    def add(self, column: pa.ChunkedArray) -> None:
        if pa.types.is_boolean(column.type):
            column = pc.if_else(column, "yes", "no")
        self.missing += column.null_count
        self.documents += len(column) - column.null_count
        short = pc.utf8_slice_codeunits(pc.drop_null(column), 0, _CHARACTERS)
        for each in pc.value_counts(short).to_pylist():
            if each["values"] in self.counts or len(self.counts) < _VALUES:
                self.counts[each["values"]] += each["counts"]
            else:
                self.full = True

    def same(self, other: "Values") -> bool:
        """Whether the same share of the documents has each value."""
        if self.missing * other.documents != other.missing * self.documents or self.full != other.full:
            return False
        names = self.counts.keys() | other.counts.keys()
        return all(self.counts[name] * other.documents == other.counts[name] * self.documents for name in names)


Kind = type[Numbers] | type[Values]


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers on both sides. `quantiles_a`, `quantiles_b`: at QUANTILES, to eleven binary digits."""

    name: str
    documents: tuple[int, int]
    missing: tuple[int, int]
    mean: tuple[float | None, float | None]
    quantiles: dict[str, tuple[float | None, float | None]]


@dataclass(frozen=True)
class ValueColumn:
    """A column of texts or truth values on both sides. `values`: of the most common of either side their documents;
    `full`: there are more than 10,000 different ones on a side, so that what is rare there may be missing."""

    name: str
    documents: tuple[int, int]
    missing: tuple[int, int]
    values: dict[str, tuple[int, int]]
    full: bool


@dataclass(frozen=True)
class Columns:
    """`numbers`, `values`: columns that are distributed otherwise; `same`: the names of those that are not; `only_a`,
    `only_b`: names of columns that one side alone has."""

    numbers: list[NumberColumn]
    values: list[ValueColumn]
    same: list[str]
    only_a: list[str]
    only_b: list[str]


def columns(a: Side, b: Side) -> Columns:
    """Compare all columns that both sides have. Holds the columns of a shard, and the counts."""
    kinds = [_kinds(side) for side in (a, b)]
    shared = [name for name, kind in kinds[0].items() if kinds[1].get(name) is kind]
    one, other = (_counted(side, {name: kinds[0][name] for name in shared}) for side in (a, b))
    found = Columns([], [], [], sorted(kinds[0].keys() - shared), sorted(kinds[1].keys() - shared))
    for name in shared:
        left, right = one[name], other[name]
        both = (left.documents, right.documents), (left.missing, right.missing)
        if isinstance(left, Numbers) and isinstance(right, Numbers):
            if not left.same(right):
                quantiles = {f"{share:g}": (left.quantile(share), right.quantile(share)) for share in QUANTILES}
                found.numbers.append(NumberColumn(name, *both, (left.mean, right.mean), quantiles))
                continue
        elif isinstance(left, Values) and isinstance(right, Values) and not left.same(right):
            found.values.append(ValueColumn(name, *both, _most(left.counts, right.counts), left.full or right.full))
            continue
        found.same.append(name)
    return found


def _counted(side: Side, kinds: dict[str, Kind]) -> dict[str, Numbers | Values]:
    made: dict[str, Numbers | Values] = {name: kind() for name, kind in kinds.items()}
    for table in _tables(side, list(kinds)):
        for name in table.column_names[1:]:
            made[name].add(table[name])
    return made


def _most(one: Counter[str], other: Counter[str]) -> dict[str, tuple[int, int]]:
    names = {name for side in (one, other) for name, _ in side.most_common(_MOST)}
    ordered = sorted(names, key=lambda name: (-max(one[name], other[name]), name))
    return {name: (one[name], other[name]) for name in ordered}


def _kinds(side: Side) -> dict[str, Kind]:
    """The columns of a side that are compared, and how they are counted."""
    found: dict[str, pa.DataType] = {}
    for part in side.parts(0) if side.shards else ():
        found |= {each.name: each.type for each in parquet.schema(part) if each.name not in _ONES_OWN}
    return {name: kind for name, each in found.items() if (kind := _kind(each)) is not None}


def _kind(of: pa.DataType) -> Kind | None:
    if pa.types.is_integer(of) or pa.types.is_floating(of):
        return Numbers
    return Values if pa.types.is_string(of) or pa.types.is_large_string(of) or pa.types.is_boolean(of) else None


def _tables(side: Side, names: list[str]) -> Iterator[pa.Table]:
    """Of each shard the columns of the documents that are kept, behind their ids. A part that is not there, or has no
    row of some document, as the scores of a filter's reference, gives no value."""
    for shard in side.shards:
        parts, kept = side.parts(shard), side.kept.part(shard)
        there = {name for part in parts for name in parquet.columns(part)}
        asked = [name for name in names if name in there]
        try:
            yield gather(parts, kept, asked)
        except LookupError:
            yield _where_known(parts, kept, asked)


def _where_known(parts: tuple[str, ...], kept: str, names: list[str]) -> pa.Table:
    found = {"id": parquet.read_table(kept, ["id"])["id"]}
    for part in parts:
        having = [name for name in names if files.exists(part) and name in parquet.columns(part)]
        table = parquet.read_table(part, ["id", *having])
        at = pc.index_in(found["id"], table["id"].combine_chunks())
        for name in having:
            column = table[name].take(at)
            found[name] = pc.coalesce(column, found[name]) if name in found else column
    return pa.table(found)
