"""Single rows of a shard, by number."""

from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.lib.stride_tricks import sliding_window_view

from storage import files
from tasks.kernels.pages import pages, take

# If less than one row of so many is asked for, single pages are opened; of more rows Arrow reads all as fast.
_FEW = 8


def read_rows(path: str, rows: np.ndarray, columns: list[str]) -> pa.Table:
    """The rows of a shard with these numbers, each once and ascending.

    Holds them, the short columns of all row groups that have one, and texts and hashes of one of these; where few rows
    are asked for, of texts and hashes only the pages that have one. Raises ValueError for other numbers, OSError where
    headers of pages or lengths are damaged.
    """
    if (rows[1:] <= rows[:-1]).any():
        raise ValueError(f"the rows asked of {path} do not ascend, each once")
    with files.open_mapped(path) as f:
        shard = pq.ParquetFile(f)
        schema = shard.schema_arrow
        sizes = np.array([shard.metadata.row_group(g).num_rows for g in range(shard.num_row_groups)], np.int64)
        ends = np.cumsum(sizes)
        groups, of = np.unique(np.searchsorted(ends, rows, side="right"), return_inverse=True)
        inside = [rows[of == i] - (ends - sizes)[group] for i, group in enumerate(groups)]
        long = [name for name in columns if _is_long(schema.field(name).type)]
        pieces = [schema.empty_table().select(long)]
        for group, wanted in zip(groups.tolist(), inside, strict=True):
            try:
                pieces.append(_long_of_group(f, shard, group, wanted, long))
            except (OSError, pa.ArrowInvalid) as error:
                error.add_note(f"row group {group} of {path}; remove the stage's folder to compute it again")
                raise
        found = dict(zip(long, pa.concat_tables(pieces).columns, strict=True))
        if short := [name for name in columns if name not in long]:
            begins = np.cumsum(sizes[groups]) - sizes[groups]
            read = shard.read_row_groups(groups.tolist(), columns=short, use_threads=False)
            read = read.take(pa.array(rows - (ends - sizes)[groups][of] + begins[of]))
            found |= dict(zip(short, read.columns, strict=True))
    return pa.table([found[name] for name in columns], schema=pa.schema([schema.field(name) for name in columns]))


def _long_of_group(f: IO[bytes], shard: pq.ParquetFile, group: int, rows: np.ndarray, columns: list[str]) -> pa.Table:
    """The texts and hashes of some rows of a row group."""
    told = shard.metadata.row_group(group)
    chunks = {chunk.path_in_schema: chunk for chunk in map(told.column, range(told.num_columns))}
    fields = [shard.schema_arrow.field(name) for name in columns]
    few = len(rows) * _FEW < told.num_rows
    paged = [field for field in fields if few and _is_paged(chunks[field.name], field)]
    whole = [field.name for field in fields if field not in paged]
    read = shard.read_row_group(group, columns=whole, use_threads=False).take(pa.array(rows)) if whole else None
    found = {field.name: _values(f, chunks[field.name], field, rows) for field in paged}
    found |= {name: read[name] for name in whole}
    return pa.table([found[name] for name in columns], schema=pa.schema(fields))


def _is_long(kind: pa.DataType) -> bool:
    """Whether it is the type of a text or of a hash."""
    return pa.types.is_large_string(kind) or pa.types.is_fixed_size_binary(kind)


def _is_paged(chunk: pq.ColumnChunkMetaData, field: pa.Field) -> bool:
    """Whether the pages are such as `tasks.kernels.pages` reads, and packed as `storage.shards` packs them."""
    packing = "UNCOMPRESSED" if pa.types.is_fixed_size_binary(field.type) else "ZSTD"
    return not field.nullable and chunk.compression == packing and set(chunk.encodings) <= {"PLAIN", "RLE"}


def _values(f: IO[bytes], chunk: pq.ColumnChunkMetaData, field: pa.Field, rows: np.ndarray) -> pa.Array:
    """Some values of a column of a row group."""
    f.seek(chunk.data_page_offset)
    size = chunk.total_compressed_size
    raw = np.frombuffer(f.read_buffer(size) if isinstance(f, pa.NativeFile) else f.read(size), np.uint8)
    found = pages(raw, chunk.num_values)
    if found is None:
        raise OSError(f"the pages of the column {field.name} are damaged, or not of version 1")
    ends = np.cumsum(found[3])
    page = np.searchsorted(ends, rows, side="right")
    inside = rows - (ends - found[3])[page]
    values = _hashes if pa.types.is_fixed_size_binary(field.type) else _texts
    return values(raw, found, page, inside, field)


def _hashes(raw: np.ndarray, found: np.ndarray, page: np.ndarray, inside: np.ndarray, field: pa.Field) -> pa.Array:
    width = field.type.byte_width
    if (found[1] != found[3] * width).any():
        raise OSError(f"a page of the column {field.name} is damaged")
    data = sliding_window_view(raw, width)[found[0][page] + inside * width]
    return pa.Array.from_buffers(field.type, len(page), [None, pa.py_buffer(data)])


def _texts(raw: np.ndarray, found: np.ndarray, page: np.ndarray, inside: np.ndarray, field: pa.Field) -> pa.Array:
    each, counts = np.unique(page, return_counts=True)
    data = np.empty(found[2][each].sum(), np.uint8)
    offsets = np.zeros(len(page) + 1, np.int64)
    done = 0
    for number, count in zip(each.tolist(), counts.tolist(), strict=True):
        start, packed, size, _ = found[:, number].tolist()
        body = np.frombuffer(pa.decompress(raw[start : start + packed], size, "zstd"), np.uint8)
        if not take(body, inside[done : done + count], data, offsets[done : done + count + 1]):
            raise OSError(f"a page of the column {field.name} is damaged")
        done += count
    return pa.Array.from_buffers(field.type, len(page), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
