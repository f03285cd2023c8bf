"""Documents that are text already, or pages without an archive: lines of JSON, rows of Parquet files, single files."""

import codecs
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import wrapt

from gristmill.storage.remote import streams
from gristmill.storage.remote.config import DEFAULT, RemoteIOConfig
from gristmill.tasks.reading.members import PIECE
from gristmill.tasks.reading.range_plan import EMPTY, LineStart, Range, Reading
from gristmill.tasks.reading.ranges import open_lines
from gristmill.tasks.reading.record import Columns, Record, is_in, oversized, value_of

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from gristmill.tasks.reading import parquet_rows
else:
    parquet_rows = wrapt.lazy_import("gristmill.tasks.reading.parquet_rows")

_DETAIL = 200
# The name of a page, also as it is stored: compressed, or followed by a query (wget).
_HTML_NAME = re.compile(r"\.s?html?(?:\?[^/]*)?(?:\.(?:gz|zst))?$", re.IGNORECASE)
_DAMAGE = (OSError, EOFError, pa.ArrowException)
_PATH_END = re.compile("[?#]")  # begins the query or the fragment of an address


def records(
    path: str,
    format: str,
    columns: Columns,
    max_bytes: int,
    remote_io: RemoteIOConfig = DEFAULT,
    reading: Reading | None = None,
    part: Range | None = None,
) -> Iterator[Record]:
    """A record for every row, in the file's order; `offset` is the row's number from 0, blank lines counted.

    `part`: only the rows of a range: lines that begin in it, as `ranges.divide` gave it, or row groups of a
    Parquet file, which are divided by their numbers, so that each is in one range, whatever the footer says.

    `format`: `jsonl` (plain, gzip, zstd or lz4), `parquet`, or `text` or `page` (a file is a document, of text or a
    page). A row without a text, or with something else in its place, has the problem `no_text`, one over `max_bytes`
    `too_large`, a line that is not a JSON object or a string of Parquet that is not UTF-8 `damaged_record` (a text in a
    column of bytes may have another encoding, which is detected); so has every row of a Parquet file that cannot be
    read, and the place from which another file cannot be read, once for everything after it. `reading` is updated with
    the progress.

    Rows of Parquet are decoded in a guarded process (`gristmill.tasks.reading.parquet_rows`). Holds a line and the last
    8 MiB of the file, or 256 rows. Raises FileNotFoundError, RemoteIOError, and ValueError for a Parquet file without a
    requested column.
    """
    return _READERS[format](path, columns, max_bytes, remote_io, reading or Reading(), part)


def read_row(
    path: str, format: str, row: int, columns: Columns, max_bytes: int, remote_io: RemoteIOConfig = DEFAULT
) -> Record:
    """The record of a row; the file is read up to it. Raises LookupError if there is none."""
    for record in records(path, format, columns, max_bytes, remote_io):
        if record.offset == row:
            return record
    raise LookupError(f"{path} has no row {row}")


def _lines(
    path: str, columns: Columns, max_bytes: int, remote_io: RemoteIOConfig, reading: Reading, part: Range | None
) -> Iterator[Record]:
    if part == EMPTY:
        return
    start = part.lines if part and part.lines else LineStart()
    number, begin = start.number, start.base
    with open_lines(path, remote_io, part) as (stored, pieces):
        try:
            content, first = io.BufferedReader(_Pieces(pieces), PIECE), stored.position
            while start.within and (rest := content.readline(PIECE)):
                begin += len(rest)
                if rest.endswith(b"\n"):
                    number += 1
                    break
        except _DAMAGE:
            return  # what the range that has this line tells of
        try:
            while (start.stop is None or begin < start.stop) and (line := content.readline(max_bytes + 2)):
                where = f"line {number + 1}, at byte {begin}"
                begin += len(line)
                reading.bytes = stored.position - first
                if not line.endswith(b"\n") and len(line) > max_bytes:
                    while (rest := content.readline(1 << 20)) and not rest.endswith(b"\n"):
                        begin += len(rest)
                    begin += len(rest)
                    yield lost(number, "too_large", f"{where}: more than {max_bytes} bytes")
                elif line.strip():
                    yield _line(number, line if number else line.removeprefix(codecs.BOM_UTF8), where, columns)
                number += 1
        except _DAMAGE as error:
            yield lost(number, "damaged_record", f"line {number + 1}, at byte {begin}, and what follows: {error}")


# How a file of JSON begins that is not of lines.
_SHAPES = {
    b"[": "the file is one JSON array, not an object a line: write these by `jq -c '.[]'`",
    b"{": "its JSON objects go over several lines, and not one a line: write these by `jq -c .`",
}
_NAME_COLUMNS = "list the columns that you want"
# What the causes of problems end with that have their fix in them, after `: `.
ADVICE = (*_SHAPES.values(), _NAME_COLUMNS)
_SHOWN_KEYS, _SHOWN_KEY = 5, 20


def _missing(row: dict) -> str:
    keys = ", ".join(key[:_SHOWN_KEY] for key in [*row][:_SHOWN_KEYS])
    return f"missing, there are {keys}{', ...' if len(row) > _SHOWN_KEYS else ''}" if row else "missing"


def parse_line(line: bytes) -> Any:
    """A line of JSON. `NaN`, `Infinity` and `-Infinity`, which Python's `json` writes and JSON does not have, are null.
    Raises orjson.JSONDecodeError."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        if b"NaN" not in line and b"Infinity" not in line:
            raise
        constants: list[str] = []
        try:
            value = json.loads(line.decode(), parse_constant=constants.append)
            # what `json` reads and `orjson` does not, such as half of a surrogate pair, is refused here, too
            strict = orjson.loads(orjson.dumps(value))
        except (ValueError, TypeError, RecursionError):
            raise error from None
        if not constants:
            raise
        return strict


def _line(number: int, line: bytes, where: str, columns: Columns) -> Record:
    try:
        row = parse_line(line)
    except orjson.JSONDecodeError as error:
        if number == 0 and (shape := _SHAPES.get(line.strip()[:1])) and b"}" not in line:
            return lost(number, "damaged_record", f"{where}: {shape}")
        return lost(number, "damaged_record", f"{where}: no JSON: {error}")
    if number == 0 and isinstance(row, list):
        return lost(number, "damaged_record", f"{where}: {_SHAPES[b'[']}")
    if not isinstance(row, dict):
        return lost(number, "damaged_record", f"{where}: no JSON object but a {type(row).__name__}")
    text = value_of(row, columns.text)
    if not isinstance(text, str):
        reason = (
            _missing(row) if not is_in(row, columns.text) else "null" if text is None else f"a {type(text).__name__}"
        )
        return lost(number, "no_text", f"{where}: {columns.text} is {reason}")
    url, identity, date = (
        as_text(value_of(row, name)) if name else "" for name in (columns.url, columns.id, columns.date)
    )
    own = columns.own_values(row) if columns.every or columns.own else None
    if own and (reason := oversized(own)):
        return lost(number, "too_large", f"{where}: {reason}")
    return _row(number, text.encode(), url, identity, date, own)


def _parquet(
    path: str, columns: Columns, max_bytes: int, remote_io: RemoteIOConfig, reading: Reading, part: Range | None
) -> Iterator[Record]:
    number = 0
    begin, part_end = (part.begin, part.end) if part else (0, None)
    with streams.open_ranges(path, remote_io) as f:
        try:
            # pages are read as they are needed: a file may be one group of rows
            file = pq.ParquetFile(
                f, pre_buffer=False, buffer_size=remote_io.block_bytes, page_checksum_verification=True
            )
        except _DAMAGE as error:
            if begin == 0:
                yield lost(0, "damaged_record", f"no Parquet file: {error}")
            return
        names = [*columns.named]
        own = columns.own_of(file.schema_arrow.names)
        if missing := sorted(set(names) - set(file.schema_arrow.names)):
            has = ", ".join(file.schema_arrow.names)
            raise ValueError(f"{path} has no column {', '.join(missing)}; its columns are {has}")
        read = [*names, *(theirs for _, theirs in own)]
        if twice := sorted(name for name in {*read} if file.schema_arrow.names.count(name) > 1):
            raise ValueError(f"{path} has several columns named {', '.join(twice)}; rename all but one of each")
        if trouble := parquet_rows.check_schema(file.schema_arrow, read):
            if begin == 0:
                yield lost(0, "too_large", f"{trouble}: {_NAME_COLUMNS}")
            return
        size, groups = f.seek(0, io.SEEK_END), file.num_row_groups
        with parquet_rows.decoding_guard(max_bytes) as guard, parquet_rows.LocalRows(path, f) as local:
            for group in range(groups):
                end = number + file.metadata.row_group(group).num_rows
                place = size * group // groups
                if place < begin or (part_end is not None and place >= part_end):
                    number = end
                    continue
                try:
                    for rows in parquet_rows.decode(guard, local, file, group, read, max_bytes):
                        yield from _rows(number, rows, columns, own, max_bytes)
                        number += len(rows.batch) + len(rows.large)
                        reading.bytes = size * number // file.metadata.num_rows - begin
                except (*_DAMAGE, parquet_rows.UndecodableError) as error:
                    # if there are more rows than bytes, the footer is wrong, and one row of the ledger is enough
                    lost_rows = range(number, end) if end - number <= size else [number]
                    for row in lost_rows:
                        yield lost(row, "damaged_record", f"rows {number} to {end - 1} cannot be read: {error}")
                number = end


def _rows(
    number: int, rows: "parquet_rows.Rows", columns: Columns, own: Sequence[tuple[str, str]], max_bytes: int
) -> Iterator[Record]:
    """The records of rows of a group, the first of which has this number in the file."""
    large = {*rows.large}
    numbers = range(number, number + len(rows.batch) + len(large))
    records = _of_batch([row for row in numbers if row - number not in large], rows.batch, columns, own, max_bytes)
    for row in numbers:
        if row - number in large:
            yield lost(row, "too_large", f"row {row}: more than {max_bytes} bytes")
        else:
            yield next(records)


def _of_batch(
    numbers: Sequence[int], batch: pa.RecordBatch, columns: Columns, own: Sequence[tuple[str, str]], max_bytes: int
) -> Iterator[Record]:
    texts = _values(batch, columns.text)
    others = [_values(batch, name) if name else [None] * len(batch) for name in (columns.url, columns.id, columns.date)]
    broken = _not_utf8(batch, [*columns.named, *(theirs for _, theirs in own)])
    broken |= _no_times(batch, [theirs for _, theirs in own])
    carried = {ours: _python_values(batch, theirs) for ours, theirs in own}
    for place, (row, text, *other) in enumerate(zip(numbers, texts, *others, strict=True)):
        if reason := broken.get(place):
            yield lost(row, "damaged_record", f"row {row}: {reason}")
        elif not isinstance(text, bytes):
            value_kind = "null" if text is None else f"a {type(text).__name__}"
            yield lost(row, "no_text", f"row {row}: {columns.text} is {value_kind}")
        elif len(text) > max_bytes:
            yield lost(row, "too_large", f"row {row}: more than {max_bytes} bytes")
        else:
            mine = {ours: values[place] for ours, values in carried.items()} if own else None
            url, identity, date = map(as_text, other)
            yield (_page if columns.pages else _row)(row, text, url, identity, date, mine)


def _not_utf8(batch: pa.RecordBatch, names: list[str]) -> dict[int, str]:
    """Rows, by their place in the batch, with a string that is not UTF-8, as Parquet's strings must be; and the
    reason."""
    reasons: dict[int, str] = {}
    for name in names:
        column = _column(batch, name)
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            for row in range(len(column)):
                try:
                    column[row : row + 1].validate(full=True)
                except pa.ArrowInvalid:
                    reasons.setdefault(row, f"the string of {name} is not UTF-8{_where(batch, name, row)}")
    return reasons


def _where(batch: pa.RecordBatch, name: str, row: int) -> str:
    if not _is_string(_column(batch, name).type):
        return ""
    try:
        (_values(batch, name)[row] or b"").decode()
    except UnicodeDecodeError as error:
        return f" at its byte {error.start}"
    return ""


def _no_times(batch: pa.RecordBatch, names: list[str]) -> dict[int, str]:
    """Rows, by their place in the batch, with a time outside the years 1 to 9999, which Python cannot hold."""
    reasons: dict[int, str] = {}
    for name in names:
        column = _column(batch, name)
        if pa.types.is_temporal(column.type):
            for row, value in enumerate(column):
                try:
                    value.as_py()
                except (OverflowError, ValueError):
                    reasons.setdefault(row, f"{name} is the time {value.value}, outside of the years 1 to 9999")
    return reasons


def _python_values(batch: pa.RecordBatch, name: str) -> list[Any]:
    """The values of a column; null where one is not UTF-8 or no time of Python's, whose row is lost anyway."""
    column = _column(batch, name)
    try:
        return column.to_pylist()
    except (UnicodeDecodeError, OverflowError, ValueError):
        values: list[Any] = []
        for value in column:
            try:
                values.append(value.as_py())
            except (UnicodeDecodeError, OverflowError, ValueError):
                values.append(None)
        return values


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    column = batch.column(name)
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _values(batch: pa.RecordBatch, name: str) -> list[Any]:
    column = _column(batch, name)
    # as bytes: what claims to be text need not be UTF-8
    values = column.cast(pa.large_binary()) if _is_string(column.type) else column
    try:
        return values.to_pylist()
    except (OverflowError, ValueError):
        # a time outside of the years 1 to 9999 stays a number, which is not a date
        return [_time_or_number(value) for value in values]


def _time_or_number(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        return value.value


def _is_string(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _text(
    path: str, columns: Columns, max_bytes: int, remote_io: RemoteIOConfig, reading: Reading, part: Range | None
) -> Iterator[Record]:
    with open_lines(path, remote_io, None) as (stored, pieces):
        try:
            text = io.BufferedReader(_Pieces(pieces), PIECE).read(max_bytes + 1)
            reading.bytes = stored.position
        except _DAMAGE as error:
            yield lost(0, "damaged_record", str(error))
            return
    if len(text) > max_bytes:
        yield lost(0, "too_large", f"more than {max_bytes} bytes")
    else:
        yield _page(0, text, "", "", "", type_name=path) if columns.pages else _row(0, text, "", "", "")


class _Pieces(io.RawIOBase):
    """A file made of pieces."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.pieces, self.piece = pieces, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        if not self.piece:
            self.piece = memoryview(next(self.pieces, b""))
        target = memoryview(buffer)
        size = min(len(self.piece), len(target))
        target[:size], self.piece = self.piece[:size], self.piece[size:]
        return size


def as_text(value: Any) -> str:
    """A value as text; dates as ISO 8601 has them."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else value if isinstance(value, str) else getattr(value, "isoformat", value.__str__)()


def _row(number: int, text: bytes, url: str, identity: str, date: str, own: Mapping[str, Any] | None = None) -> Record:
    return Record(
        "row",
        number,
        None,
        record_id=identity,
        url=url,
        date=date,
        content_type="text/plain",
        charset=_charset(text),
        payload=text,
        own=own,
    )


def _page(
    number: int,
    page: bytes,
    url: str,
    identity: str,
    date: str,
    own: Mapping[str, Any] | None = None,
    type_name: str = "",
) -> Record:
    """The record of a page of which no type is declared: its bytes say what it is, or that it is HTML the name of its
    file, `type_name`, or of its address. What begins with words and has few tags does not look like HTML."""
    content_type = "text/html" if _HTML_NAME.search(type_name or _PATH_END.split(url, 1)[0]) else ""
    return Record(
        "row", number, None, record_id=identity, url=url, date=date, content_type=content_type, payload=page, own=own
    )


def _charset(text: bytes) -> str | None:
    """UTF-8 where it is that; what else it may be is for the detection to say."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return None
    return "utf-8"


def lost(number: int, rule: str, detail: str) -> Record:
    """The record of a row that cannot be one of a document."""
    return Record("row", number, None, content_type="text/plain", problem=(rule, detail[:_DETAIL]))


_READERS: dict[str, Callable[[str, Columns, int, RemoteIOConfig, Reading, Range | None], Iterator[Record]]] = {
    "jsonl": _lines,
    "parquet": _parquet,
    "text": _text,
    "page": _text,
}
