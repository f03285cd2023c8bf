"""Single rows of a shard, by number."""

import os
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from storage import files
from tasks.kernels.pages import offset_indexes, page_header, page_places, take

# If less than one row of so many is asked for, single pages are opened; of more rows Arrow reads all as fast.
_FEW = 8
# Bytes that a page's header has at most, where it has no statistics.
_HEADER = 64


def read_rows(path: str, rows: np.ndarray, columns: list[str]) -> pa.Table:
    """The rows of a shard with these numbers, each once and ascending.

    Holds them, the short columns of all row groups that have one, and texts and hashes of one of these; where few rows
    are asked for, of texts and hashes only the pages, or the rows, that are. Raises ValueError for other numbers,
    OSError where page index, headers of pages or lengths are damaged.
    """
    if (rows[1:] <= rows[:-1]).any():
        raise ValueError(f"the rows asked of {path} do not ascend, each once")
    with files.open_mapped(path) as f:
        shard = pq.ParquetFile(f)
        schema, metadata = shard.schema_arrow, shard.metadata
        sizes = np.array([metadata.row_group(g).num_rows for g in range(metadata.num_row_groups)], np.int64)
        ends = np.cumsum(sizes)
        groups, of = np.unique(np.searchsorted(ends, rows, side="right"), return_inverse=True)
        inside = [rows[of == i] - (ends - sizes)[group] for i, group in enumerate(groups)]
        long = [schema.field(name) for name in columns if _is_long(schema.field(name).type)]
        pieces = [pa.schema(long).empty_table()]
        try:
            places = _offset_indexes(f, metadata) if long and len(rows) * _FEW < sizes.sum() else None
            for group, wanted in zip(groups.tolist(), inside, strict=True):
                pieces.append(_long_of_group(f, shard, group, wanted, long, places))
        except (OSError, pa.ArrowInvalid) as error:
            error.add_note(f"in {path}; remove the stage's folder to compute it again")
            raise
        found = dict(zip([field.name for field in long], pa.concat_tables(pieces).columns, strict=True))
        if short := [name for name in columns if name not in found]:
            begins = np.cumsum(sizes[groups]) - sizes[groups]
            read = shard.read_row_groups(groups.tolist(), columns=short, use_threads=False)
            read = read.take(pa.array(rows - (ends - sizes)[groups][of] + begins[of]))
            found |= dict(zip(short, read.columns, strict=True))
    return pa.table([found[name] for name in columns], schema=pa.schema([schema.field(name) for name in columns]))


def _long_of_group(
    f: IO[bytes], shard: pq.ParquetFile, group: int, rows: np.ndarray, fields: list[pa.Field], places: np.ndarray | None
) -> pa.Table:
    """The texts and hashes of some rows of a row group; `places`: of the offset indexes."""
    told = shard.metadata.row_group(group)
    numbers = {told.column(i).path_in_schema: i for i in range(told.num_columns)}
    few = places is not None and len(rows) * _FEW < told.num_rows
    found, whole = {}, []
    for field in fields:
        number = numbers.get(field.name)
        if few and _is_paged(told.column(number), field):
            pages = _pages(f, told.column(number), places[group, number], told.num_rows)
            found[field.name] = _values(f, pages, told.num_rows, rows, field)
        else:
            whole.append(field.name)
    if whole:
        read = shard.read_row_group(group, columns=whole, use_threads=False).take(pa.array(rows))
        found |= {name: read[name] for name in whole}
    return pa.table([found[field.name] for field in fields], schema=pa.schema(fields))


def _is_long(kind: pa.DataType) -> bool:
    """Whether it is the type of a text or of a hash."""
    return pa.types.is_large_string(kind) or pa.types.is_fixed_size_binary(kind)


def _is_paged(chunk: pq.ColumnChunkMetaData, field: pa.Field) -> bool:
    """Whether the pages are such as `tasks.kernels.pages` reads, and packed as `storage.shards` packs them."""
    packing = "UNCOMPRESSED" if pa.types.is_fixed_size_binary(field.type) else "ZSTD"
    alike = chunk.compression == packing and set(chunk.encodings) <= {"PLAIN", "RLE"}
    return not field.nullable and alike and chunk.has_offset_index


def _read(f: IO[bytes], start: int, size: int) -> np.ndarray:
    """Bytes of a file, uint8, fewer where it ends before. Of a mapped one they are read: a page of it that is touched
    makes the disk fetch many around it."""
    if isinstance(f, pa.NativeFile):
        return np.frombuffer(os.pread(f.fileno(), size, start), np.uint8)
    f.seek(start)
    return np.frombuffer(f.read(size), np.uint8)


def _expect(f: IO[bytes], places: list[tuple[int, int]]) -> None:
    """Let the disk fetch all bytes that will be read, from where and how many: one by one each would be waited for."""
    if isinstance(f, pa.NativeFile) and hasattr(os, "posix_fadvise"):
        for start, size in places:
            os.posix_fadvise(f.fileno(), start, size, os.POSIX_FADV_WILLNEED)


def _offset_indexes(f: IO[bytes], metadata: pq.FileMetaData) -> np.ndarray:
    """Where the offset indexes are: int64, (row groups, columns, 2), where each begins and how long it is."""
    size = metadata.serialized_size
    end = f.seek(0, 2) - 8  # the footer's length and the file's mark
    found = offset_indexes(_read(f, end - size, size), metadata.num_row_groups, metadata.num_columns)
    if found is None:
        raise OSError("the footer is damaged")
    return found


def _pages(f: IO[bytes], chunk: pq.ColumnChunkMetaData, place: np.ndarray, rows: int) -> np.ndarray:
    """The pages of a column of a row group, as `page_places` gives them."""
    start, size = place.tolist()
    first, last = chunk.data_page_offset, chunk.data_page_offset + chunk.total_compressed_size
    found = page_places(_read(f, start, size), rows) if 0 <= size <= 1 << 30 else None
    if found is None or (found[0] < first).any() or (found[0] + found[1] > last).any():
        raise OSError(f"the index of the pages of the column {chunk.path_in_schema} is damaged")
    return found


def _values(f: IO[bytes], pages: np.ndarray, of: int, rows: np.ndarray, field: pa.Field) -> pa.Array:
    """Some values of a column of a row group of so many rows."""
    page = np.searchsorted(pages[2], rows, side="right") - 1
    each, first = np.unique(page, return_index=True)
    places = list(zip(*pages[:2, each].tolist(), strict=True))
    counts = np.diff(np.append(pages[2], of))[each].tolist()
    values = _hashes if pa.types.is_fixed_size_binary(field.type) else _texts
    return values(f, places, counts, rows - pages[2][page], np.append(first, len(rows)).tolist(), field)


def _hashes(
    f: IO[bytes], pages: list[tuple[int, int]], counts: list[int], rows: np.ndarray, ends: list[int], field: pa.Field
) -> pa.Array:
    """The values `rows[ends[i]:ends[i + 1]]` of page i, which has `counts[i]`."""
    width = field.type.byte_width
    found = []
    for i, (start, stored) in enumerate(pages):
        header, size, _, count = page_header(_read(f, start, min(stored, _HEADER)))
        if header < 0 or count != counts[i] or size != count * width or header + size > stored:
            raise _damaged(field)
        places = [(start + header + row * width, width) for row in rows[ends[i] : ends[i + 1]].tolist()]
        _expect(f, places)
        found += [_read(f, *place) for place in places]
    data = np.concatenate(found)
    if len(data) != len(rows) * width:
        raise _damaged(field)
    return pa.Array.from_buffers(field.type, len(rows), [None, pa.py_buffer(data)])


def _texts(
    f: IO[bytes], pages: list[tuple[int, int]], counts: list[int], rows: np.ndarray, ends: list[int], field: pa.Field
) -> pa.Array:
    """The values `rows[ends[i]:ends[i + 1]]` of page i, which has `counts[i]`."""
    _expect(f, pages)
    raw = [_read(f, *place) for place in pages]
    headers = [page_header(page) for page in raw]
    for page, (header, _, packed, count), wanted in zip(raw, headers, counts, strict=True):
        if header < 0 or count != wanted or header + packed > len(page):
            raise _damaged(field)
    data = np.empty(sum(size for _, size, _, _ in headers), np.uint8)
    offsets = np.zeros(len(rows) + 1, np.int64)
    for i, (page, (header, size, packed, _)) in enumerate(zip(raw, headers, strict=True)):
        body = np.frombuffer(pa.decompress(page[header : header + packed], size, "zstd"), np.uint8)
        begin, end = ends[i], ends[i + 1]
        if not take(body, rows[begin:end], data, offsets[begin : end + 1]):
            raise _damaged(field)
    return pa.Array.from_buffers(field.type, len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _damaged(field: pa.Field) -> OSError:
    return OSError(f"a page of the column {field.name} is damaged, or not of version 1")
