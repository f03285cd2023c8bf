"""Records that an index selected, read from their archives, in requests for neighbors together."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from threading import Event

from gristmill.storage import files, parquet
from gristmill.storage.remote import streams
from gristmill.storage.remote.config import DEFAULT, RemoteIOConfig
from gristmill.tasks.reading import archives
from gristmill.tasks.reading.ranges.plan import Reading
from gristmill.tasks.reading.record import Record


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
