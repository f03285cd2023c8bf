"""Sorted partition files, with which shards exchange rows; they are checked when they are read.

A sorted file is a Parquet file whose rows are sorted by a key, int64 or uint64, so that a reader of a range of keys
reads only the row groups of that range. Its row groups begin where the partitions of the exchange begin. Hashes do not
compress, so only text in sorted files is compressed. Functions that read them raise DamagedFileError if the bytes are
not those that were written.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice, pairwise

import numpy as np
import pyarrow as pa

from gristmill.storage import files, parquet
from gristmill.storage.damage import damaged
from gristmill.storage.parquet import CheckedFile, open_checked

# Of a row group, at most: rows, and bytes about.
_ROW_GROUP, _GROUP_BYTES = 1 << 16, 1 << 20
# So many row groups are searched at once.
_FOUND = 16
# Remote files that are read in parallel, and that wait to be used: an object store answers in 50 ms.
AT_ONCE = 8

# The range of all int64 keys.
EVERYTHING = (-(1 << 63), 1 << 63)


def bounds(partitions: int) -> list[int]:
    """The n+1 ends of n equal ranges of uint64 keys: 0, ..., 2^64."""
    return [(p << 64) // partitions for p in range(partitions + 1)]


def write(
    path: str,
    table: pa.Table,
    key: str,
    ends: Sequence[int] | None = None,
    row_group: int = _ROW_GROUP,
    group_bytes: int = _GROUP_BYTES,
) -> None:
    """Write the table, sorted by `key` (rows of one key keep their order), see `create`. Holds the table twice."""
    table = sorted_by(table, key)
    # a column without missing values is read in two thirds of the time
    full = pa.schema([field.with_nullable(table[field.name].null_count > 0) for field in table.schema])
    with create(path, full, key, ends, row_group, group_bytes) as append:
        append(table)


@contextmanager
def create(
    path: str,
    schema: pa.Schema,
    key: str,
    ends: Sequence[int] | None = None,
    row_group: int = _ROW_GROUP,
    group_bytes: int = _GROUP_BYTES,
) -> Iterator[Callable[[pa.Table], None]]:
    """A sorted file to which tables are appended, each sorted by `key` and none with a key below those before it.

    A row group is begun at each of `ends`, the first and the last aside, and has at most `row_group` rows and about
    `group_bytes`: the smaller, the less is read for a small range.
    """
    schema = schema.with_metadata({"key": key})
    kind = pa.array([], schema.field(key).type).to_numpy(zero_copy_only=False).dtype  # needs no pandas
    inner = np.array(ends[1:-1] if ends else [], kind)
    text = [field.name for field in schema if field.type in (pa.large_string(), pa.large_binary())]
    compression = {name: "lz4" if name in text else "none" for name in schema.names}
    with parquet.create_checked(path, schema, compression=compression, use_dictionary=False) as out:

        def append(table: pa.Table) -> None:
            table = table.cast(schema)
            keys = table[key].to_numpy()
            most = max(1, min(row_group, group_bytes * len(table) // max(table.nbytes, 1)))
            begun = slice(*np.searchsorted(inner, [keys[0], keys[-1]], side="right")) if len(keys) else slice(0)
            places = [0, *np.searchsorted(keys, inner[begun]).tolist(), len(keys)]
            for first, last in pairwise(places):
                for begin in range(first, last, most):
                    out.write_table(table[begin : min(begin + most, last)], row_group_size=most)

        yield append


def read(path: str, low: int, high: int, columns: list[str] | None = None) -> pa.Table:
    """The rows with low <= key < high, in order. Holds the row groups that contain them."""
    with open_checked(path) as file:
        return read_range(file, path, low, high, columns)


def read_range(file: CheckedFile, path: str, low: int, high: int, columns: list[str] | None = None) -> pa.Table:
    """What `read` gives, of a file that is open."""
    key = key_of(file, path)
    table = _groups(file, _within(file, key, low, high), _with_key(key, columns))
    return _cut(table, key, low, high, columns)


def each_group(file: CheckedFile, path: str, low: int, high: int) -> Iterator[pa.Table]:
    """What `read_range` gives, row group by row group, of which it holds one."""
    key = key_of(file, path)
    for group in _within(file, key, low, high):
        yield _cut(_groups(file, [group], None), key, low, high, None)


def read_each(paths: Sequence[str], low: int, high: int, columns: list[str] | None = None) -> Iterator[pa.Table]:
    """What `read` gives of each of several files, one after the other. Of remote ones up to `AT_ONCE` are read side by
    side, and held: a small range takes the time to ask for it. Local ones are mapped, and threads would cost a fifth
    more of their 0.5 ms."""
    if len(paths) <= 1 or files.is_local(paths[0]):
        yield from (read(path, low, high, columns) for path in paths)
        return
    with ThreadPoolExecutor(min(AT_ONCE, len(paths))) as pool:
        remaining_paths = iter(paths)
        begun = deque(pool.submit(read, path, low, high, columns) for path in islice(remaining_paths, AT_ONCE))
        try:
            while begun:
                yield begun.popleft().result()
                begun.extend(pool.submit(read, path, low, high, columns) for path in islice(remaining_paths, 1))
        finally:
            for waiting in begun:
                waiting.cancel()


def _within(file: CheckedFile, key: str, low: int, high: int) -> list[int]:
    """The row groups that can have keys of a range: bisected, since reading all statistics takes longer than reading a
    small range."""
    groups = range(file.metadata.num_row_groups)
    column = file.schema.names.index(key)
    begin = bisect_left(groups, low, key=lambda group: _ends(file, column, group)[1])
    end = bisect_left(groups, high, lo=begin, key=lambda group: _ends(file, column, group)[0])
    return list(groups[begin:end])


def _with_key(key: str, columns: list[str] | None) -> list[str] | None:
    return columns if columns is None or key in columns else [key, *columns]


def _cut(table: pa.Table, key: str, low: int, high: int, columns: list[str] | None) -> pa.Table:
    keys = table[key].to_numpy()
    first, last = _place(keys, low), _place(keys, high)
    return (table if columns is None else table.select(columns))[first:last]


def find(path: str, keys: np.ndarray) -> pa.Table:
    """The rows whose key is one of `keys`, which ascend. Holds at once up to `_FOUND` row groups that can have one."""
    with open_checked(path) as file:
        key = key_of(file, path)
        having, begins, stops = _having(file, key, keys)
        tables = [_groups(file, [], None)]
        for groups in (having[i : i + _FOUND] for i in range(0, len(having), _FOUND)):
            table = _groups(file, groups, None)
            there, group_keys = table[key].to_numpy(), keys[begins[groups[0]] : stops[groups[-1]]]
            first = np.searchsorted(there, group_keys)
            is_match = there[first.clip(max=len(there) - 1)] == group_keys
            first, group_keys = first[is_match], group_keys[is_match]
            count = np.searchsorted(there, group_keys, side="right") - first
            begin = np.repeat(first - np.cumsum(count) + count, count)
            tables.append(table.take(pa.array(begin + np.arange(len(begin)))))
    return pa.concat_tables(tables)


def _having(file: CheckedFile, key: str, keys: np.ndarray) -> tuple[list[int], np.ndarray, np.ndarray]:
    """The row groups that can have one of the keys; from and up to which key each row group has them."""
    column = file.schema.names.index(key)
    group_ends = [_ends(file, column, group) for group in range(file.metadata.num_row_groups)]
    ends = np.array(group_ends, keys.dtype).reshape(-1, 2)
    begins, stops = np.searchsorted(keys, ends[:, 0]), np.searchsorted(keys, ends[:, 1], side="right")
    return np.flatnonzero(stops > begins).tolist(), begins, stops


def key_of(file: CheckedFile, path: str) -> str:
    """The name of the column by which a file is sorted. Raises DamagedFileError for another kind of file."""
    metadata = file.schema.metadata or {}
    if b"key" not in metadata:
        raise damaged(path, "is a Parquet file, but not a sorted file")
    return metadata[b"key"].decode()


def ends_of_groups(file: CheckedFile, path: str) -> Iterator[tuple[int, int, int]]:
    """For each row group the smallest key, the largest, and its bytes when it is read; from the footer."""
    column = file.schema.names.index(key_of(file, path))
    for group in range(file.metadata.num_row_groups):
        yield *_ends(file, column, group), file.metadata.row_group(group).total_byte_size


def _ends(file: CheckedFile, column: int, group: int) -> tuple[int, int]:
    """The smallest and the largest value of a column in a row group, from the footer."""
    statistics = file.metadata.row_group(group).column(column).statistics
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
    sorting numbers than at following them. Keys that differ only in those bits are put in order afterwards. Raises
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
    positions = numbered.view(np.int64)
    almost = keys[positions]
    if (almost[1:] < almost[:-1]).any():
        positions = positions[np.argsort(almost, kind="stable")]
    return positions
