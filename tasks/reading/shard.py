"""A shard of a source as records, read through, at one place, or at those places that an index selected."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from threading import Event

from gristmill.storage import files, parquet
from gristmill.storage.remote import streams
from gristmill.storage.remote.config import DEFAULT, RemoteIOConfig
from gristmill.tasks.reading import archives, tables
from gristmill.tasks.reading.listing import Shard
from gristmill.tasks.reading.record import Record


@dataclass
class _Span:
    """Bytes of one file, fetched in one request, and where in the file the records in it are."""

    name: str
    start: int
    end: int
    places: list[tuple[int, int]] = field(default_factory=list)


def records(
    path: str, base: str, max_bytes: int, remote_io: RemoteIOConfig = DEFAULT, verify_digests: bool = False
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


def read(shard: Shard, max_bytes: int, verify_digests: bool, remote_io: RemoteIOConfig) -> Iterator[tuple[str, Record]]:
    """Every record of a shard in its order, each with the name of the file that it lies in."""
    match shard.format:
        case "archive":
            for record in archives.records(shard.path, max_bytes, remote_io, verify_digests):
                yield shard.name, record
        case "selection":
            yield from records(shard.path, shard.base, max_bytes, remote_io, verify_digests)
        case _:
            for record in tables.records(shard.path, shard.format, shard.columns, max_bytes, remote_io):
                yield shard.name, record


def read_again(
    shard: Shard, file: str, offset: int, length: int | None, max_bytes: int, remote_io: RemoteIOConfig
) -> Record:
    """The record that `read` gave at a place of a file. Raises LookupError if it is not there any more."""
    match shard.format:
        case "archive":
            return archives.read_at(shard.path, offset, length, max_bytes, remote_io)
        case "selection":
            return archives.read_at(files.join(shard.base, file), offset, length, max_bytes, remote_io)
        case _:
            return tables.read_row(shard.path, shard.format, offset, shard.columns, max_bytes, remote_io)
