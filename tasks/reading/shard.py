"""A shard of a source: its records, read through or at one place, the types of its columns, and a look at it first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from gristmill.storage import files
from gristmill.storage.printable import redact_url
from gristmill.storage.remote.config import RemoteIOConfig
from gristmill.tasks.documents.instants import instant
from gristmill.tasks.engine.options import current
from gristmill.tasks.reading.formats.source import ReadOptions
from gristmill.tasks.reading.listing import ListedFiles, Shard, given_files
from gristmill.tasks.reading.own_columns import SAMPLED_ROWS, Types, joined, packed_type
from gristmill.tasks.reading.range_plan import Reading
from gristmill.tasks.reading.record import Record
from gristmill.tasks.reading.sources import format_of
from gristmill.tasks.reading.tables import ADVICE
from gristmill.tasks.url.canonical import with_scheme


def read(
    shard: Shard, max_bytes: int, verify_digests: bool, remote_io: RemoteIOConfig, reading: Reading | None = None
) -> Iterator[tuple[str, Record]]:
    """Every record of a shard in its order, each with the name of the file that it is in, and with a URL that has a
    scheme, where it begins with a host (`with_scheme`). `reading` learns how far it is."""
    options = ReadOptions(max_bytes, remote_io, verify_digests)
    for name, record in format_of(shard.format).named_records(shard, options, reading or Reading()):
        yield name, _with_scheme(record)


def _with_scheme(record: Record) -> Record:
    url = with_scheme(record.url)
    return record if url == record.url else replace(record, url=url)


def read_again(
    shard: Shard, file: str, offset: int, length: int | None, max_bytes: int, remote_io: RemoteIOConfig
) -> Record:
    """The record that `read` gave at a place of a file. Raises LookupError if it is not there any more."""
    options = ReadOptions(max_bytes, remote_io)
    return _with_scheme(format_of(shard.format).record_at(shard, file, offset, length, options))


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
# records whose dates are looked at
_DATED = 100


@dataclass(frozen=True)
class FirstRecords:
    """What the first records of a file show. `trouble`: why nothing can be read, "" if something can, or if there are
    many records; `advice`: what to do about it, if that is not to name other files; `unread_dates`: dates of them that
    cannot be read, of `dates`."""

    trouble: str = ""
    advice: str = ""
    dates: int = 0
    unread_dates: tuple[str, ...] = ()


def look(folder: str, number: int, source: str, shards: Sequence[Shard], max_bytes: int) -> dict:
    """Read the first local files of a source up to the first record that can be one of a document.

    Raises ValueError, which names a file, the cause, the recipe's key and the remedy, if none of the files has one.
    """
    if trouble := source_trouble(shards, max_bytes):
        raise ValueError(f"the source {source}: {trouble}, or remove the source from the recipe")
    return {"files": len(_looked_at(shards))}


def source_trouble(shards: Sequence[Shard], max_bytes: int) -> str:
    """Why nothing can be read of the first files of a source, with the remedy; "" if something can."""
    shards = _looked_at(shards)
    firsts = [first_records(shard, max_bytes) for shard in shards]
    if not firsts or not all(first.trouble for first in firsts):
        return ""
    kind = format_of(shards[0].format)
    more = f", nor have {len(shards) - 1} others" if len(shards) > 1 else ""
    wanted = kind.wanted.format(text=shards[0].columns.text)
    advice = firsts[0].advice or f"use files with {wanted} under `{kind.key}`"
    return f"{redact_url(shards[0].path)} {firsts[0].trouble}{more}: {advice}"


def _looked_at(shards: Sequence[Shard]) -> list[Shard]:
    return [shard for shard in shards if format_of(shard.format).wanted and files.is_local(shard.path)]


def first_records(shard: Shard, max_bytes: int, dates: bool = False) -> FirstRecords:
    """What the first records of a file show: up to the first one that can be a document, with `dates` of a hundred."""
    troubles: dict[str, str] = {}
    seen = good = 0
    dated: list[str] = []
    for _, record in islice(read(shard, max_bytes, False, current().remote_io), _DATED if dates else _RECORDS):
        if record.problem is None:
            good += 1
            dated += [record.date] if record.date.strip() else []
            if not dates:
                return FirstRecords()
            continue
        seen += 1
        troubles.setdefault(*record.problem)
        if record.problem[1].endswith(ADVICE):
            break
    if good or seen == _RECORDS:
        unread = [date for date in dated if instant(date) is None]
        return FirstRecords(dates=len(dated), unread_dates=tuple(unread))
    if not seen:
        return FirstRecords("is empty")
    [(rule, cause), *others] = troubles.items()
    rules, cause = ", ".join(sorted(troubles)), " ".join(cause.split())  # what libraries say may have lines
    if cause.endswith(ADVICE):
        cause, advice = cause.rsplit(": ", 1)
        return FirstRecords(f"has no readable records: {cause} ({rules})", advice)
    trouble = f"has no readable records: {cause} ({rules})"
    if rule == "too_large" and not others:
        return FirstRecords(
            trouble, f"give the step `extract` a larger `max_bytes` than {max_bytes:,}, or split the file"
        )
    return FirstRecords(trouble)
