"""Sorted partition files: what an exchange between shards is made of, checked when it is read back.

A sorted file is a Parquet file whose rows are sorted by a key, int64 or uint64, so that whoever needs a range of keys
reads the row groups of that range alone. Its row groups begin where the partitions of the exchange begin. Hashes do not
compress, so sorted files are not compressed but for their text. What reads them raises DamagedFileError where the bytes
are not those that were written.
"""

from bisect import bisect_left
from itertools import pairwise

import numpy as np
import pyarrow as pa

from gristmill.storage import checked_parquet
from gristmill.storage.checked_parquet import CheckedFile, open_checked
from gristmill.storage.damage import damaged

_ROW_GROUP = 1 << 16
# So many of them are looked through at once.
_FOUND = 16

# The range of all int64 keys.
EVERYTHING = (-(1 << 63), 1 << 63)


def bounds(partitions: int) -> list[int]:
    """The n+1 ends of n equal ranges of uint64 keys: 0, ..., 2^64."""
    return [(p << 64) // partitions for p in range(partitions + 1)]


def write(path: str, table: pa.Table, key: str, ends: list[int] | None = None, row_group: int = _ROW_GROUP) -> None:
    """Write the table, sorted by `key` (rows of one key keep their order), a row group begun at each of `ends`, and of
    at most `row_group` rows: the fewer, the less is read for a small range.

    Holds the table twice.
    """
    table = sorted_by(table, key)
    # a column without missing values is read in two thirds of the time
    full = [field.with_nullable(table[field.name].null_count > 0) for field in table.schema]
    table = table.cast(pa.schema(full, {"key": key}))
    keys = table[key].to_numpy()
    inner = np.array(ends[1:-1] if ends else [], keys.dtype)
    places = [0, *np.searchsorted(keys, inner).tolist(), len(keys)]
    groups = [(at, min(at + row_group, high)) for low, high in pairwise(places) for at in range(low, high, row_group)]
    text = [field.name for field in table.schema if field.type in (pa.large_string(), pa.large_binary())]
    compression = {name: "lz4" if name in text else "none" for name in table.column_names}
    with checked_parquet.create(path, table.schema, compression=compression, use_dictionary=False) as out:
        for low, high in groups:
            out.write_table(table[low:high], row_group_size=row_group)


def read(path: str, low: int, high: int, columns: list[str] | None = None) -> pa.Table:
    """The rows with low <= key < high, in order. Holds the row groups that these lie in."""
    with open_checked(path) as file:
        key = _key(file, path)
        wanted = columns if columns is None or key in columns else [key, *columns]
        # bisected, since reading all statistics takes longer than reading a small range
        groups = range(file.metadata.num_row_groups)
        at = file.schema.names.index(key)
        begin = bisect_left(groups, low, key=lambda group: _ends(file, at, group)[1])
        end = bisect_left(groups, high, lo=begin, key=lambda group: _ends(file, at, group)[0])
        table = _groups(file, list(groups[begin:end]), wanted)
    keys = table[key].to_numpy()
    first, last = _place(keys, low), _place(keys, high)
    return (table if columns is None else table.select(columns))[first:last]


def find(path: str, keys: np.ndarray) -> pa.Table:
    """The rows whose key is one of `keys`, which ascend. Holds at once up to `_FOUND` row groups that can have one."""
    with open_checked(path) as file:
        key = _key(file, path)
        having, begins, stops = _having(file, key, keys)
        found = [_groups(file, [], None)]
        for groups in (having[i : i + _FOUND] for i in range(0, len(having), _FOUND)):
            table = _groups(file, groups, None)
            there, wanted = table[key].to_numpy(), keys[begins[groups[0]] : stops[groups[-1]]]
            first = np.searchsorted(there, wanted)
            met = there[first.clip(max=len(there) - 1)] == wanted
            first, wanted = first[met], wanted[met]
            count = np.searchsorted(there, wanted, side="right") - first
            begin = np.repeat(first - np.cumsum(count) + count, count)
            found.append(table.take(pa.array(begin + np.arange(len(begin)))))
    return pa.concat_tables(found)


def _having(file: CheckedFile, key: str, wanted: np.ndarray) -> tuple[list[int], np.ndarray, np.ndarray]:
    """The row groups that can have one of the keys; from and up to which key each row group has them."""
    at = file.schema.names.index(key)
    found = [_ends(file, at, group) for group in range(file.metadata.num_row_groups)]
    ends = np.array(found, wanted.dtype).reshape(-1, 2)
    begins, stops = np.searchsorted(wanted, ends[:, 0]), np.searchsorted(wanted, ends[:, 1], side="right")
    return np.flatnonzero(stops > begins).tolist(), begins, stops


def _key(file: CheckedFile, path: str) -> str:
    metadata = file.schema.metadata or {}
    if b"key" not in metadata:
        raise damaged(path, "is a Parquet file, but not a sorted file")
    return metadata[b"key"].decode()


def _ends(file: CheckedFile, at: int, group: int) -> tuple[int, int]:
    """The smallest and the largest value of a column in a row group, from the footer."""
    statistics = file.metadata.row_group(group).column(at).statistics
    return statistics.min, statistics.max


def _groups(file: CheckedFile, groups: list[int], columns: list[str] | None) -> pa.Table:
    """Row groups; alike for all files of an exchange, whichever of them have missing values."""
    table = file.read(groups, columns)
    return pa.table(table.columns, pa.schema([field.with_nullable(True) for field in table.schema]))


def _place(keys: np.ndarray, end: int) -> int:
    """How many keys are below `end`, which may be one more than the largest."""
    return len(keys) if end > np.iinfo(keys.dtype).max else int(np.searchsorted(keys, keys.dtype.type(end)))


def sorted_by(table: pa.Table, key: str) -> pa.Table:
    """The rows in the order of a key; rows of one key stay in their order."""
    keys = table[key].to_numpy()
    return table.take(order(keys)) if (keys[1:] < keys[:-1]).any() else table


def order(keys: np.ndarray) -> np.ndarray:
    """The order that sorts keys, uint64 or int64, equal ones as they come: what a stable argsort gives, in a quarter of
    its time for hashes in no order, in half of it for ids or for many sorted files one after the other.

    The keys are moved to the upper bits, and each one's number takes the place of the lowest, since numpy is faster at
    sorting numbers than at following them. Keys that differ in those bits alone are put in order afterwards. Raises
    ValueError for keys of another type.
    """
    if keys.dtype not in (np.uint64, np.int64):
        raise ValueError(f"keys of the type {keys.dtype}: give uint64 or int64")
    span = int(keys.max()) - int(keys.min()) if len(keys) else 0
    if not span:
        return np.arange(len(keys))
    numbered = (keys.view(np.uint64) - keys.min().view(np.uint64)) << np.uint64(64 - span.bit_length())
    last = np.uint64((1 << len(keys).bit_length()) - 1)
    numbered &= ~last
    numbered |= np.arange(len(keys), dtype=np.uint64)
    numbered.sort()
    numbered &= last
    found = numbered.view(np.int64)
    almost = keys[found]
    if (almost[1:] < almost[:-1]).any():
        found = found[np.argsort(almost, kind="stable")]
    return found


def read_all(paths: list[str], low: int, high: int, columns: list[str] | None = None) -> pa.Table:
    """The rows with low <= key < high of several files, one file after the other."""
    return pa.concat_tables([read(path, low, high, columns) for path in paths])
