"""Sources whose files are read row by row, or as one document each: lines of JSON, Parquet, texts and single pages."""

import codecs
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import orjson
import pyarrow as pa
from pydantic import Field, model_validator
from wrapt import lazy_import

from gristmill.storage import files
from gristmill.tasks.documents.step import Problem
from gristmill.tasks.reading.formats.source import (
    CHARACTERS,
    RANGE_BYTES,
    TEXTS,
    Beginning,
    Columned,
    Files,
    Look,
    Paths,
    RangeBytes,
    ReadOptions,
    table_look,
)
from gristmill.tasks.reading.listing import Shard
from gristmill.tasks.reading.range_plan import Reading
from gristmill.tasks.reading.record import Columns, Record, columns_of, is_in

if TYPE_CHECKING:
    from gristmill.tasks.reading import charset, own_columns, parquet_rows, tables
else:
    charset = lazy_import("gristmill.tasks.reading.charset")
    own_columns = lazy_import("gristmill.tasks.reading.own_columns")
    parquet_rows = lazy_import("gristmill.tasks.reading.parquet_rows")
    tables = lazy_import("gristmill.tasks.reading.tables")

LOOK_BYTES = 1 << 20  # of a record that is looked at before a run
LOOK_ROWS = 64  # at the beginning of each of LOOK_FILES files, spread over the files of a source
LOOK_FILES = 8
_CONVERT = "convert it with `iconv -f {} -t UTF-8`"
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


class _Rows(Files):
    """Files that `gristmill.tasks.reading.tables` reads."""

    @classmethod
    def records(cls, shard: Shard, options: ReadOptions, reading: Reading) -> Iterator[Record]:
        how = shard.columns, options.max_bytes, options.remote_io
        return tables.records(shard.path, cls.file_format, *how, reading, shard.part)

    @classmethod
    def record_at(cls, shard: Shard, file: str, offset: int, length: int | None, options: ReadOptions) -> Record:
        how = shard.columns, options.max_bytes, options.remote_io
        return tables.read_row(shard.path, cls.file_format, offset, *how)


class Lines(_Rows, Columned):
    """JSON Lines files, plain or compressed with gzip or zstd (detected from the content)."""

    key: ClassVar = "jsonl"
    file_format: ClassVar = "jsonl"
    wanted: ClassVar = "a JSON object with a text in `{text}` (text_column)"
    range_starts: ClassVar = "line"
    examples: ClassVar = {
        "name": "forum",
        "jsonl": ["posts/*.jsonl.zst"],
        "url_column": "link",
        "id_column": "post_id",
        "date_column": "posted",
        "columns": ["title", "license"],
    }

    jsonl: Paths
    range_bytes: RangeBytes = RANGE_BYTES

    @property
    def needs_extraction(self) -> bool:
        return False

    def column_problems(self, paths: Sequence[str]) -> Iterator[Problem]:
        """A key of ids or URLs that no record at the beginnings of the files has would be empty for every document."""
        yield from super().column_problems(paths)
        keys = {key: name for key in ("id_column", "url_column") if (name := getattr(self, key)) is not None}
        local = [path for path in paths if files.is_local(path)] if keys else []
        looked_at = local[:: -(-len(local) // LOOK_FILES)] if local else []
        rows = [row for path in looked_at for row in self._first_rows(path)]
        names = ", ".join([self.text_column, *dict.fromkeys(name for row in rows for name in row)])
        more = f" and {len(looked_at) - 1} other files" if len(looked_at) > 1 else ""
        for key, name in keys.items():
            if rows and not any(is_in(row, name) for row in rows):
                yield (
                    (key,),
                    f"is {name}, which none of the first {len(rows)} records of {looked_at[0]}{more} has; "
                    f"they have {names}",
                )

    def _first_rows(self, path: str) -> list[Mapping[str, Any]]:
        every = Columns(self.text_column, every=True)
        try:
            first = islice(tables.records(path, self.file_format, every, LOOK_BYTES), LOOK_ROWS)
            return [record.own for record in first if record.own is not None]
        except (OSError, ValueError):
            return []  # what reads the file says so

    @classmethod
    def recognize(cls, beginning: Beginning) -> Look | None:
        if beginning.head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            is_json = beginning.head[2:].replace(b"\0", b"").lstrip()[:1] in (b"{", b"[")
            return Look(None, trouble=f"JSON in UTF-16: {_CONVERT.format('UTF-16')}") if is_json else None
        if beginning.head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in (b"{", b"["):
            return None
        lines = beginning.head.removeprefix(codecs.BOM_UTF8).split(b"\n")
        rows: list[dict[str, Any]] = []
        for line in lines if beginning.is_whole else lines[:-1]:
            if not line.strip():
                continue
            try:
                row = tables.parse_line(line)
            except orjson.JSONDecodeError:
                row = None
            if not isinstance(row, dict):
                if rows:  # a damaged line in a file of lines
                    continue
                if not _is_utf8(line):
                    return Look(None, trouble=f"JSON that is not UTF-8: {_CONVERT.format('ENCODING')}")
                return Look(None, trouble="JSON, but not one object per line: write each document on its own line")
            rows.append(row)
            if len(rows) == TEXTS:
                break
        if not rows:
            return Look(None, trouble="its first line has more than 1 MiB")
        names = dict.fromkeys(name for row in rows for name in row)
        return table_look(cls.key, {name: [row.get(name) for row in rows] for name in names})


class Tables(_Rows, Columned):
    """Parquet files with texts, or with the bytes of pages."""

    key: ClassVar = "parquet"
    file_format: ClassVar = "parquet"
    wanted: ClassVar = "a row with a text in `{text}` (text_column)"
    examples: ClassVar = {
        "name": "books",
        "parquet": ["s3://bucket/books/*.parquet"],
        "url_column": "link",
        "id_column": "isbn",
        "date_column": "published",
        "payload_column": "content",
        "columns": ["title", "license"],
    }

    parquet: Paths
    payload_column: str | None = Field(
        None, description="Column with the bytes of pages (HTML, PDF) instead of texts. `extract` reads them."
    )
    range_bytes: RangeBytes = RANGE_BYTES

    @model_validator(mode="after")
    def _texts_or_pages(self) -> "Tables":
        if self.payload_column is not None and "text_column" in self.model_fields_set:
            raise ValueError("has text_column and payload_column; give one of them")
        return self

    @property
    def read_columns(self) -> Columns:
        if self.payload_column is None:
            return super().read_columns
        columns = columns_of(self.columns, self.payload_column, self.url_column, self.id_column, self.date_column)
        return replace(columns, pages=True)

    @property
    def needs_extraction(self) -> bool:
        return self.read_columns.pages

    @classmethod
    def column_types(cls, shard: Shard, max_bytes: int) -> Iterator[tuple["own_columns.Types", list[str]]]:
        return own_columns.types_of_footer(shard)

    @classmethod
    def column_names(cls, path: str, columns: Columns) -> list[str]:
        return own_columns.names_of_footer(path, columns)

    @classmethod
    def recognize(cls, beginning: Beginning) -> Look | None:
        if not beginning.stored.startswith(b"PAR1"):
            return None
        try:
            rows = parquet_rows.first_rows(beginning.path, TEXTS)
        except (OSError, pa.ArrowException, parquet_rows.UndecodableError) as error:
            return Look(None, trouble=f"a damaged Parquet file: {error}".splitlines()[0])
        if not rows:
            return Look(None, trouble="without rows")
        return table_look(cls.key, {name: _as_texts(values) for name, values in rows.items()})


def _as_texts(values: Sequence[Any]) -> Sequence[Any]:
    """Values of a column of bytes as texts, if most are texts in UTF-8: some writers do not say that strings are. Pages
    and documents are none."""
    texts = [
        value.decode()
        if isinstance(value, bytes) and not value.lstrip().startswith((b"<", b"%PDF-")) and _is_utf8(value)
        else None
        for value in values
    ]
    own = sum(value is not None for value in values)
    return texts if 2 * sum(text is not None for text in texts) > own else values


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


class Texts(_Rows):
    """Plain text files, one document per file: plain, gzip or zstd."""

    key: ClassVar = "text"
    file_format: ClassVar = "text"
    wanted: ClassVar = "a text"
    examples: ClassVar = {"name": "notes", "text": ["notes/**/*.txt"]}

    text: Paths

    @property
    def needs_extraction(self) -> bool:
        return False

    @classmethod
    def recognize(cls, beginning: Beginning) -> Look | None:
        head = beginning.head
        if _CONTROLS.search(head) and not head.startswith(codecs.BOM_UTF16):
            return None
        return Look(cls.key, texts=(charset.decode(head, charset.detect(head, None, False))[:CHARACTERS],))


class Pages(_Rows):
    """Page files, one document per file: HTML, PDF or text; plain, gzip or zstd. The format is detected from the
    content, and HTML also from the suffix `.html`.

    PDF documents are read if the step `extract` has `types: [..., pdf]`.
    """

    key: ClassVar = "pages"
    file_format: ClassVar = "page"
    examples: ClassVar = {"name": "papers", "pages": ["papers/**/*.pdf"]}

    pages: Paths

    @property
    def read_columns(self) -> Columns:
        return Columns(pages=True)

    @classmethod
    def recognize(cls, beginning: Beginning) -> Look | None:
        return Look(cls.key) if beginning.head.startswith(b"%PDF-") else None
