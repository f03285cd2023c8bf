"""Sources of pages of the web: WARC, ARC and WET files, crawls of Common Crawl, and records that its index selects."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from threading import Event
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator
from wrapt import lazy_import

from gristmill.storage import files, parquet
from gristmill.storage.printable import redact_url
from gristmill.storage.remote.config import DEFAULT, RemoteIOConfig
from gristmill.storage.settings import Address, from_folder
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.reading.formats.source import (
    CHARACTERS,
    RANGE_BYTES,
    TEXTS,
    Beginning,
    Files,
    Inspection,
    Look,
    Paths,
    RangeBytes,
    ReadOptions,
    SourceSettings,
    inspect_listed,
)
from gristmill.tasks.reading.headers import LINE, begins_record
from gristmill.tasks.reading.listing import Shard, expand, files_of_list, shards
from gristmill.tasks.reading.range_plan import Reading
from gristmill.tasks.reading.record import Record

if TYPE_CHECKING:
    from resiliparse.extract import html2text

    from gristmill.storage.remote import streams
    from gristmill.tasks.reading import archives, charset
else:
    streams = lazy_import("gristmill.storage.remote.streams")
    html2text = lazy_import("resiliparse.extract.html2text")
    archives = lazy_import("gristmill.tasks.reading.archives")
    charset = lazy_import("gristmill.tasks.reading.charset")


COMMON_CRAWL = "https://data.commoncrawl.org"
SNAPSHOT = r"CC-MAIN-\d{4}-\d{2}"
# Bytes of one file of Common Crawl, packed.
CRAWL_FILE_BYTES = 1_000_000_000
_SEGMENT = re.compile(r"/segments/([^/]+)/")
_LOOKED_AT = 400  # records of an archive
_MAX_BYTES = 1 << 20  # of a page of these


def _in_order(places: tuple[int, int]) -> tuple[int, int]:
    if places[0] > places[1]:
        raise ValueError(f"is {list(places)}, where the first is after the last; swap them")
    return places


Range = Annotated[
    tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]],
    AfterValidator(_in_order),
    Field(description="[first, last], counted from 0, both included"),
]


class Archives(Files):
    """WARC, ARC and WET files. The format is detected from the content.

    In an address `{home}` is the folder with the stages and `{local}` the machine's own folder.
    """

    key: ClassVar = "warc"
    file_format: ClassVar = "archive"
    wanted: ClassVar = "a WARC, ARC or WET record"
    is_crawl: ClassVar = True
    range_starts: ClassVar = "record"
    examples: ClassVar = {"name": "web", "warc": ["crawl/*.warc.gz"]}

    warc: Paths
    range_bytes: RangeBytes = RANGE_BYTES

    @classmethod
    def records(cls, shard: Shard, options: ReadOptions, reading: Reading) -> Iterator[Record]:
        how = options.max_bytes, options.remote_io, options.verify_digests
        return archives.records(shard.path, *how, shard.part, reading)

    @classmethod
    def record_at(cls, shard: Shard, file: str, offset: int, length: int | None, options: ReadOptions) -> Record:
        return archives.read_at(shard.path, offset, length, options.max_bytes, options.remote_io)

    @classmethod
    def recognize(cls, beginning: Beginning) -> Look | None:
        if not begins_record(beginning.head[:LINE]):
            return None
        texts: list[str] = []
        pages = 0
        for record in islice(archives.records(beginning.path, _MAX_BYTES), _LOOKED_AT):
            if len(texts) == TEXTS:
                break
            if not record.payload or record.status not in (None, 200):
                continue
            html = record.content_type in ("text/html", "application/xhtml+xml")
            if html or record.content_type == "text/plain":
                text = charset.decode(record.payload, charset.detect(record.payload, record.charset, html))
                text = html2text.extract_plain_text(text, main_content=True) if html else text
                if text.strip():
                    texts.append(text[:CHARACTERS])
                    pages += html
        return Look(cls.key, texts=tuple(texts), pages=pages)


class Snapshot(SourceSettings):
    """A Common Crawl snapshot, or part of one.

    `segments` takes Common Crawl's segments (a hundred a crawl, some 900 files each) by their place in its list of
    files, `files` takes files (of 1 GB) by their place among those that are left. Without them it is the whole crawl.
    """

    key: ClassVar = "snapshot"
    file_format: ClassVar = Archives.file_format
    is_crawl: ClassVar = True
    is_immutable: ClassVar = True
    range_starts: ClassVar = Archives.range_starts
    examples: ClassVar = {"name": "crawl", "snapshot": "CC-MAIN-2024-51", "segments": [0, 4], "files": [0, 99]}

    snapshot: str = Field(pattern=f"^{SNAPSHOT}$", description="Name of the snapshot, CC-MAIN-YYYY-WW.")
    format: Literal["warc", "wet"] = Field(
        "warc", description="Files to read. `wet`: the text that Common Crawl extracted."
    )
    segments: Range | None = Field(
        None, description="Range of the snapshot's segments to read, [first, last], counted from 0. None: all."
    )
    files: Range | None = Field(
        None, description="Range of files to read within the chosen segments, [first, last], counted from 0. None: all."
    )
    base: Address = Field(
        COMMON_CRAWL, description="Address to download from: Common Crawl, s3://commoncrawl, or a mirror."
    )
    range_bytes: RangeBytes = RANGE_BYTES

    def shards(self) -> list[Shard]:
        """The files in the order of the crawl's list. Raises as `SourceSettings.shards`."""
        return shards(self.file_format, self._listed())

    def inspect(self, deep: bool) -> Inspection:
        def list_paths() -> list[str]:
            return [shard.path for shard in self.shards()]

        inspection = inspect_listed(self, list_paths, redact_url(self.snapshot), deep or files.is_local(self.base))
        count = inspection.files if self.files is None else self.files[1] - self.files[0] + 1
        return replace(inspection, bytes=None if count is None else count * CRAWL_FILE_BYTES)

    def _listed(self) -> dict[str, str]:
        path = files.join(self.base, "crawl-data", self.snapshot, f"{self.format}.paths.gz")
        names = files_of_list(path)
        selected_files = list(names)
        if self.segments:
            segments = [match[1] if (match := _SEGMENT.search(file)) else "" for file in selected_files]
            selected_segments = set(
                _part(list(dict.fromkeys(segments)), self.segments, f"{redact_url(path)}: segments")
            )
            selected_files = [
                file for file, segment in zip(selected_files, segments, strict=True) if segment in selected_segments
            ]
        if self.files:
            selected_files = _part(selected_files, self.files, f"{redact_url(path)}: files")
        return {file: names[file] for file in selected_files}


def _part(names: list[str], places: tuple[int, int], what: str) -> list[str]:
    first, last = places
    if not first <= last < len(names):
        raise FileNotFoundError(f"{what} {first} to {last} do not exist; choose from 0 to {len(names) - 1}")
    return names[first : last + 1]


def _snapshot_or_path(value: str, info: ValidationInfo) -> str:
    return value if re.fullmatch(SNAPSHOT, value) else from_folder(value, info)


class _Indexed(SourceSettings):
    index: tuple[Annotated[str, AfterValidator(_snapshot_or_path)], ...] = Field(
        min_length=1,
        description="Snapshots (CC-MAIN-YYYY-WW), or paths, globs, addresses or lists of the index's Parquet files.",
    )


class IndexFilters(Settings):
    """Filters on the columnar index: a record is read if it matches every filter that is not empty."""

    hosts: tuple[str, ...] = Field((), description="Exact host names, such as www.example.org.")
    domains: tuple[str, ...] = Field((), description="Registered domains with all their hosts, such as example.org.")
    tlds: tuple[str, ...] = Field((), description="Top-level domains, such as org.")
    languages: tuple[str, ...] = Field(
        (), description="Languages as ISO 639-3 codes, such as `isl`. Only the first language of a page counts."
    )
    mime: tuple[str, ...] = Field(
        ("text/html", "application/xhtml+xml"), description="MIME types, as detected from the content."
    )
    status: tuple[int, ...] = Field((200,), description="HTTP status codes.")
    url_prefixes: tuple[str, ...] = Field((), description="Beginnings of URLs, such as https://www.example.org/news/.")
    limit: int | None = Field(None, gt=0, description="Maximum number of records: an even sample of all matches.")
    records_per_shard: int = Field(20_000, gt=0, description="Maximum number of records per job.")

    @field_validator("languages")
    @classmethod
    def _three_letters(cls, languages: tuple[str, ...]) -> tuple[str, ...]:
        if other := [code for code in languages if not re.fullmatch("[a-z]{3}", code)]:
            raise ValueError(f"has {', '.join(other)}, which the index never has; use ISO 639-3 codes, such as eng")
        return languages


class Selection(IndexFilters, _Indexed):
    """Records that Common Crawl's columnar index lists. Each is fetched separately, or together with adjacent records.

    A record is taken if it meets every filter that is not empty (https://commoncrawl.org/columnar-index).
    """

    key: ClassVar = "index"
    file_format: ClassVar = "selection"
    is_crawl: ClassVar = True
    is_immutable: ClassVar = True
    examples: ClassVar = {
        "name": "iceland",
        "index": ["CC-MAIN-2024-51"],
        "hosts": ["www.example.org"],
        "domains": ["example.org"],
        "tlds": ["is"],
        "languages": ["isl"],
        "url_prefixes": ["https://www.example.org/docs/"],
        "limit": 10000,
    }

    base: Address = Field(
        COMMON_CRAWL, description="Address of the archives that the index refers to, and of the snapshots' index files."
    )

    def selected_shards(self, paths: Sequence[str]) -> list[Shard]:
        """The files at `paths`, which `gristmill.tasks.reading.index.gather` wrote for this source."""
        return [Shard(self.file_format, path, path.rsplit("/", 1)[-1], base=self.base) for path in paths]

    def tables(self) -> list[str]:
        """The Parquet files of the index that it selects from, sorted.

        For a snapshot, only the files about pages: the index also has redirects, errors and robots.txt.
        """
        paths = set(expand(self._other_paths()))
        for name in self.index:
            if re.fullmatch(SNAPSHOT, name):
                table_paths = files_of_list(files.join(self.base, "crawl-data", name, "cc-index-table.paths.gz"))
                paths.update(path for path in table_paths if "/subset=warc/" in path)
        return sorted(paths)

    def inspect(self, deep: bool) -> Inspection:
        is_local = all(map(files.is_local, self._other_paths() or [self.base]))
        inspection = inspect_listed(self, self.tables, redact_url(str(self.index)), deep or is_local)
        return replace(inspection, files=None)  # of the index: which files are read is known when records are selected

    def _other_paths(self) -> list[str]:
        """Addresses of the index, without the addresses of whole snapshots."""
        return [name for name in self.index if not re.fullmatch(SNAPSHOT, name)]

    @classmethod
    def named_records(cls, shard: Shard, options: ReadOptions, reading: Reading) -> Iterator[tuple[str, Record]]:
        how = options.max_bytes, options.remote_io, options.verify_digests
        return records(shard.path, shard.base, *how, reading)

    @classmethod
    def record_at(cls, shard: Shard, file: str, offset: int, length: int | None, options: ReadOptions) -> Record:
        return archives.read_at(files.join(shard.base, file), offset, length, options.max_bytes, options.remote_io)


# Records that an index selected, read from their archives, in requests for neighbors together.


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

    Records that are at most `gap_bytes` apart are fetched with one request of at most `block_bytes`, unless a single
    record is longer. A place without a record has the problem `damaged_record`. Holds two requests and the shard's
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
            f"the index after {path} has the archive {name[:200]!r}, which is not a path below the source's "
            "`base`: use the index from its publisher"
        )
