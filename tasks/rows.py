"""Single rows of a shard, by number."""

import mmap
import os
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
# Pieces that are so near to each other are asked of the disk as one, of which it takes no more than this much.
_NEAR, _ASKED = 1 << 13, 1 << 17


def read_rows(path: str, rows: np.ndarray, columns: list[str]) -> pa.Table:
    """The rows of a shard with these numbers, each once and ascending.

    Holds them, a few MB of pages of texts, and the short columns of all row groups that have one; of a shard without an
    index of its pages the texts and hashes of one row group. Raises ValueError for other numbers, OSError where page
    index, headers of pages or lengths are damaged.
    """
    with files.open_mapped(path) as f:
        shard = pq.ParquetFile(f)
        schema, metadata = shard.schema_arrow, shard.metadata
        ends = np.cumsum([0, *(metadata.row_group(g).num_rows for g in range(metadata.num_row_groups))])
        if (np.diff(rows, prepend=-1, append=ends[-1]) <= 0).any():
            raise ValueError(f"the rows asked of {path} do not ascend, each once, or are not all in it")
        numbers, of = np.unique(np.searchsorted(ends, rows, side="right") - 1, return_inverse=True)
        groups = [_Group(g, metadata.row_group(g)) for g in numbers.tolist()]
        # from here on rows are counted in the row groups that have one, and in no others
        begins = np.cumsum([0, *(group.told.num_rows for group in groups)])
        at = rows - ends[numbers][of] + begins[of]
        long = [schema.field(name) for name in columns if _is_long(schema.field(name).type)]
        found: dict[str, pa.ChunkedArray] = {}
        try:
            if groups and long:
                found |= _of_pages(_Pieces(f), metadata, groups, begins, at, long)
            if whole := [field for field in long if field.name not in found]:
                pieces = [pa.schema(whole).empty_table()]
                for number, group in enumerate(groups):
                    read = shard.read_row_group(group.number, columns=pieces[0].column_names, use_threads=False)
                    pieces.append(read.take(pa.array(at[of == number] - begins[number])))
                found |= _columns(pa.concat_tables(pieces))
        except (OSError, pa.ArrowInvalid) as error:
            error.add_note(f"in {path}; remove the stage's folder to compute it again")
            raise
        if short := [name for name in columns if name not in found]:
            read = shard.read_row_groups(numbers.tolist(), columns=short, use_threads=False)
            found |= _columns(read.take(pa.array(at)))
    return pa.table([found[name] for name in columns], schema=pa.schema([schema.field(name) for name in columns]))


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

    def held(self, starts: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Bytes, uint8, that have some pieces, and where each begins in them.

        The disk is told first of all that will be read: one by one each piece would be waited for.
        """
        if ((starts < 0) | (sizes < 0) | (sizes > self.size - starts)).any():
            raise OSError("a page would lie outside of the file")
        if self._data is None:
            pieces = [self._piece(start, size) for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)]
            if [len(piece) for piece in pieces] != sizes.tolist():
                raise OSError("the file ended before all was read")
            return np.frombuffer(b"".join(pieces), np.uint8), np.cumsum(sizes) - sizes
        if hasattr(os, "posix_fadvise"):
            ends = starts + sizes
            apart = np.flatnonzero(starts[1:] > ends[:-1] + _NEAR)
            spans = zip(starts[np.append(0, apart + 1)].tolist(), ends[np.append(apart, -1)].tolist(), strict=True)
            for low, high in spans:
                for at in range(low, high, _ASKED):
                    os.posix_fadvise(self._f.fileno(), at, min(_ASKED, high - at), os.POSIX_FADV_WILLNEED)
        return self._data, starts

    def _piece(self, start: int, size: int) -> bytes:
        self._f.seek(start)
        return self._f.read(size)


def _of_pages(
    file: _Pieces,
    metadata: pq.FileMetaData,
    groups: list[_Group],
    begins: np.ndarray,
    rows: np.ndarray,
    fields: list[pa.Field],
) -> dict[str, pa.ChunkedArray]:
    """Some rows of those columns whose pages can be read one by one; `begins`: the n+1 ends of the row groups."""
    found = {}
    indexes = _offset_indexes(file, metadata)
    names = {groups[0].told.column(i).path_in_schema: i for i in range(metadata.num_columns)}
    for field in fields:
        if (column := names.get(field.name)) is None:
            continue
        chunks = [group.told.column(column) for group in groups]
        if all(_is_paged(chunk, field) for chunk in chunks):
            values = _hashes if pa.types.is_fixed_size_binary(field.type) else _texts
            pages = _pages(file, chunks, begins, rows, indexes[[group.number for group in groups], column])
            found[field.name] = pa.chunked_array(values(file, pages, field), field.type)
    return found


def _is_paged(chunk: pq.ColumnChunkMetaData, field: pa.Field) -> bool:
    """Whether the pages are such as `tasks.kernels.pages` reads, and packed as `storage.shards` packs them."""
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


def _hashes(file: _Pieces, pages: _Pages, field: pa.Field) -> list[pa.Array]:
    width = field.type.byte_width
    begin = np.minimum(pages.sizes, _HEADER)
    headers, sizes, _ = page_headers(*file.held(pages.starts, begin), begin, pages.counts)
    if ((headers < 0) | (sizes != pages.counts * width) | (headers + sizes != pages.sizes)).any():
        raise _damaged(field)
    starts = (pages.starts + headers)[pages.page] + pages.rows * width
    widths = np.full(len(starts), width)
    data = gathered(*file.held(starts, widths), widths)
    return [pa.Array.from_buffers(field.type, len(starts), [None, pa.py_buffer(data)])]


def _texts(file: _Pieces, pages: _Pages, field: pa.Field) -> list[pa.Array]:
    found = []
    full = np.cumsum(pages.sizes) // _PACKED
    for low, high in pairwise([0, *_cuts(full), len(full)]):
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


def _cuts(full: np.ndarray) -> list[int]:
    """Where, of ascending numbers, a new one begins or `_PAGES` are together."""
    part = np.arange(len(full)) // _PAGES
    return (np.flatnonzero((np.diff(full) > 0) | (np.diff(part) > 0)) + 1).tolist()


def _damaged(field: pa.Field) -> OSError:
    return OSError(f"a page of the column {field.name} is damaged, or not of version 1")
