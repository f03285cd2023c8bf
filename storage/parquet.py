"""Parquet shards: one table, one file, written whole or not at all, and read as it was written or not at all.

What reads a shard raises DamagedFileError where its bytes are not those that were written.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from gristmill.storage import checked_parquet, files
from gristmill.storage.checked_parquet import Writing, open_checked
from gristmill.storage.contents import RowDigest

# Rows of a group where there are texts, and where there are none.
_TEXTS, _ROWS = 1 << 12, 1 << 16
_HELD_BYTES = 32 << 20
_SIDE_BY_SIDE = 16  # files that are opened together: a store answers in tens of milliseconds, and answers many at once


def _options(schema: pa.Schema) -> dict[str, Any]:
    """zstd level 3; but binaries of one width are hashes, which nothing makes smaller, and are not compressed. Texts
    and hashes have no statistics, which would hold two texts for each page.
    """
    hashes = [field.name for field in schema if pa.types.is_fixed_size_binary(field.type)]
    texts = [field.name for field in schema if pa.types.is_large_string(field.type)]
    packed: dict[str, Any] = {"compression": "zstd", "compression_level": 3}
    if hashes:
        packed["compression"] = {name: "none" if name in hashes else "zstd" for name in schema.names}
        packed["compression_level"] = {name: 3 for name in schema.names if name not in hashes}
    statistics = [name for name in schema.names if name not in (*texts, *hashes)]
    return packed | {"write_statistics": statistics}


def _row_group(schema: pa.Schema) -> int:
    return _TEXTS if any(pa.types.is_large_string(field.type) for field in schema) else _ROWS


def write_table(path: str, table: pa.Table) -> None:
    """Row groups of 4,096 rows, of 65,536 where there are no texts; dictionaries for short strings only, since texts
    and hashes never repeat."""
    short = [f.name for f in table.schema if pa.types.is_string(f.type)]
    with checked_parquet.create(path, table.schema, **_options(table.schema), use_dictionary=short) as out:
        out.write_table(table, row_group_size=_row_group(table.schema))


class Writer:
    """Puts tables together to row groups as `write_table` has them, or of 32 MB, of which it holds one.

    Smaller groups are slow to read: twenty signals take four times as long from groups of 512 rows.
    """

    def __init__(self, out: Writing, row_group: int) -> None:
        self._out = out
        self._row_group = row_group
        self._tables: list[pa.Table] = []

    def write_table(self, table: pa.Table) -> None:
        self._tables.append(table)
        rows = sum(map(len, self._tables))
        if sum(table_part.nbytes for table_part in self._tables) >= _HELD_BYTES:
            self.flush()
        elif rows >= self._row_group:
            table_part = pa.concat_tables(self._tables)
            whole = rows - rows % self._row_group
            self._out.write_table(table_part[:whole], row_group_size=self._row_group)
            self._tables = [table_part[whole:]]

    def flush(self) -> None:
        if any(map(len, self._tables)):
            self._out.write_table(pa.concat_tables(self._tables), row_group_size=self._row_group)
        self._tables = []


@contextmanager
def create(path: str, schema: pa.Schema) -> Iterator[Writer]:
    """A shard that is written table by table."""
    with checked_parquet.create(path, schema, **_options(schema), use_dictionary=False) as out:
        writer = Writer(out, _row_group(schema))
        yield writer
        writer.flush()


def read_table(path: str, columns: list[str] | None = None) -> pa.Table:
    """The shard's table, or some of its columns; FileNotFoundError if it is not there."""
    with open_checked(path) as shard:
        return shard.read(columns=columns)


def read_tables(paths: Iterable[str], columns: list[str] | None = None) -> list[pa.Table]:
    """What `read_table` gives of several shards, which are read side by side. Holds them."""
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        return list(pool.map(lambda path: read_table(path, columns), paths))


def paths_in(folder: str) -> list[str]:
    """The shards in a folder, by name; none if there is no such folder."""
    return [files.join(folder, name) for name in files.names(folder) if name.endswith(".parquet")]


def groups(path: str, columns: list[str] | None = None) -> Iterator[pa.Table]:
    """The shard's table, row group by row group."""
    with open_checked(path) as shard:
        for group in range(shard.metadata.num_row_groups):
            yield shard.read([group], columns)


def schema(path: str) -> pa.Schema:
    """The columns, from the footer alone."""
    with open_checked(path) as shard:
        return shard.schema


def columns(path: str) -> list[str]:
    """Names of the columns, from the footer alone."""
    return schema(path).names


def rows(path: str) -> int:
    """Number of rows, from the footer alone."""
    with open_checked(path) as shard:
        return shard.metadata.num_rows


def digest_rows(path: str) -> str:
    """The logical digest of a shard's rows (`gristmill.storage.contents`), as it was when they were written. Reads the
    shard once, and holds a row group."""
    with open_checked(path) as shard:
        digest = RowDigest(shard.schema)
        for group in range(shard.metadata.num_row_groups):
            digest.update(shard.read([group]))
        return digest.hexdigest()
