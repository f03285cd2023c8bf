"""Rows of Parquet files that others wrote, decoded in a guarded process, because a few bytes can hold gigabytes.

Dictionaries, run lengths and compressed pages let 2 kB decode to any size, and the footer need not say so. So a row
group is decoded in a process whose memory is limited. If that is not enough, the group is read again from that place
with its dictionaries kept: a text that many rows share is then held once, and rows that are too large are left out
before they are made.
"""

import io
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from typing import IO, Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gristmill.storage import files
from gristmill.tasks.guard.parent import Guard, Limits
from gristmill.tasks.reading.record import MAX_DEPTH, MAX_FIELDS

BATCH = 256
_SEVERAL_BYTES = 32 << 20  # of the texts of a batch whose dictionaries are kept, about
# What the rows of a group may decode to, in bytes of its compressed data, and in addition to that
_MAX_RATIO, _MAX_EXTRA = 1000, 256 << 20
# Groups with more rows, and more for each byte of their data, are run lengths of nulls or of one value.
_MANY_ROWS, _ROWS_PER_BYTE = 1_000_000, 100
_BUFFER = 1 << 20
_PIECE = 8 << 20
_LOOK_BYTES = 1 << 20  # of a row that shows what a file is
_DAMAGE = (OSError, EOFError, pa.ArrowException)


BinaryFile = io.BufferedReader | io.RawIOBase


@dataclass(frozen=True)
class Rows:
    """Consecutive rows of a group, from number `start` on. `batch`: the rows that are not too large; `large`: the
    positions of the others."""

    start: int
    batch: pa.RecordBatch
    large: tuple[int, ...] = ()


class UndecodableError(Exception):
    """The rows of a group from `start` on cannot be decoded; the message is the reason."""

    def __init__(self, start: int, reason: str) -> None:
        super().__init__(reason)
        self.start = start


def decoding_guard(max_bytes: int) -> Guard:
    """The process that decodes rows with strings of `max_bytes`: for a batch it may take 1 GiB, or what eight such rows
    take."""
    limits = Limits(
        page_seconds=60.0, page_memory=max(1 << 30, 8 * max_bytes), page_result=max(64 << 20, 3 * max_bytes)
    )
    return Guard(f"{__name__}:{read_batch.__name__}", limits)


class LocalRows:
    """A Parquet file on a local path, for the process that decodes it: the file itself, or a sparse copy of what is
    read of another. A context manager. `f`: the file at `path`, open."""

    def __init__(self, path: str, f: BinaryFile) -> None:
        self.f = f
        # absolute: the process that decodes has the folder that this one had when it was started
        self.path = os.path.abspath(path.removeprefix("file://"))
        self.copy: IO[bytes] | None = None
        if not files.is_local(path):
            self.copy = tempfile.NamedTemporaryFile(prefix="gristmill-parquet-")  # noqa: SIM115  # closed below
            self.path = self.copy.name
            size = f.seek(0, io.SEEK_END)
            f.seek(max(0, size - 8))
            footer = int.from_bytes(f.read(4), "little") + 8
            self.copy.truncate(size)
            self._take(size - footer, footer, size)

    def take(self, chunks: pq.RowGroupMetaData, columns: Sequence[str]) -> str:
        """The path, on which the columns of a group are from now on."""
        if self.copy is not None:
            size = self.f.seek(0, io.SEEK_END)
            for chunk in map(chunks.column, range(chunks.num_columns)):
                if chunk.path_in_schema.split(".")[0] in columns:
                    begin = min(filter(None, (chunk.dictionary_page_offset, chunk.data_page_offset)), default=0)
                    self._take(begin, chunk.total_compressed_size, size)
        return self.path

    def _take(self, begin: int, length: int, size: int) -> None:
        assert self.copy is not None, "it is not the file itself"
        position, end = max(0, begin), min(size, begin + length)
        self.f.seek(position)
        self.copy.seek(position)
        while position < end and (piece := self.f.read(min(_PIECE, end - position))):
            self.copy.write(piece)
            position += len(piece)
        self.copy.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.copy is not None:
            self.copy.close()


def decode(
    guard: Guard, rows: LocalRows, file: pq.ParquetFile, group: int, columns: Sequence[str], max_bytes: int
) -> Iterator[Rows]:
    """The rows of a group in their order, with these columns, 256 at a time or fewer.

    `file`: the file of `rows`, with its footer; `max_bytes`: of a row's strings: a larger row may be left out
    of its batch. Raises UndecodableError for what cannot be decoded within the limits of the guard, or at all.
    """
    chunks = file.metadata.row_group(group)
    schema = file.schema_arrow
    strings = [name for name in columns if _has_bytes(schema.field(name).type)]
    compressed = sum(max(0, chunks.column(i).total_compressed_size) for i in range(chunks.num_columns))
    if chunks.num_rows > max(_MANY_ROWS, _ROWS_PER_BYTE * compressed):
        raise UndecodableError(0, f"{chunks.num_rows:,} rows in {compressed:,} bytes have no texts of their own")
    local = rows.take(chunks, columns)
    failed = None
    how: tuple[Any, ...] = local, group, [*columns], BATCH, [], None
    with closing(guard.map(_calls(how, range(chunks.num_rows)))) as results:
        for start, result in zip(range(0, chunks.num_rows, BATCH), results, strict=False):
            if result.get("rule") in ("page_memory", "page_timeout"):
                failed = range(start, chunks.num_rows)
                break
            yield _rows(start, result)
    if failed is None:
        return
    several = max(1, min(BATCH, _SEVERAL_BYTES // max_bytes))
    how = local, group, [*columns], several, strings, max_bytes
    budget = _MAX_RATIO * compressed + _MAX_EXTRA
    with closing(guard.map(_calls(how, failed))) as results:
        for start, result in zip(range(failed.start, failed.stop, several), results, strict=False):
            decoded = _rows(start, result)
            budget -= result["bytes"]
            if budget < 0:
                raise UndecodableError(start, f"they are more than {_MAX_RATIO} times as large as in the file")
            yield decoded


def first_rows(path: str, rows: int) -> dict[str, list[Any]]:
    """The values of the first rows of a local file, by column, of columns that hold no others; empty for a file without
    rows. Raises OSError, ArrowException and UndecodableError."""
    with open(path, "rb") as f, decoding_guard(_LOOK_BYTES) as guard, LocalRows(path, f) as local:
        file = pq.ParquetFile(f, pre_buffer=False, buffer_size=_BUFFER)
        flat = [field.name for field in file.schema_arrow if not pa.types.is_nested(field.type)]
        for group in range(file.num_row_groups):
            for decoded in decode(guard, local, file, group, flat, _LOOK_BYTES):
                if len(decoded.batch):
                    return decoded.batch.slice(0, rows).to_pydict()
    return {}


def _calls(how: tuple[Any, ...], rows: range) -> Iterator[tuple[Any, ...]]:
    """For `read_batch`, one for each batch of the rows."""
    step = how[3]
    return ((*how, start, min(step, rows.stop - start)) for start in range(rows.start, rows.stop, step))


def _rows(start: int, result: dict[str, Any]) -> Rows:
    if "rule" in result:
        raise UndecodableError(start, f"decoding them takes more than is allowed: {result['detail']}")
    if "damage" in result:
        raise UndecodableError(start, result["damage"])
    with pa.ipc.open_stream(result["batch"]) as stream:
        return Rows(start, stream.read_next_batch(), tuple(result["large"]))


def check_schema(schema: pa.Schema, columns: Sequence[str]) -> str:
    """Why columns of a file cannot be carried, regardless of their values; "" if they can."""
    fields = 0
    for name in columns:
        waiting = [(schema.field(name).type, 1)]
        while waiting:
            kind, depth = waiting.pop()
            fields += 1
            if depth > MAX_DEPTH:
                return f"the column {name} is nested more than {MAX_DEPTH} deep"
            if fields > MAX_FIELDS:
                return f"more than {MAX_FIELDS} columns, with those within others"
            waiting += [(kind.field(i).type, depth + 1) for i in range(kind.num_fields)]
    return ""


# In the guarded process.


class _Decoding:
    """A group of which the process has read the rows up to `position`."""

    def __init__(
        self, key: tuple[Any, ...], path: str, group: int, columns: list[str], step: int, strings: list[str]
    ) -> None:
        self.key = key
        self.position = 0
        self.batches = _file(path, tuple(strings)).iter_batches(
            step, row_groups=[group], columns=columns, use_threads=False
        )
        self.rest: pa.RecordBatch | None = None

    def read(self, start: int, rows: int) -> list[pa.RecordBatch]:
        """So many rows from a row on; those before it are passed over. Batches end where a dictionary does."""
        parts: list[pa.RecordBatch] = []
        while self.position < start + rows:
            batch = self.rest if self.rest is not None else next(self.batches, None)
            self.rest = None
            if batch is None:
                raise EOFError(f"the group ends after {self.position} rows")
            wanted = start if self.position < start else start + rows
            part = batch.slice(0, wanted - self.position)
            if len(part) < len(batch):
                self.rest = batch.slice(len(part))
            if self.position >= start:
                parts.append(part)
            self.position += len(part)
        return parts


@lru_cache(1)
def _file(path: str, strings: tuple[str, ...]) -> pq.ParquetFile:
    """Held from one group to the next: a footer with many groups takes long to read."""
    return pq.ParquetFile(
        path, pre_buffer=False, buffer_size=_BUFFER, page_checksum_verification=True, read_dictionary=[*strings]
    )


_decoding: _Decoding | None = None


def read_batch(
    path: str,
    group: int,
    columns: list[str],
    step: int,
    strings: list[str],
    max_bytes: int | None,
    start: int,
    rows: int,
) -> dict[str, Any]:
    """For the guard: so many rows of a group, read `step` at a time.

    `strings`: columns whose dictionaries are kept; then `max_bytes` is given, and larger rows are left out. Returns
    `batch`, as a stream of Arrow; `large`, the numbers of the rows that are left out, and `bytes`, what the strings of
    all decode to; or `damage`, why they cannot be read.
    """
    global _decoding
    key = path, group, columns, step, max_bytes
    try:
        if _decoding is None or _decoding.key != key or _decoding.position > start:
            _decoding = _Decoding(key, path, group, columns, step, strings)
        kept: list[pa.RecordBatch] = []
        large: list[int] = []
        size = 0
        for part in _decoding.read(start, rows):
            if max_bytes is not None:
                sizes = _sizes(part)
                numbers = [row for row, length in enumerate(sizes) if length <= max_bytes]
                passed = sum(len(batch) for batch in kept) + len(large)
                large += [passed + row for row, length in enumerate(sizes) if length > max_bytes]
                size += sum(sizes)
                part = part.take(pa.array(numbers, pa.int64()))
            plain = [_decoded(column) for column in part.columns]
            kept.append(pa.RecordBatch.from_arrays(plain, names=part.schema.names))
        batch = kept[0] if len(kept) == 1 else pa.concat_batches(kept)
    except MemoryError:
        raise
    except _DAMAGE as error:
        _decoding = None
        return {"damage": str(error)[:500]}
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return {"batch": sink.getvalue(), "large": large, "bytes": size}


def _has_bytes(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind)


def _decoded(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _sizes(batch: pa.RecordBatch) -> list[int]:
    """The bytes of each row's strings, of columns whose dictionaries are kept."""
    total = [0] * len(batch)
    for column in batch.columns:
        if pa.types.is_dictionary(column.type):
            lengths = pc.binary_length(column.dictionary).to_pylist()
            for row, index in enumerate(column.indices.to_pylist()):
                total[row] += 0 if index is None else lengths[index] or 0
    return total
