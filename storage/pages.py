"""Some values of a Parquet column of texts or of hashes: only the pages that they are in are opened.

Arrow reads a row group as a whole, which for one document in a hundred costs a hundred times too much. What is read
here is what `storage.shards` writes: data pages of version 1, PLAIN, with no value missing. The layout is that of
https://github.com/apache/parquet-format; page headers are in Thrift's compact protocol.
"""

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

_CODECS = {"ZSTD": "zstd", "UNCOMPRESSED": None}
_KINDS = (pa.types.is_large_string, pa.types.is_fixed_size_binary)
_DATA_PAGE, _PLAIN = 0, 0
_TRUTHS, _NUMBERS, _BINARY, _STRUCT = (1, 2), (4, 5, 6), 8, 12  # types of Thrift


class _Page(NamedTuple):
    """Where the bytes of a page begin, how many they are and were; its first value's number, and that behind its last."""

    body: int
    packed: int
    size: int
    first: int
    end: int


def readable(chunk: pq.ColumnChunkMetaData, kind: pa.DataType) -> bool:
    """Whether `values` can read a column of this type of a row group."""
    return (
        any(is_kind(kind) for is_kind in _KINDS)
        and chunk.compression in _CODECS
        and set(chunk.encodings) <= {"PLAIN", "RLE"}
        and chunk.statistics is not None
        and chunk.statistics.null_count == 0
    )


def values(raw: memoryview, chunk: pq.ColumnChunkMetaData, field: pa.Field, rows: list[int]) -> list[bytes]:
    """The values of some rows of a row group, which ascend; `raw` are the bytes of its pages.

    Raises OSError where the pages are not as the footer says.
    """
    found: list[bytes] = []
    try:
        for page in _pages(raw, chunk.num_values):
            rest = rows[len(found) : len(found) + page.end - page.first]
            wanted = [row - page.first for row in rest if row < page.end]
            if wanted:
                found += _of_page(_unpacked(raw, page, chunk), field, wanted)
            if len(found) == len(rows):
                break
    except (IndexError, TypeError, ValueError, RecursionError) as error:
        raise OSError(f"the pages of the column {field.name} are damaged: {error}") from error
    return found


def _unpacked(raw: memoryview, page: _Page, chunk: pq.ColumnChunkMetaData) -> memoryview:
    body = raw[page.body : page.body + page.packed]
    codec = _CODECS[chunk.compression]
    return memoryview(pa.decompress(body, page.size, codec)) if codec else body


def _of_page(body: memoryview, field: pa.Field, rows: list[int]) -> Iterator[bytes]:
    at = 4 + int.from_bytes(body[:4], "little") if field.nullable else 0  # behind what says which values are missing
    if pa.types.is_fixed_size_binary(field.type):
        width = field.type.byte_width
        for row in rows:
            yield _cut(body, at + row * width, width)
        return
    passed = 0
    for row in rows:
        for _ in range(row - passed):
            at += 4 + int.from_bytes(body[at : at + 4], "little")
        length = int.from_bytes(body[at : at + 4], "little")
        yield _cut(body, at + 4, length)
        at += 4 + length
        passed = row + 1


def _cut(body: memoryview, at: int, length: int) -> bytes:
    if at + length > len(body):
        raise ValueError(f"a value ends at byte {at + length} of {len(body)}")
    return bytes(body[at : at + length])


def _pages(raw: memoryview, count: int) -> Iterator[_Page]:
    at = seen = 0
    while seen < count:
        header, at = _struct(raw, at)
        # PageHeader: 1 type, 2 and 3 sizes, 5 DataPageHeader: 1 values, 2 encoding
        kind, size, packed, data = (header.get(field) for field in (1, 2, 3, 5))
        if (
            kind != _DATA_PAGE
            or data is None
            or data.get(2) != _PLAIN
            or data[1] <= 0
            or not 0 <= packed <= len(raw) - at
        ):
            raise ValueError(f"no header of a plain data page before byte {at}")
        yield _Page(at, packed, size, seen, seen + data[1])
        at += packed
        seen += data[1]


def _struct(raw: memoryview, at: int) -> tuple[dict, int]:
    """The fields of a struct by number, but for binaries, and where it ends.

    A field begins with a byte: by how much its number is above the last one's, and its type. A zero ends the struct.
    """
    fields: dict = {}
    number = 0
    while byte := raw[at]:
        at += 1
        kind = byte & 15
        if byte >> 4:
            number += byte >> 4
        else:
            number, at = _number(raw, at)
        if kind in _NUMBERS:
            fields[number], at = _number(raw, at)
        elif kind == _BINARY:
            length, at = _varint(raw, at)
            at += length
        elif kind == _STRUCT:
            fields[number], at = _struct(raw, at)
        elif kind not in _TRUTHS:
            raise ValueError(f"a field of type {kind} before byte {at}")
    return fields, at + 1


def _number(raw: memoryview, at: int) -> tuple[int, int]:
    value, at = _varint(raw, at)
    return (value >> 1) ^ -(value & 1), at


def _varint(raw: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while raw[at] & 0x80:
        value |= (raw[at] & 0x7F) << shift
        shift += 7
        at += 1
    return value | raw[at] << shift, at + 1
