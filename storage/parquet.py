"""Parquet shards: one table, one file, written whole or not at all, and read as it was written or not at all.

A file has digests of all its bytes, which are compared before Arrow parses what it reads:

    PAR1  column chunks  trailer  footer  length of the footer (uint32)  PAR1

Other readers of Parquet follow the offsets of the footer and never see the trailer. All numbers are little-endian:

    offset, length, xxh3-64 (uint64 each) of each column chunk with its page headers, row group by row group
    the file's name (`gristmill.storage.damage.name_of`), in UTF-8
    number of chunks, length of the name (uint64 each)
    xxh3-128 of the above and of the footer with its length and mark, 16 bytes
    GRISTSH2

A file in the place of another is refused because of the name in it, without reading any other file. Functions that
read a shard raise DamagedFileError if its bytes are not those that were written.
"""

import io
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from gristmill.storage import files
from gristmill.storage.contents import RowDigest
from gristmill.storage.damage import check_name, damaged, missing, name_of
from gristmill.storage.remote import traffic
from gristmill.storage.remote.config import RemoteIOConfig, configured

_PARQUET, MARK = b"PAR1", b"GRISTSH2"
_CHUNK = np.dtype([("offset", "<u8"), ("length", "<u8"), ("digest", "<u8")])
# The bytes after the chunks and the name: their number, its length, the digest, the mark.
_END = 8 + 8 + 16 + len(MARK)
# The end of a remote file that is fetched at once: footers of shards have some 20 KB.
_TAIL = 1 << 16


class Writing:
    """A file that is written table by table. `rows`: the digest of what was written so far."""

    def __init__(self, out: pq.ParquetWriter) -> None:
        self._out = out
        self.rows = RowDigest(out.schema)

    def write_table(self, table: pa.Table, row_group_size: int | None = None) -> None:
        self.rows.update(table)
        self._out.write_table(table, row_group_size=row_group_size)


@contextmanager
def create_checked(path: str, schema: pa.Schema, **options: Any) -> Iterator[Writing]:
    """A file that is written table by table; `options` are passed to `pq.ParquetWriter`."""
    footers: list[pq.FileMetaData] = []
    with files.create(path) as f:
        with pq.ParquetWriter(f, schema, metadata_collector=footers, **options) as out:
            writing = Writing(out)
            yield writing
        _add_trailer(f, footers[0], name_of(path).encode())
        files.record_values(path, writing.rows.hexdigest())


def _add_trailer(f: IO[bytes], metadata: pq.FileMetaData, name: bytes) -> None:
    f.flush()
    with files.reopened(f) as written:

        def read(offset: int, length: int) -> bytes:
            written.seek(offset)
            return written.read(length)

        places = map(_place, _columns(metadata))
        chunks = np.array([(*place, xxhash.xxh3_64_intdigest(read(*place))) for place in places], _CHUNK)
        size = written.seek(0, io.SEEK_END)
        begin = size - 8 - int.from_bytes(read(size - 8, 4), "little")
        footer = read(begin, size - begin)
    assert begin == len(_PARQUET) + chunks["length"].sum(), "column chunks are all that stands before the footer"
    chunk_list = chunks.tobytes() + name + len(chunks).to_bytes(8, "little") + len(name).to_bytes(8, "little")
    f.seek(begin)
    f.write(chunk_list + xxhash.xxh3_128_digest(chunk_list + footer) + MARK + footer)


def _columns(metadata: pq.FileMetaData) -> Iterator[pq.ColumnChunkMetaData]:
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        yield from map(group.column, range(metadata.num_columns))


def _place(column: pq.ColumnChunkMetaData) -> tuple[int, int]:
    """Offset and length of a column chunk."""
    begin = column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset
    return begin, column.total_compressed_size


def _digest(data: Any, offset: int, length: int) -> int:
    return xxhash.xxh3_64_intdigest(memoryview(data)[offset : offset + length])


class _Mapped:
    """A local file, mapped into memory for each read, so that what is read of hundreds of open files does not stay."""

    def __init__(self, path: str) -> None:
        self._path = path
        with open(path, "rb") as f:
            self.size = f.seek(0, io.SEEK_END)

    def tail(self, length: int) -> pa.Buffer:
        return self.having(())[max(0, self.size - length) :]

    def having(self, ranges: Iterable[tuple[int, int]]) -> pa.Buffer:
        # an empty file cannot be mapped
        return pa.memory_map(self._path).read_buffer() if self.size else pa.py_buffer(b"")


class _Fetched:
    """A remote file, of which ranges are fetched."""

    def __init__(self, f: io.BufferedReader | io.RawIOBase) -> None:
        self.size = f.seek(0, io.SEEK_END)
        self._file = f

    def tail(self, length: int) -> pa.Buffer:
        begin = max(0, self.size - length)
        data = bytearray(self.size - begin)
        self._fill(memoryview(data), begin)
        return pa.py_buffer(data)

    def having(self, ranges: Iterable[tuple[int, int]]) -> pa.Buffer:
        """A buffer of the file's length with these ranges (offset, length) in their places. What is between them takes
        no memory, since nothing is written there."""
        data = np.zeros(self.size, np.uint8)
        for begin, end in _joined(ranges, configured()):
            self._fill(data[begin:end].data, begin)
        return pa.py_buffer(data)

    def _fill(self, target: memoryview, begin: int) -> None:
        self._file.seek(begin)
        while target and (read := self._file.readinto(target)):
            target = target[read:]


def _joined(ranges: Iterable[tuple[int, int]], remote_io: RemoteIOConfig) -> Iterator[tuple[int, int]]:
    """Begins and ends of the requests that fetch some ranges: near ones in one, none longer than a block."""
    spans: list[list[int]] = []
    for offset, length in sorted(ranges):
        if spans and offset - spans[-1][1] <= remote_io.gap_bytes:
            spans[-1][1] = max(spans[-1][1], offset + length)
        else:
            spans.append([offset, offset + length])
    for begin, end in spans:
        for start in range(begin, end, remote_io.block_bytes):
            yield start, min(start + remote_io.block_bytes, end)


class CheckedFile:
    """An open file. `metadata`: its footer, parsed; `schema`: of its tables."""

    def __init__(self, path: str, data: _Mapped | _Fetched) -> None:
        self._path, self._data = path, data
        footer, chunks = self._end()
        self.metadata = pq.read_metadata(pa.BufferReader(footer))
        self.schema = self.metadata.schema.to_arrow_schema()
        self._chunks = chunks.reshape(self.metadata.num_row_groups, self.metadata.num_columns)
        leaves = self.metadata.schema
        self._columns = np.array([leaves.column(i).path.partition(".")[0] for i in range(len(leaves))])

    def read(self, groups: Sequence[int] | None = None, columns: list[str] | None = None) -> pa.Table:
        """The table, or some of its row groups, or of its columns. Holds them, and of a remote file their bytes.

        Uses only the calling thread: shards are read in parallel, one per core, where more threads cost 50% more.
        Raises DamagedFileError if the requested data are not what was written.
        """
        group_numbers = range(self.metadata.num_row_groups) if groups is None else groups
        column_indexes = np.flatnonzero(np.isin(self._columns, columns)) if columns is not None else slice(None)
        chunks = self._chunks[list(group_numbers)][:, column_indexes].reshape(-1)
        data = self._data.having(zip(chunks["offset"].tolist(), chunks["length"].tolist(), strict=True))
        if isinstance(self._data, _Mapped):  # what is fetched is counted as it comes
            traffic.count_read(int(chunks["length"].sum()))
        for offset, length, digest in chunks.tolist():
            if _digest(data, offset, length) != digest:
                raise damaged(self._path, f"is damaged between bytes {offset} and {offset + length}")
        file = pq.ParquetFile(pa.BufferReader(data), metadata=self.metadata)
        return file.read_row_groups(list(group_numbers), columns=columns, use_threads=False)

    def _end(self) -> tuple[pa.Buffer, np.ndarray]:
        """The footer with its length and mark, and the list of column chunks."""
        tail = self._data.tail(_TAIL)
        footer = int.from_bytes(tail[-8:-4].to_pybytes(), "little") + 8
        if footer + _END > self._data.size:
            raise damaged(self._path, "is damaged at its end")
        if footer + _END > len(tail):
            tail = self._data.tail(footer + _END)
        stop = len(tail) - footer
        end = tail[stop - _END : stop].to_pybytes()
        if not end.endswith(MARK):
            raise damaged(self._path, "is damaged at its end, or was not written by this version")
        chunks = int.from_bytes(end[:8], "little") * _CHUNK.itemsize
        list_length = chunks + int.from_bytes(end[8:16], "little") + _END
        if list_length + footer > self._data.size:
            raise damaged(self._path, "is damaged at its end")
        if list_length + footer > len(tail):
            tail = self._data.tail(list_length + footer)
            stop = len(tail) - footer
        digest = xxhash.xxh3_128()
        digest.update(tail[stop - list_length : stop - _END + 16])
        digest.update(tail[stop:])
        if digest.digest() != end[16:32]:
            raise damaged(self._path, "is damaged at its end")
        begin = stop - list_length
        check_name(self._path, tail[begin + chunks : stop - _END].to_pybytes().decode())
        return tail[stop:], np.frombuffer(tail[begin : begin + chunks], _CHUNK)


@contextmanager
def open_checked(path: str) -> Iterator[CheckedFile]:
    """A file that `create` has written under this name. Raises MissingFileError, and DamagedFileError for any other
    file."""
    traffic.count_opened()
    try:
        if files.is_local(path):
            source: Any = _Mapped(files.local_copy(path))
        else:
            from gristmill.storage.remote import streams  # its libraries take long to import

            source = streams.open_ranges(path)
    except FileNotFoundError:
        raise missing(path) from None
    if isinstance(source, _Mapped):
        yield CheckedFile(path, source)
        return
    with source as f:
        yield CheckedFile(path, _Fetched(f))


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
    with create_checked(path, table.schema, **_options(table.schema), use_dictionary=short) as out:
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
    with create_checked(path, schema, **_options(schema), use_dictionary=False) as out:
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
    """The shards in a folder, by name; none if the folder does not exist."""
    return [files.join(folder, name) for name in files.names(folder) if name.endswith(".parquet")]


def groups(path: str, columns: list[str] | None = None) -> Iterator[pa.Table]:
    """The shard's table, row group by row group."""
    with open_checked(path) as shard:
        for group in range(shard.metadata.num_row_groups):
            yield shard.read([group], columns)


def schema(path: str) -> pa.Schema:
    """The columns, from the footer only."""
    with open_checked(path) as shard:
        return shard.schema


def columns(path: str) -> list[str]:
    """Names of the columns, from the footer only."""
    return schema(path).names


def rows(path: str) -> int:
    """Number of rows, from the footer only."""
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
