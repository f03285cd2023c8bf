"""A shard of a source: its records, read through or at one place, the types of its columns, and a look at it first."""

from collections.abc import Iterator, Sequence
from itertools import islice

from gristmill.storage import files
from gristmill.storage.printable import redact_url
from gristmill.storage.remote.config import RemoteIOConfig
from gristmill.tasks.engine.options import current
from gristmill.tasks.reading.formats.source import ReadOptions
from gristmill.tasks.reading.listing import ListedFiles, Shard, given_files
from gristmill.tasks.reading.own_columns import SAMPLED_ROWS, Types, joined, packed_type
from gristmill.tasks.reading.range_plan import Reading
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


def find_types(
    folder: str, number: int, source: str, source_files: tuple[Shard, ...] | ListedFiles, max_bytes: int
) -> dict:
    """The types of the columns that are carried of a shard's files: `types`, of each column its name, its Arrow type (a
    serialized schema of one field, base64) and where it was seen, in the order of the files; `names`, some names of
    columns that there are.

    Of Parquet files the footers are read, of lines all; columns of code have the same types everywhere. Holds 512 rows.
    Raises ColumnError for types that differ.
    """
    all_types: Types = {}
    names: dict[str, None] = {}
    for file in given_files(source_files):
        for types, there in format_of(file.format).column_types(file, max_bytes):
            all_types = joined(source, all_types, types)
            names.update(dict.fromkeys(there[: max(0, SAMPLED_ROWS - len(names))]))
    return {"types": [[name, packed_type(kind), where] for name, (kind, where) in all_types.items()], "names": [*names]}


# A look at the first files of each source, before all are read: whether there is anything to be read.


# files that are looked at, and records of a file after which it is believed
FILES = 3
_RECORDS = 1000


def look(folder: str, number: int, source: str, shards: Sequence[Shard], max_bytes: int) -> dict:
    """Read the first local files of a source up to the first record that can be one of a document.

    Raises ValueError, which names a file, the recipe's key and the remedy, if none of the files has one.
    """
    looked = [shard for shard in shards if format_of(shard.format).wanted and files.is_local(shard.path)]
    problems = [_problem(shard, max_bytes) for shard in looked]
    if problems and None not in problems:
        kind = format_of(looked[0].format)
        more = f", nor have {len(looked) - 1} others" if len(looked) > 1 else ""
        raise ValueError(
            f"the source {source}: {redact_url(looked[0].path)} {problems[0]}{more}: name files under `{kind.key}` "
            f"that have {kind.wanted.format(text=looked[0].columns.text)}, or take the source out of the recipe"
        )
    return {"files": len(looked)}


def _problem(shard: Shard, max_bytes: int) -> str | None:
    """Why nothing can be read of a file; None if something can, or it has many records."""
    seen = 0
    rules = set()
    for _, record in islice(read(shard, max_bytes, False, current().remote_io), _RECORDS):
        if record.problem is None:
            return None
        seen += 1
        rules.add(record.problem[0])
    if seen == _RECORDS:
        return None
    return f"has nothing that can be read ({', '.join(sorted(rules))})" if seen else "is empty"
