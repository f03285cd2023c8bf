"""A shard of a source as records, read through, at one place, or at those places that an index selected."""

import datetime
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from threading import Event
from typing import Any

from gristmill.storage import files, parquet
from gristmill.storage.remote import streams
from gristmill.storage.remote.config import DEFAULT, RemoteIOConfig
from gristmill.tasks.reading import archives, tables
from gristmill.tasks.reading.listing import Shard
from gristmill.tasks.reading.ranges.plan import Reading
from gristmill.tasks.reading.record import Record
from gristmill.tasks.reading.repositories import records as repositories
from gristmill.tasks.reading.repositories.reading import Repositories
from gristmill.tasks.reading.sources import Columns


@dataclass
class _Span:
    """Bytes of one file, fetched in one request, and where in the file the records in it are."""

    name: str
    start: int
    end: int
    places: list[tuple[int, int]] = field(default_factory=list)


def records(
    path: str,
    base: str,
    max_bytes: int,
    remote_io: RemoteIOConfig = DEFAULT,
    verify_digests: bool = False,
    reading: Reading | None = None,
) -> Iterator[tuple[str, Record]]:
    """The records of a selection's shard in its order, each with the name of its archive, which is under `base`.

    Records that lie no further apart than `gap_bytes` come in one request of at most `block_bytes`, unless one alone
    is longer. A place where there is no record has the problem `damaged_record`. Holds two requests and the shard's
    table. Raises FileNotFoundError, RemoteIOError.
    """
    spans = list(_spans(path, remote_io))
    fetched = streams.ahead(partial(_fetch, base, span, remote_io) for span in spans)
    for span, data in zip(spans, fetched, strict=True):
        address = files.join(base, span.name)
        if reading:
            reading.bytes += len(data)
        for offset, length in span.places:
            begin = offset - span.start
            try:
                record = archives.parse(
                    data[begin : begin + length], address, offset, max_bytes, remote_io, verify_digests
                )
            except LookupError as error:
                record = Record("unknown", offset, length, problem=("damaged_record", str(error)))
            yield span.name, record


def _fetch(base: str, span: _Span, remote_io: RemoteIOConfig, stop: Event) -> bytes:
    return streams.fetch(files.join(base, span.name), span.start, span.end, remote_io, stop)


def _spans(path: str, remote_io: RemoteIOConfig) -> Iterator[_Span]:
    table = parquet.read_table(path, ["warc_filename", "warc_record_offset", "warc_record_length"])
    span = None
    for name, offset, length in zip(*(column.to_pylist() for column in table.columns), strict=True):
        _check_name(name, path)
        end = offset + length
        near = span and span.name == name and 0 <= offset - span.end <= remote_io.gap_bytes
        if not near or end - span.start > remote_io.block_bytes:
            if span:
                yield span
            span = _Span(name, offset, end)
        span.end = end
        span.places.append((offset, length))
    if span:
        yield span


def _check_name(name: str, path: str) -> None:
    """Raise ValueError for an archive that the index, a file from elsewhere, names outside of the source's base."""
    if "://" in name or "::" in name or "?" in name or ".." in name.split("/"):
        raise ValueError(
            f"the index behind {path} names the archive {name[:200]!r}, which is no path below the source's `base`: "
            "take the index from its publisher"
        )


def read(
    shard: Shard, max_bytes: int, verify_digests: bool, remote_io: RemoteIOConfig, reading: Reading | None = None
) -> Iterator[tuple[str, Record]]:
    """Every record of a shard in its order, each with the name of the file that it lies in. `reading` learns how far it
    is."""
    reading = reading or Reading()
    match shard.format:
        case "archive":
            for record in archives.records(shard.path, max_bytes, remote_io, verify_digests, shard.part, reading):
                yield shard.name, record
        case "selection":
            yield from records(shard.path, shard.base, max_bytes, remote_io, verify_digests, reading)
        case "code":
            for record in _of_code(shard, max_bytes, remote_io, reading):
                yield shard.name, record
        case _ if ":" in shard.format:
            for record in _by_own_reader(shard, max_bytes, remote_io):
                yield shard.name, record
        case _:
            of = shard.path, shard.format, shard.columns
            for record in tables.records(*of, max_bytes, remote_io, reading, shard.part):
                yield shard.name, record


def _of_code(
    shard: Shard, max_bytes: int, remote_io: RemoteIOConfig, reading: Reading | None = None
) -> Iterator[Record]:
    how = shard.repositories or Repositories()
    return repositories.records(shard.path, shard.name, how, max_bytes, remote_io, reading)


def _by_own_reader(shard: Shard, max_bytes: int, remote_io: RemoteIOConfig) -> Iterator[Record]:
    """A record for each mapping that a user's reader gives; `offset` is its number from 0. What it cannot read on is
    lost, as one `damaged_record`. Raises FileNotFoundError, RemoteIOError, and what the reader's import raises."""
    module, _, name = shard.format.partition(":")
    reader = getattr(import_module(module), name)
    number = -1
    with streams.open_ranges(shard.path, remote_io) as raw:
        file = io.BufferedReader(raw, remote_io.block_bytes) if isinstance(raw, io.RawIOBase) else raw
        try:
            for number, row in enumerate(reader(file)):
                yield _own_record(number, row, shard.columns, max_bytes)
        except streams.RemoteIOError:
            raise
        except Exception as error:
            what = f"record {number + 2}, and what follows: {type(error).__name__}: {error}"
            yield tables.lost(number + 1, "damaged_record", what)


def _own_record(number: int, row: Mapping[str, Any], columns: Columns, max_bytes: int) -> Record:
    html = row.get("html")
    content = row.get("text") if html is None else html
    if not isinstance(content, str | bytes):
        found = "missing" if content is None else f"a {type(content).__name__}"
        return tables.lost(number, "no_text", f"record {number + 1}: its text is {found}")
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    if len(data) > max_bytes:
        return tables.lost(number, "too_large", f"record {number + 1}: more than {max_bytes} bytes")
    try:
        own = {ours: _plain(row[theirs]) for ours, theirs in columns.own_of([name for name in row if name != "html"])}
    except TypeError as error:
        return tables.lost(number, "damaged_record", f"record {number + 1}: {error}")
    url, identity, date = (tables.said(row.get(name)) for name in ("url", "id", "date"))
    kind = "text/plain" if html is None else "text/html"
    charset = "utf-8" if isinstance(content, str) else None
    return Record(
        "row", number, None, record_id=identity, url=url, date=date, content_type=kind, charset=charset, payload=data,
        own=own or None,
    )  # fmt: skip


def _plain(value: Any) -> Any:
    """A value of a user's reader as JSON would have it: libraries give strings and numbers of classes of their own."""
    if value is None or isinstance(value, bool):
        return value
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    raise TypeError(f"a column has a {type(value).__name__}; give a string, a number, a bool, a list or a mapping")


def read_again(
    shard: Shard, file: str, offset: int, length: int | None, max_bytes: int, remote_io: RemoteIOConfig
) -> Record:
    """The record that `read` gave at a place of a file. Raises LookupError if it is not there any more."""
    match shard.format:
        case "archive":
            return archives.read_at(shard.path, offset, length, max_bytes, remote_io)
        case "selection":
            return archives.read_at(files.join(shard.base, file), offset, length, max_bytes, remote_io)
        case _ if ":" in shard.format or shard.format == "code":
            read_all = _of_code if shard.format == "code" else _by_own_reader
            for record in read_all(shard, max_bytes, remote_io):
                if record.offset == offset:
                    return record
            raise LookupError(f"{shard.path} has no record {offset + 1}")
        case _:
            return tables.read_row(shard.path, shard.format, offset, shard.columns, max_bytes, remote_io)
