"""Parquet shards: one table, one file, written whole or not at all."""

import pyarrow as pa
import pyarrow.parquet as pq

from storage import files

ROW_GROUP = 4096


def write_table(path: str, table: pa.Table) -> None:
    """zstd level 3, dictionaries for short strings only (texts and hashes never repeat), row groups of 4,096 rows."""
    short = [f.name for f in table.schema if pa.types.is_string(f.type)]
    with files.create(path) as f:
        pq.write_table(
            table, f, compression="zstd", compression_level=3, use_dictionary=short, row_group_size=ROW_GROUP
        )


def read_table(path: str, columns: list[str] | None = None) -> pa.Table:
    """The shard's table, or some of its columns; FileNotFoundError if it is not there."""
    if files.is_local(path):
        return pq.ParquetFile(path, memory_map=True).read(columns=columns)
    with files.open_file(path) as f:
        return pq.ParquetFile(f).read(columns=columns)


def rows(path: str) -> int:
    """Number of rows, from the footer alone."""
    with files.open_file(path) as f:
        return pq.ParquetFile(f).metadata.num_rows
