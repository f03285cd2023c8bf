"""Single rows of a shard, by number."""

import mmap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from storage import files
from tasks.kernels.pages import gathered, offset_indexes, page_headers, page_places, texts

# Bytes that a page's header has at most, where it has no statistics.
_HEADER = 64
# So many pages of texts are unpacked at once, and about so many bytes of them: to begin takes zstd a third of the time
# that it needs for one.
_PAGES, _PACKED = 128, 1 << 21
# So many of these pieces the disk is told of ahead.
_AHEAD = 2
# Pieces that are so near to each other are asked of the disk as one: to ask costs about as much as so many bytes more.
_NEAR = 1 << 14


def read_rows(path: str, rows: np.ndarray, columns: list[str]) -> pa.Table:
    """The rows of a shard with these numbers, each once and ascending.

    Holds them, a few MB of pages of texts, and the short columns of all row groups that have one; of a shard without an
    index of its pages the texts and hashes of one row group. Raises ValueError for other numbers, OSError where page
    index, headers of pages or lengths are damaged.
    """
    return _Rows(path, rows, columns).read()


def read_each(asked: Iterable[tuple[str, np.ndarray]], columns: list[str]) -> Iterator[pa.Table]:
    """For each shard and the numbers of some of its rows these, as `read_rows` has them. The disk is told of the next
    ones before the caller has those before them."""
    waiting = None
    for path, rows in asked:
        following = _Rows(path, rows, columns)
        if waiting:
            yield waiting.read()
        waiting = following
    if waiting:
        yield waiting.read()


class _Rows:
    """Some rows of a shard, of which the disk has been told."""

    def __init__(self, path: str, rows: np.ndarray, columns: list[str]):
        self._path, self._columns = path, columns
        self._f = files.open_mapped(path)
        with _named(path):
            self._shard = pq.ParquetFile(self._f)
        self._schema, metadata = self._shard.schema_arrow, self._shard.metadata
        ends = np.cumsum([0, *(metadata.row_group(g).num_rows for g in range(metadata.num_row_groups))])
        if (np.diff(rows, prepend=-1, append=ends[-1]) <= 0).any():
            raise ValueError(f"the rows asked of {path} do not ascend, each once, or are not all in it")
        numbers, self._of = np.unique(np.searchsorted(ends, rows, side="right") - 1, return_inverse=True)
        self._groups = [_Group(g, metadata.row_group(g)) for g in numbers.tolist()]
        # from here on rows are counted in the row groups that have one, and in no others
        self._begins = np.cumsum([0, *(group.told.num_rows for group in self._groups)])
        self._at = rows - ends[numbers][self._of] + self._begins[self._of]
        self._long = [self._schema.field(name) for name in columns if _is_long(self._schema.field(name).type)]
        self._pages: dict[str, _Pages] = {}
        if self._groups and self._long:
            with _named(path):
                self._file = _Pieces(self._f)
                self._pages = _located(self._file, metadata, self._groups, self._begins, self._at, self._long)

    def read(self) -> pa.Table:
        with self._f, _named(self._path):
            found: dict[str, pa.ChunkedArray] = {}
            for field in self._long:
                if pages := self._pages.get(field.name):
                    values = _hashes if pa.types.is_fixed_size_binary(field.type) else _texts
                    found[field.name] = pa.chunked_array(values(self._file, pages, field), field.type)
            if whole := [field for field in self._long if field.name not in found]:
                pieces = [pa.schema(whole).empty_table()]
                for number, group in enumerate(self._groups):
                    read = self._shard.read_row_group(group.number, columns=pieces[0].column_names, use_threads=False)
                    pieces.append(read.take(pa.array(self._at[self._of == number] - self._begins[number])))
                found |= _columns(pa.concat_tables(pieces))
            if short := [name for name in self._columns if name not in found]:
                numbers = [group.number for group in self._groups]
                read = self._shard.read_row_groups(numbers, columns=short, use_threads=False)
                found |= _columns(read.take(pa.array(self._at)))
        schema = pa.schema([self._schema.field(name) for name in self._columns])
        return pa.table([found[name] for name in self._columns], schema=schema)


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Errors of what is read say where that is."""
    try:
        yield
    except (OSError, pa.ArrowInvalid) as error:
        error.add_note(f"in {path}; remove the stage's folder to compute it again")
        raise


def _columns(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    return dict(zip(table.column_names, table.columns, strict=True))


def _is_long(kind: pa.DataType) -> bool:
    """Whether it is the type of a text or of a hash."""
    return pa.types.is_large_string(kind) or pa.types.is_fixed_size_binary(kind)


@dataclass(frozen=True)
class _Group:
    """A row group, and what the footer tells of it."""

    number: int
    told: pq.RowGroupMetaData


@dataclass(frozen=True)
class _Pages:
    """Those pages of a column that have a row that is asked for, and where these rows are: all int64."""

    starts: np.ndarray  # where each begins, with its header
    sizes: np.ndarray  # its bytes, with its header
    counts: np.ndarray  # its values
    page: np.ndarray  # of each row which page it is in
    rows: np.ndarray  # and which row of that it is


class _Pieces:
    """A file of which pieces are read. A local one is mapped, once; it ends with the last array that is part of it."""

    def __init__(self, f: IO[bytes]):
        self._f = f
        self.size = f.seek(0, 2)
        self._data = None
        if isinstance(f, pa.NativeFile):
            mapped = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
            if hasattr(mmap, "MADV_RANDOM"):
                mapped.madvise(mmap.MADV_RANDOM)
            self._data = np.frombuffer(mapped, np.uint8)

    def readahead(self, starts: np.ndarray, sizes: np.ndarray) -> None:
        """Tell the disk of all pieces that will be read: one by one each would be waited for."""
        self._check(starts, sizes)
        if self._data is None or not len(starts):
            return
        ends = starts + sizes
        apart = np.flatnonzero(starts[1:] > ends[:-1] + _NEAR)
        for low, high in zip(
            starts[np.append(0, apart + 1)].tolist(), ends[np.append(apart, -1)].tolist(), strict=True
        ):
            files.readahead(self._f, low, high)

    def held(self, starts: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Bytes, uint8, that have some pieces, and where each begins in them."""
        self._check(starts, sizes)
        if self._data is not None:
            return self._data, starts
        pieces = [self._piece(start, size) for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)]
        if [len(piece) for piece in pieces] != sizes.tolist():
            raise OSError("the file ended before all was read")
        return np.frombuffer(b"".join(pieces), np.uint8), np.cumsum(sizes) - sizes

    def _check(self, starts: np.ndarray, sizes: np.ndarray) -> None:
        if ((starts < 0) | (sizes < 0) | (sizes > self.size - starts)).any():
            raise OSError("a page would lie outside of the file")

    def _piece(self, start: int, size: int) -> bytes:
        self._f.seek(start)
        return self._f.read(size)


def _located(
    file: _Pieces,
    metadata: pq.FileMetaData,
    groups: list[_Group],
    begins: np.ndarray,
    rows: np.ndarray,
    fields: list[pa.Field],
) -> dict[str, _Pages]:
    """Where some rows lie of those columns whose pages can be read one by one; `begins`: the n+1 ends of the row
    groups. The disk is told of what will be read first."""
    found = {}
    indexes = _offset_indexes(file, metadata)
    names = {groups[0].told.column(i).path_in_schema: i for i in range(metadata.num_columns)}
    for field in fields:
        if (column := names.get(field.name)) is None:
            continue
        chunks = [group.told.column(column) for group in groups]
        if all(_is_paged(chunk, field) for chunk in chunks):
            pages = _pages(file, chunks, begins, rows, indexes[[group.number for group in groups], column])
            if pa.types.is_fixed_size_binary(field.type):
                file.expect(pages.starts, np.minimum(pages.sizes, _HEADER))
                file.expect(*_places(pages, field))
            else:
                for low, high in _pieces(pages)[:_AHEAD]:
                    file.expect(pages.starts[low:high], pages.sizes[low:high])
            found[field.name] = pages
    return found


def _is_paged(chunk: pq.ColumnChunkMetaData, field: pa.Field) -> bool:
    """Whether the pages are such as `tasks.kernels.pages` reads, and packed as `storage.parquet` packs them."""
    packing = "UNCOMPRESSED" if pa.types.is_fixed_size_binary(field.type) else "ZSTD"
    alike = chunk.compression == packing and set(chunk.encodings) <= {"PLAIN", "RLE"}
    return not field.nullable and alike and chunk.has_offset_index


def _offset_indexes(file: _Pieces, metadata: pq.FileMetaData) -> np.ndarray:
    """Where the offset indexes are: int64, (row groups, columns, 2), where each begins and how long it is."""
    size = metadata.serialized_size
    end = file.size - 8  # the footer's length and the file's mark
    data, [start] = file.held(np.array([end - size]), np.array([size]))
    found = offset_indexes(data[start : start + size], metadata.num_row_groups, metadata.num_columns)
    if found is None:
        raise OSError("the footer is damaged")
    return found


def _pages(
    file: _Pieces, chunks: list[pq.ColumnChunkMetaData], begins: np.ndarray, rows: np.ndarray, indexes: np.ndarray
) -> _Pages:
    """Those pages of a column that have one of some rows; `indexes`: where the offset index of each row group begins,
    and how long it is."""
    file.expect(*indexes.T)
    data, places = file.held(*indexes.T)
    found = []
    for chunk, place, size, begin, end in zip(
        chunks, places.tolist(), indexes[:, 1].tolist(), begins[:-1].tolist(), begins[1:].tolist(), strict=True
    ):
        first, last = chunk.data_page_offset, chunk.data_page_offset + chunk.total_compressed_size
        pages = page_places(data[place : place + size], end - begin, first, last)
        if pages is None:
            raise OSError(f"the index of the pages of the column {chunk.path_in_schema} is damaged")
        pages[2] += begin
        found.append(pages)
    starts, sizes, firsts = np.concatenate(found, axis=1)
    each, page = np.unique(np.searchsorted(firsts, rows, side="right") - 1, return_inverse=True)
    counts = np.diff(firsts, append=begins[-1])
    return _Pages(starts[each], sizes[each], counts[each], page, rows - firsts[each][page])


def _places(pages: _Pages, field: pa.Field) -> tuple[np.ndarray, np.ndarray]:
    """Where each hash begins, and how long it is, if the pages are whole: they end with them."""
    width = field.type.byte_width
    values = pages.starts + pages.sizes - pages.counts * width
    return values[pages.page] + pages.rows * width, np.full(len(pages.rows), width)


def _hashes(file: _Pieces, pages: _Pages, field: pa.Field) -> list[pa.Array]:
    begin = np.minimum(pages.sizes, _HEADER)
    headers, sizes, _ = page_headers(*file.held(pages.starts, begin), begin, pages.counts)
    if ((headers < 0) | (sizes != pages.counts * field.type.byte_width) | (headers + sizes != pages.sizes)).any():
        raise _damaged(field)
    starts, widths = _places(pages, field)
    data = gathered(*file.held(starts, widths), widths)
    return [pa.Array.from_buffers(field.type, len(starts), [None, pa.py_buffer(data)])]


def _texts(file: _Pieces, pages: _Pages, field: pa.Field) -> list[pa.Array]:
    found = []
    pieces = _pieces(pages)
    for number, (low, high) in enumerate(pieces):
        for first, last in pieces[number + _AHEAD : number + _AHEAD + 1]:
            file.expect(pages.starts[first:last], pages.sizes[first:last])
        each = pages.sizes[low:high]
        data, starts = file.held(pages.starts[low:high], each)
        headers, sizes, packed = page_headers(data, starts, each, pages.counts[low:high])
        if ((headers < 0) | (headers + packed != each)).any():
            raise _damaged(field)
        # as one: what zstd has packed page by page may be unpacked one page after the other
        body = pa.decompress(gathered(data, starts + headers, packed), int(sizes.sum()), "zstd")
        first, last = np.searchsorted(pages.page, [low, high])
        asked = pages.page[first:last] - low, pages.rows[first:last]
        values, offsets = texts(np.frombuffer(body, np.uint8), np.cumsum(sizes), *asked)
        if offsets[-1] < 0:
            raise _damaged(field)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
        found.append(pa.Array.from_buffers(field.type, len(offsets) - 1, buffers))
    return found


def _pieces(pages: _Pages) -> list[tuple[int, int]]:
    """From and up to which page texts are unpacked at once."""
    full = np.cumsum(pages.sizes) // _PACKED
    return list(pairwise([0, *_cuts(full), len(full)]))


def _cuts(full: np.ndarray) -> list[int]:
    """Where, of ascending numbers, a new one begins or `_PAGES` are together."""
    part = np.arange(len(full)) // _PAGES
    return (np.flatnonzero((np.diff(full) > 0) | (np.diff(part) > 0)) + 1).tolist()


def _damaged(field: pa.Field) -> OSError:
    return OSError(f"a page of the column {field.name} is damaged, or not of version 1")
