"""A shard of a source as records, read through or at one place."""

from collections.abc import Iterator

from storage import files
from storage.transfer import Transfer
from tasks.reading import archives, selected, tables
from tasks.reading.record import Record
from tasks.reading.sources import Shard


def read(shard: Shard, max_bytes: int, verify_digests: bool, transfer: Transfer) -> Iterator[tuple[str, Record]]:
    """Every record of a shard in its order, each with the name of the file that it lies in."""
    match shard.format:
        case "archive":
            for record in archives.records(shard.path, max_bytes, transfer, verify_digests):
                yield shard.name, record
        case "selection":
            yield from selected.records(shard.path, shard.base, max_bytes, transfer, verify_digests)
        case _:
            for record in tables.records(shard.path, shard.format, shard.columns, max_bytes, transfer):
                yield shard.name, record


def read_again(shard: Shard, file: str, offset: int, length: int | None, max_bytes: int, transfer: Transfer) -> Record:
    """The record that `read` gave at a place of a file. Raises LookupError if it is not there any more."""
    match shard.format:
        case "archive":
            return archives.read_at(shard.path, offset, length, max_bytes, transfer)
        case "selection":
            return archives.read_at(files.join(shard.base, file), offset, length, max_bytes, transfer)
        case _:
            return tables.read_row(shard.path, shard.format, offset, shard.columns, max_bytes, transfer)
