"""Sources whose files a function of the user reads."""

import datetime
import io
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field
from wrapt import lazy_import

from gristmill.tasks.documents.step import StepError, function_at
from gristmill.tasks.engine import own_code
from gristmill.tasks.reading.formats.source import Carrying, Inspection, Paths, ReadOptions
from gristmill.tasks.reading.listing import Shard, files_of, shards
from gristmill.tasks.reading.range_plan import Reading
from gristmill.tasks.reading.record import Columns, Record, columns_of

if TYPE_CHECKING:
    from gristmill.storage.remote import streams
    from gristmill.tasks.reading import tables
else:
    streams = lazy_import("gristmill.storage.remote.streams")
    tables = lazy_import("gristmill.tasks.reading.tables")


class Own(Carrying):
    """Files of any kind, read with your own Python function.

    `reader(file)` is given a seekable binary file and yields a mapping for each document: `text`, or `html` for a page,
    and, if it has them, `url`, `id`, `date` and columns of its own.
    """

    key: ClassVar = "reader"
    file_format: ClassVar = "own"  # of no shard: those have the address of the function
    examples: ClassVar = {
        "name": "mail",
        "reader": "mail_reader:mbox",
        "files": ["mail/**/*.mbox"],
        "columns": ["title"],
    }

    reader: str = Field(
        pattern=r"^\w+(\.\w+)*:\w+$",
        description="Reader: `module:function`, or the name of a reader from an installed package.",
    )
    files: Paths

    @property
    def read_columns(self) -> Columns:
        return columns_of(self.columns, "text", "url", "id", "date")

    @property
    def paths_key(self) -> str:
        return "files"

    def shards(self) -> list[Shard]:
        return shards(self.reader, files_of(self.files), self.read_columns)

    def inspect(self, deep: bool) -> Inspection:
        if deep:
            try:
                function_at(self.reader)
            except StepError as error:
                return Inspection(self, None, None, True, False, ((("reader",), str(error)),))
        return super().inspect(deep)

    @classmethod
    def records(cls, shard: Shard, options: ReadOptions, reading: Reading) -> Iterator[Record]:
        """A record for each mapping that a user's reader gives; `offset` is its number from 0.

        What it cannot read is lost, as one `damaged_record`. Raises FileNotFoundError, RemoteIOError, StepError for a
        reader that cannot be imported, and OwnCodeError for one that yields something else than mappings, ends the
        program, or never yields.
        """
        reader = function_at(shard.format)
        label = f"reader {shard.format}"
        number = -1
        with streams.open_ranges(shard.path, options.remote_io) as raw:
            file = io.BufferedReader(raw, options.remote_io.block_bytes) if isinstance(raw, io.RawIOBase) else raw
            try:
                for number, row in enumerate(own_code.rows_of(label, reader, file)):
                    if not isinstance(row, Mapping):
                        raise own_code.unacceptable(
                            label, reader, f"yields {own_code.shown(row)}; yield a mapping with `text` or `html`"
                        )
                    yield _own_record(number, row, shard.columns, options.max_bytes)
            except own_code.OwnCodeError as error:
                if not isinstance(error.__cause__, Exception):  # the file is not damaged
                    raise
                yield tables.lost(number + 1, "damaged_record", f"record {number + 2}, and what follows: {error}")


def _own_record(number: int, row: Mapping[str, Any], columns: Columns, max_bytes: int) -> Record:
    html = row.get("html")
    content = row.get("text") if html is None else html
    if not isinstance(content, str | bytes):
        reason = "missing" if content is None else f"a {type(content).__name__}"
        return tables.lost(number, "no_text", f"record {number + 1}: its text is {reason}")
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    if len(data) > max_bytes:
        return tables.lost(number, "too_large", f"record {number + 1}: more than {max_bytes} bytes")
    try:
        own = {ours: _plain(row[theirs]) for ours, theirs in columns.own_of([name for name in row if name != "html"])}
    except TypeError as error:
        return tables.lost(number, "damaged_record", f"record {number + 1}: {error}")
    url, identity, date = (tables.as_text(row.get(name)) for name in ("url", "id", "date"))
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
