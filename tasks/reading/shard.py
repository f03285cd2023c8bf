"""A shard of a source as records, read through or at one place."""

from collections.abc import Iterator

from gristmill.storage import files
from gristmill.storage.remote.config import RemoteIOConfig
from gristmill.tasks.reading import archives, selected, tables
from gristmill.tasks.reading.listing import Shard
from gristmill.tasks.reading.record import Record


def read(shard: Shard, max_bytes: int, verify_digests: bool, remote_io: RemoteIOConfig) -> Iterator[tuple[str, Record]]:
    """Every record of a shard in its order, each with the name of the file that it lies in."""
    match shard.format:
        case "archive":
            for record in archives.records(shard.path, max_bytes, remote_io, verify_digests):
                yield shard.name, record
        case "selection":
            yield from selected.records(shard.path, shard.base, max_bytes, remote_io, verify_digests)
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
