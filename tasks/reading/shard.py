"""A shard of a source as records, read through, or at one place."""

from collections.abc import Iterator

from gristmill.storage.remote.config import RemoteIOConfig
from gristmill.tasks.reading.formats.source import ReadOptions
from gristmill.tasks.reading.listing import Shard
from gristmill.tasks.reading.ranges.plan import Reading
from gristmill.tasks.reading.record import Record
from gristmill.tasks.reading.sources import format_of


def read(
    shard: Shard, max_bytes: int, verify_digests: bool, remote_io: RemoteIOConfig, reading: Reading | None = None
) -> Iterator[tuple[str, Record]]:
    """Every record of a shard in its order, each with the name of the file that it is in. `reading` learns how far it
    is."""
    options = ReadOptions(max_bytes, remote_io, verify_digests)
    return format_of(shard.format).named_records(shard, options, reading or Reading())


def read_again(
    shard: Shard, file: str, offset: int, length: int | None, max_bytes: int, remote_io: RemoteIOConfig
) -> Record:
    """The record that `read` gave at a place of a file. Raises LookupError if it is not there any more."""
    options = ReadOptions(max_bytes, remote_io)
    return format_of(shard.format).record_at(shard, file, offset, length, options)
