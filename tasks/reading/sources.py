"""What a recipe may name as a source.

A source is known by which key it has: `warc`, `jsonl`, `parquet`, `text`, `pages`, `code`, `reader`, `snapshot` or
`index`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, ValidationInfo, field_validator, model_validator

from gristmill.storage.address import Address, from_folder
from gristmill.tasks.documents.step import DOCUMENT_COLUMNS, PAGE_COLUMNS, Settings
from gristmill.tasks.reading.repositories.reading import COLUMNS, Kept, Repositories

COMMON_CRAWL = "https://data.commoncrawl.org"
# Columns that a source gives by a key of their own, and those that steps give in every export.
_PLACED = ("text", "url", "id", "date")
TAKEN = frozenset({*DOCUMENT_COLUMNS, "language", "cluster_size"} - {*PAGE_COLUMNS})
OWN_NAME = re.compile(r"\w[\w -]*")
SNAPSHOT = r"CC-MAIN-\d{4}-\d{2}"

Paths = Annotated[
    tuple[Address, ...],
    Field(min_length=1, description="paths, globs, https:// or s3:// addresses, or *.paths or *.paths.gz lists"),
]


def _in_order(places: tuple[int, int]) -> tuple[int, int]:
    if places[0] > places[1]:
        raise ValueError(f"is {list(places)}, whose first is behind the last; exchange them")
    return places


Range = Annotated[
    tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]],
    AfterValidator(_in_order),
    Field(description="[first, last], counted from 0; both are taken"),
]


@dataclass(frozen=True)
class Columns:
    """Names of the columns, or keys, that are read; None for one that there is not. `own`: those that documents carry,
    as (name there, name in the file); `every`: all that have no other use; `pages`: whether the column `text` holds the
    bytes of pages, which are extracted, and no texts."""

    text: str = "text"
    url: str | None = None
    id: str | None = None
    date: str | None = None
    own: tuple[tuple[str, str], ...] = ()
    every: bool = False
    pages: bool = False

    @property
    def named(self) -> tuple[str, ...]:
        """The columns that are read as text, URL, id or date."""
        return tuple(name for name in (self.text, self.url, self.id, self.date) if name)

    def own_of(self, there: Sequence[str]) -> list[tuple[str, str]]:
        """Those of a file's columns that documents carry: the name that they have there, and that in the file."""
        if self.every:
            return [(name, name) for name in there if name not in self.named]
        return [(ours, theirs) for ours, theirs in self.own if theirs in there]


def check_own_names(columns: Mapping[str, str]) -> None:
    """Raise ValueError for a name of a column, by which documents carry one of a file's, that they cannot have."""
    for ours, theirs in columns.items():
        if ours in _PLACED:
            raise ValueError(
                f"names {ours}, which documents have already: write `{ours}_column: {theirs}` in the source, and name "
                f"the others one by one in `columns`{_renamed(ours, theirs).replace('; give', '; or give')}"
            )
        if ours in TAKEN:
            raise ValueError(f"names {ours}, which documents have already{_renamed(ours, theirs)}")
        if not OWN_NAME.fullmatch(ours):
            raise ValueError(
                f"names {ours!r}, which has other characters than letters, digits, _, - and spaces; give it a name of "
                f"its own, as `columns: {{my_name: {theirs!r}}}`"
            )


def _renamed(ours: str, theirs: str) -> str:
    return f"; give it a name of its own, as `columns: {{their_{ours}: {theirs}}}`"


class _Named(Settings):
    name: str = Field(
        pattern=r"^[a-z][a-z0-9_-]*$",
        description="of the source; `mixture.weights`, `reference` and the funnel name it",
    )


SHARD_BYTES = 16 << 20


RANGE_BYTES = 256 << 20
RangeBytes = Annotated[
    int,
    Field(
        gt=0,
        description="a file of more bytes, as it is stored, is read in ranges of one size, each a shard, which are "
        "divided where records, lines, compressed members or row groups begin; a single gzip stream, or row group, is "
        "read whole by one job",
    ),
]


class Files(_Named):
    shard_bytes: int = Field(
        SHARD_BYTES,
        gt=0,
        description="files go together, in the order of their names, into shards of at most so many bytes as they are "
        "stored, and of at most a sixteenth of the source; a larger file is a shard of its own",
    )


class Archives(Files):
    """WARC, ARC and WET files, known by their content.

    In an address `{home}` stands for where the stages are kept and `{local}` for the machine's own folder.
    """

    warc: Paths
    range_bytes: RangeBytes = RANGE_BYTES


class _Carrying(Files):
    columns: Literal["*"] | tuple[str, ...] | dict[str, str] = Field(
        (),
        description='columns that documents carry to every table and export: [title, license], "*" for all, or with '
        "names of one's own, {site_language: language}",
    )

    @field_validator("columns")
    @classmethod
    def _names(cls, columns: Any) -> Any:
        if columns != "*":
            check_own_names(_by_name(columns))
        return columns


class _Columned(_Carrying):
    text_column: str = Field("text", description="column, or key, of the texts")
    url_column: str | None = Field(None, description="of the URLs; None: there are none")
    id_column: str | None = Field(None, description="of ids that are unique; None: the place in the file is the id")
    date_column: str | None = Field(None, description="of the dates; None: there are none")

    @property
    def read_columns(self) -> Columns:
        return _columns(self.columns, self.text_column, self.url_column, self.id_column, self.date_column)


def _columns(own: Any, text: str, url: str | None, id: str | None, date: str | None) -> Columns:
    if own == "*":
        return Columns(text, url, id, date, every=True)
    return Columns(text, url, id, date, tuple(_by_name(own).items()))


def _by_name(columns: Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    return dict(columns) if isinstance(columns, Mapping) else {name: name for name in columns}


class Lines(_Columned):
    """Files of JSON objects, one a line: plain, gzip or zstd, known by their content."""

    jsonl: Paths
    range_bytes: RangeBytes = RANGE_BYTES


class Tables(_Columned):
    """Parquet files of texts, or of the bytes of pages."""

    parquet: Paths
    payload_column: str | None = Field(
        None, description="column of the bytes of pages (HTML, PDF), in place of texts; `extract` reads them"
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
        found = _columns(self.columns, self.payload_column, self.url_column, self.id_column, self.date_column)
        return replace(found, pages=True)


class Texts(Files):
    """Plain text files, one document a file: plain, gzip or zstd."""

    text: Paths


class Pages(Files):
    """Files of pages, one document a file, known by their content: HTML, PDF or text, plain, gzip or zstd.

    PDF documents are read if the step `extract` has `types: [..., pdf]`.
    """

    pages: Paths


class Code(Files):
    """Repositories of source code: folders, tar and zip archives (also sdists and wheels), and single files, known by
    their content. A folder is a repository, and so is each that a glob names; `.git` in it is passed over.

    Documents carry the columns path, repository, license, license_type (permissive, non_permissive, no_license),
    license_by (file, text, metadata, none), header_characters and files.
    """

    code: Paths
    unit: Literal["file", "repository"] = Field(
        "file",
        description="what a document is; repository: its files one behind the other, a module of Python before those "
        "that import it, other files by their paths",
    )
    document_bytes: int = Field(
        1 << 20, gt=0, description="of a document of several files at most; a larger file is one by itself"
    )
    file_header: str = Field(
        "<file_sep>{path}",
        description="line ahead of each file, with `unit: repository`; name what is in it in `tokenizer.symbols`, if "
        "it is to be one token",
    )
    leave_out: tuple[Kept, ...] = Field(
        (),
        description="files that are dropped as they are read: generated, vendored, minified, data; for `unit: "
        "repository`, whose documents have files of all kinds",
    )
    repeated_headers: bool = Field(
        False, description="a licence header that an earlier file of the repository has is kept, too"
    )
    archive_bytes: int = Field(
        8 << 30, gt=0, description="of what an archive unfolds to, the rest is dropped as `archive_too_large`"
    )

    @property
    def read_columns(self) -> Columns:
        return Columns(own=tuple((name, name) for name in COLUMNS))

    @property
    def repositories(self) -> Repositories:
        """How its files are read."""
        return Repositories(
            self.unit, self.document_bytes, self.file_header, self.leave_out, self.repeated_headers, self.archive_bytes
        )


class Own(_Carrying):
    """Files of any kind, read by a function of your own.

    `reader(file)` is given a seekable binary file and yields a mapping for each document: `text`, or `html` for a page,
    and, if it has them, `url`, `id`, `date` and columns of its own.
    """

    reader: str = Field(
        pattern=r"^\w+(\.\w+)*:\w+$", description="module:function, or the name of one of an installed package"
    )
    files: Paths

    @property
    def read_columns(self) -> Columns:
        return _columns(self.columns, "text", "url", "id", "date")


class Snapshot(_Named):
    """A crawl of Common Crawl, or a part of it.

    `segments` takes Common Crawl's segments (a hundred a crawl, some 900 files each) by their place in its list of
    files, `files` takes files (of 1 GB) by their place among those that are left. Without them it is the whole crawl.
    """

    snapshot: str = Field(pattern=f"^{SNAPSHOT}$", description="CC-MAIN-YYYY-WW")
    format: Literal["warc", "wet"] = Field("warc", description="`wet`: the text as Common Crawl extracts it")
    segments: Range | None = Field(None, description="[first, last] of the crawl's segments, from 0; None: all")
    files: Range | None = Field(None, description="[first, last] of the files that are left, from 0; None: all")
    base: Address = Field(COMMON_CRAWL, description="or s3://commoncrawl, or a mirror")
    range_bytes: RangeBytes = RANGE_BYTES


def _snapshot_or_path(value: str, info: ValidationInfo) -> str:
    return value if re.fullmatch(SNAPSHOT, value) else from_folder(value, info)


class _Indexed(_Named):
    index: tuple[Annotated[str, AfterValidator(_snapshot_or_path)], ...] = Field(
        min_length=1,
        description="snapshots (CC-MAIN-YYYY-WW), or paths, globs, addresses or lists of the index's Parquet files",
    )


class IndexFilters(Settings):
    """Which records of the columnar index are taken: those that meet every filter that is not empty."""

    hosts: tuple[str, ...] = Field((), description="www.example.org")
    domains: tuple[str, ...] = Field((), description="example.org: what was registered, with all its hosts")
    tlds: tuple[str, ...] = Field((), description="org")
    languages: tuple[str, ...] = Field((), description="ISO 639-3, as `isl`; the page's first language counts")
    mime: tuple[str, ...] = Field(("text/html", "application/xhtml+xml"), description="as detected from the content")
    status: tuple[int, ...] = Field((200,), description="HTTP status codes")
    url_prefixes: tuple[str, ...] = Field((), description="https://www.example.org/news/")
    limit: int | None = Field(None, gt=0, description="at most so many records, an even sample of all that fit")
    records_per_shard: int = Field(20_000, gt=0, description="most records of one job")

    @field_validator("languages")
    @classmethod
    def _three_letters(cls, languages: tuple[str, ...]) -> tuple[str, ...]:
        if other := [code for code in languages if not re.fullmatch("[a-z]{3}", code)]:
            raise ValueError(f"has {', '.join(other)}, which the index never names; give codes of ISO 639-3, as eng")
        return languages


class Selection(IndexFilters, _Indexed):
    """Records that Common Crawl's columnar index names, fetched one by one, or neighbours together.

    A record is taken if it meets every filter that is not empty (https://commoncrawl.org/columnar-index).
    """

    base: Address = Field(COMMON_CRAWL, description="where the archives lie that the index names, and its snapshots")


# Sources whose large files are read in ranges.
Ranged = Archives | Lines | Tables | Snapshot

_KINDS = {
    "warc": Archives,
    "jsonl": Lines,
    "parquet": Tables,
    "text": Texts,
    "pages": Pages,
    "code": Code,
    "reader": Own,
    "snapshot": Snapshot,
    "index": Selection,
}


def _kind(value: Any) -> str | None:
    keys = value if isinstance(value, Mapping) else getattr(type(value), "model_fields", ())
    named = [key for key in _KINDS if key in keys]
    return named[0] if len(named) == 1 else None


Source = Annotated[
    Annotated[Archives, Tag("warc")]
    | Annotated[Lines, Tag("jsonl")]
    | Annotated[Tables, Tag("parquet")]
    | Annotated[Texts, Tag("text")]
    | Annotated[Pages, Tag("pages")]
    | Annotated[Code, Tag("code")]
    | Annotated[Own, Tag("reader")]
    | Annotated[Snapshot, Tag("snapshot")]
    | Annotated[Selection, Tag("index")],
    Discriminator(
        _kind,
        custom_error_type="source",
        custom_error_message=f"a source has exactly one of the keys {', '.join(_KINDS)}",
    ),
]
