"""Single rows of a shard, by number."""

from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from storage import files
from tasks.kernels.pages import pages, take

# If less than one row of so many is asked for, single pages are opened; of more rows Arrow reads all as fast.
_FEW = 8
_CODECS = {"ZSTD": "zstd", "UNCOMPRESSED": None}
_KINDS = (pa.types.is_large_string, pa.types.is_fixed_size_binary)


def read_rows(path: str, rows: np.ndarray, columns: list[str]) -> pa.Table:
    """The rows of a shard with these numbers, each once and ascending.

    Holds them and the chosen columns of one row group; of texts and hashes, where few rows are asked for, only the
    pages that have one. Raises ValueError for other numbers, OSError where headers of pages or lengths are damaged.
    """
    if (rows[1:] <= rows[:-1]).any():
        raise ValueError(f"the rows asked of {path} do not ascend, each once")
    with files.open_mapped(path) as f:
        shard = pq.ParquetFile(f)
        ends = np.cumsum([shard.metadata.row_group(g).num_rows for g in range(shard.num_row_groups)])
        pieces = [shard.schema_arrow.empty_table().select(columns)]
        of = np.searchsorted(ends, rows, side="right")
        for group in np.unique(of).tolist():
            first = ends[group] - shard.metadata.row_group(group).num_rows
            pieces.append(_of_group(f, shard, group, rows[of == group] - first, columns))
    return pa.concat_tables(pieces)


def _of_group(f: IO[bytes], shard: pq.ParquetFile, group: int, rows: np.ndarray, columns: list[str]) -> pa.Table:
    told = shard.metadata.row_group(group)
    chunks = {chunk.path_in_schema: chunk for chunk in map(told.column, range(told.num_columns))}
    fields = [shard.schema_arrow.field(name) for name in columns]
    few = len(rows) * _FEW < told.num_rows
    paged = [field for field in fields if few and _is_paged(chunks.get(field.name), field)]
    whole = [field.name for field in fields if field not in paged]
    read = shard.read_row_group(group, columns=whole, use_threads=False).take(pa.array(rows)) if whole else None
    found = {field.name: _values(f, chunks[field.name], field, rows) for field in paged}
    found |= {name: read[name] for name in whole}
    return pa.table([found[name] for name in columns], schema=pa.schema(fields))


def _is_paged(chunk: pq.ColumnChunkMetaData | None, field: pa.Field) -> bool:
    """Whether the pages are such as `tasks.kernels.pages` reads, and worth it."""
    return (
        any(is_kind(field.type) for is_kind in _KINDS)
        and not field.nullable
        and chunk.compression in _CODECS
        and set(chunk.encodings) <= {"PLAIN", "RLE"}
    )


def _values(f: IO[bytes], chunk: pq.ColumnChunkMetaData, field: pa.Field, rows: np.ndarray) -> pa.Array:
    """Some values of a column of a row group."""
    f.seek(chunk.data_page_offset)
    size = chunk.total_compressed_size
    raw = np.frombuffer(f.read_buffer(size) if isinstance(f, pa.NativeFile) else f.read(size), np.uint8)
    found = pages(raw, chunk.num_values)
    if found is None:
        raise OSError(f"the pages of the column {field.name} are damaged, or not of version 1")
    starts, packed, sizes, counts = found
    ends = np.cumsum(counts)
    of, counts = np.unique(np.searchsorted(ends, rows, side="right"), return_counts=True)
    codec = _CODECS[chunk.compression]
    width = field.type.byte_width if pa.types.is_fixed_size_binary(field.type) else 0
    data = np.empty(sizes[of].sum(), np.uint8)
    offsets = np.zeros(len(rows) + 1, np.int64)
    done = 0
    for page, count in zip(of.tolist(), counts.tolist(), strict=True):
        body = raw[starts[page] : starts[page] + packed[page]]
        if codec:
            body = np.frombuffer(pa.decompress(body, int(sizes[page]), codec), np.uint8)
        place = rows[done : done + count] - (ends[page - 1] if page else 0)
        values = offsets[done + 1 : done + count + 1]
        if not take(body, width, place, data[offsets[done] :], values):
            raise OSError(f"a page of the column {field.name} is damaged")
        values += offsets[done]
        done += count
    buffers = [None, pa.py_buffer(data)] if width else [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(field.type, len(rows), buffers)
