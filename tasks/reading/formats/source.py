"""What the settings of all sources answer: the files that they name, how these are read, what is wrong with them, and
what a file is, as its beginning shows.

A format is a class of these: its key in the recipe, its settings, and how its files are read. A row in
`gristmill.tasks.reading.sources.FORMATS` makes it one that recipes, readers, checks and `gristmill recipe init` know.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator
from wrapt import lazy_import

from gristmill.storage import files
from gristmill.storage.remote.config import RemoteIOConfig
from gristmill.storage.settings import Address
from gristmill.tasks.documents.file_problems import error_sentence
from gristmill.tasks.documents.step import Problem, Settings
from gristmill.tasks.engine.options import current
from gristmill.tasks.reading.listing import Shard, expected_shards, files_of, shards
from gristmill.tasks.reading.range_plan import Reading
from gristmill.tasks.reading.record import NO_COLUMNS, Columns, Record, by_name, check_own_names, columns_of

if TYPE_CHECKING:
    from gristmill.tasks.reading import own_columns
else:
    own_columns = lazy_import("gristmill.tasks.reading.own_columns")


TEXTS = 40  # texts of a file that are looked at
CHARACTERS = 2000  # of each of them
# Names of columns, the likeliest first; in either case.
_TEXT = (
    *("text", "content", "body", "raw_content", "page_content", "contents", "article", "document", "passage"),
    *("plain_text", "raw_text", "maintext", "markdown", "story", "abstract"),
)
URL_NAMES = ("url", "uri", "source_url", "page_url", "link", "permalink", "target_uri", "warc_target_uri")
_ID = (
    "id",
    "doc_id",
    "docid",
    "dockey",
    "doc_key",
    "document_id",
    "_id",
    "uuid",
    "guid",
    "record_id",
    "warc_record_id",
    "key",
)
_DATE = (
    *("date", "crawl_date", "date_download", "timestamp", "published", "published_at", "date_publish", "created"),
    *("created_at", "created_date", "pubdate", "pub_date", "when", "time", "warc_date", "added", "year"),
)


@dataclass(frozen=True)
class Beginning:
    """The beginning of a file. `head`: of its content, unpacked; `is_whole`: whether that is all of it; `stored`: its
    first bytes as they are stored."""

    path: str
    head: bytes
    is_whole: bool
    stored: bytes


@dataclass(frozen=True)
class Look:
    """What a file is. `kind`: the key of a source that reads it, or None, and `trouble` is the reason; `columns`: of
    tables, and `others` that there are; `texts`: the beginnings of some documents; `pages`: how many were HTML. A PDF
    document has the kind `pages`; it is not read here, as that needs a guarded process."""

    kind: str | None
    columns: Columns = NO_COLUMNS
    texts: tuple[str, ...] = ()
    pages: int = 0
    trouble: str = ""
    others: tuple[str, ...] = ()


def table_look(kind: str, values: Mapping[str, Sequence[Any]]) -> Look:
    """What a file of tables is. `values`: values of some rows, by column."""
    lengths = {
        name: sum(map(len, texts)) / len(column_values)
        for name, column_values in values.items()
        if (texts := [value for value in column_values if isinstance(value, str)])
        and len(texts) * 2 >= len(column_values)
    }
    lengths = {name: length for name, length in lengths.items() if length}
    if not lengths:
        return Look(None, trouble=f"no column with text; there are {', '.join(values) or 'none'}")
    keys = {*URL_NAMES, *_ID, *_DATE}  # which hold no texts
    unnamed = {name: length for name, length in lengths.items() if name.lower().replace("-", "_") not in keys}
    text = named_column(_TEXT, lengths) or max(unnamed, key=lambda name: unnamed[name], default=None)
    if text is None:
        return Look(None, trouble=f"no column with text; there are {', '.join(values)}")
    others = [
        name
        for name, column_values in values.items()
        if name != text and any(isinstance(each, str | int) for each in column_values)
    ]
    dates = [
        name
        for name, column_values in values.items()
        if name != text and any(each is not None for each in column_values)
    ]
    columns = Columns(text, named_column(URL_NAMES, others), named_column(_ID, others), named_column(_DATE, dates))
    begun = tuple(value[:CHARACTERS] for value in values[text] if isinstance(value, str))
    others = [name for name in values if name not in columns.named]
    return Look(kind, columns, begun, others=tuple(others))


def named_column(names: Sequence[str], columns: Sequence[str] | Mapping[str, Any]) -> str | None:
    """The column with the likeliest name."""
    lower = {column.lower().replace("-", "_"): column for column in reversed([*columns])}
    return next((lower[name] for name in names if name in lower), None)


Paths = Annotated[
    tuple[Address, ...],
    Field(min_length=1, description="Paths, globs, https:// or s3:// addresses, or *.paths or *.paths.gz lists."),
]
SHARD_BYTES = 16 << 20
RANGE_BYTES = 256 << 20
RangeBytes = Annotated[
    int,
    Field(
        gt=0,
        description="Size above which a file is split (bytes, as stored). Each range is a shard. Files are "
        "split where records, lines, compressed members or row groups begin. A single gzip "
        "stream or row group cannot be split, so one job reads it.",
    ),
]


@dataclass(frozen=True)
class Inspection:
    """What is known of a source's files before they are read. `files`, `bytes`: how many there are, and their bytes;
    None if only a remote server knows. `is_packed`: whether they are compressed; `is_complete`: whether all of them
    were looked for."""

    source: "SourceSettings"
    files: int | None
    bytes: int | None
    is_packed: bool
    is_complete: bool
    problems: tuple[Problem, ...] = ()

    @property
    def shards(self) -> int:
        """About how many jobs read the source: one for each group of files, or for each range of a large file. One
        where neither files nor bytes are known."""
        most = self.source.max_range_bytes
        ranges = -(-self.bytes // most) if self.bytes is not None and most else 0
        groups = self.files or 1
        if isinstance(self.source, Files):
            groups = expected_shards(groups, self.bytes, self.source.shard_bytes)
        return max(groups, ranges)


@dataclass(frozen=True)
class ReadOptions:
    """`max_bytes`: of a document; a larger one is lost. `verify_digests`: compare records with their own digests."""

    max_bytes: int
    remote_io: RemoteIOConfig
    verify_digests: bool = False


class SourceSettings(Settings):
    """A source of a recipe.

    `key`: the key in the recipe by which it is known. `file_format`: how shards and records of stages name the format
    of its files. `wanted`: what a file must have to be one of this format, in errors; "" if that is not checked.
    `is_crawl`: its files have pages of the web. `is_immutable`: its files never change at their addresses, so names
    identify them. `range_starts`: how the first record of a range of a file is found: by counting lines, or by a
    search; "" if files are read whole. `libraries`: distributions whose release decides what is read, which may be
    missing where an extra brings them (`gristmill.tasks.engine.extras`); `packages`: others that it needs. `examples`:
    for the reference, a value of each setting that has none by default.
    """

    key: ClassVar[str]
    file_format: ClassVar[str]
    wanted: ClassVar[str] = ""
    is_crawl: ClassVar[bool] = False
    is_immutable: ClassVar[bool] = False
    range_starts: ClassVar[Literal["", "line", "record"]] = ""
    libraries: ClassVar[tuple[str, ...]] = ()
    packages: ClassVar[tuple[str, ...]] = ()
    examples: ClassVar[Mapping[str, Any]] = {}

    name: str = Field(
        pattern=r"^[a-z][a-z0-9_-]*$",
        description="Name of the source. `mixture.weights`, `reference` and the funnel refer to it.",
    )

    @property
    def read_columns(self) -> Columns:
        """The columns of its files that are read."""
        return NO_COLUMNS

    @property
    def needs_extraction(self) -> bool:
        """Whether its documents are pages, and have no texts before the step `extract`."""
        return True

    @property
    def max_range_bytes(self) -> int | None:
        """Bytes of the longest range of a file that one job reads; None if files are read whole."""
        return getattr(self, "range_bytes", None)

    def shards(self) -> list[Shard]:
        """The files by their names in order. Raises FileNotFoundError for a path that names no file, RemoteIOError, and
        ValueError for a damaged list or two files of one name."""
        raise NotImplementedError

    def inspect(self, deep: bool) -> Inspection:
        """Look for the files before a run. `deep`: also ask for remote files, and import the user's reader."""
        raise NotImplementedError

    @classmethod
    def records(cls, shard: Shard, options: ReadOptions, reading: Reading) -> Iterator[Record]:
        """Every record of a file of this format in its order. `reading` learns how far it is."""
        raise NotImplementedError

    @classmethod
    def named_records(cls, shard: Shard, options: ReadOptions, reading: Reading) -> Iterator[tuple[str, Record]]:
        """The same as `records`, each with the name of its file."""
        for record in cls.records(shard, options, reading):
            yield shard.name, record

    @classmethod
    def record_at(cls, shard: Shard, file: str, offset: int, length: int | None, options: ReadOptions) -> Record:
        """The record that `named_records` gave at a place of a file; the shard is read up to it. Raises LookupError if
        it is not there any more."""
        for record in cls.records(shard, options, Reading()):
            if record.offset == offset:
                return record
        raise LookupError(f"{shard.path} has no record {offset + 1}")

    @classmethod
    def _read(cls, shard: Shard, max_bytes: int) -> Iterator[Record]:
        for _, record in cls.named_records(shard, ReadOptions(max_bytes, current().remote_io), Reading()):
            yield record

    @classmethod
    def column_types(cls, shard: Shard, max_bytes: int) -> Iterator[tuple["own_columns.Types", list[str]]]:
        """The types of the columns that documents carry, and names of columns that there are, from a part of a file
        each."""
        return own_columns.types_of_records(cls._read, shard, max_bytes)

    @classmethod
    def column_names(cls, path: str, columns: Columns) -> list[str]:
        """Names of the columns of a file that are not text, URL, id or date."""
        return own_columns.names_of_records(cls._read, path, cls.file_format, columns)

    @classmethod
    def recognize(cls, beginning: Beginning) -> Look | None:
        """What a file is, if it has this format, by its beginning; None for another format."""
        return None


class Files(SourceSettings):
    shard_bytes: int = Field(
        SHARD_BYTES,
        gt=0,
        description="Maximum size of a shard (bytes, as stored). Files in the same folder are grouped in name order "
        "until a shard reaches this size or a sixteenth of the source. A larger file is a shard by itself.",
    )

    @property
    def paths_key(self) -> str:
        """The key whose value names the files."""
        return self.key

    @property
    def paths(self) -> tuple[str, ...]:
        return getattr(self, self.paths_key)

    def shards(self) -> list[Shard]:
        return shards(self.file_format, files_of(self.paths), self.read_columns)

    def inspect(self, deep: bool) -> Inspection:
        key = self.paths_key
        sizes: dict[str, int | None] = {}
        problems: list[Problem] = []
        is_complete = True
        for index, pattern in enumerate(self.paths):
            if not files.is_local(pattern) and not deep:
                is_complete = False
                continue
            try:
                matches = self.model_copy(update={key: (pattern,)}).shards()
            except (OSError, ValueError, RuntimeError) as error:
                problems.append(((key, index), error_sentence(error, pattern)))
                continue
            for shard in matches:
                if shard.path in sizes:
                    continue
                sizes[shard.path] = None
                if files.is_local(shard.path) or (deep and len(sizes) == 1):
                    try:
                        sizes[shard.path] = self.size_of(shard.path)
                    except (OSError, RuntimeError) as error:
                        problems.append(((key, index), error_sentence(error, shard.path)))
        if is_complete and not problems:
            try:
                self.shards()  # names that two patterns give
            except ValueError as error:
                problems.append(((key,), str(error)))
        if sizes and not problems:
            problems += self.column_problems([*sizes])
        if sizes and all(size == 0 for size in sizes.values()):
            patterns = ", ".join(self.paths)
            problems.append(((key,), f"is {patterns}, but every file is empty; give files with documents"))
        known_sizes = [size for size in sizes.values() if size is not None]
        is_packed = any(not path.endswith((".jsonl", ".json", ".txt")) for path in sizes)
        return Inspection(
            self,
            len(sizes) if is_complete else None,
            sum(known_sizes) if is_complete and len(known_sizes) == len(sizes) else None,
            is_packed,
            is_complete,
            tuple(problems),
        )

    def size_of(self, path: str) -> int | None:
        """Bytes of a file as it is stored; None if a server does not tell."""
        return files.info(path)["size"]

    def column_problems(self, paths: Sequence[str]) -> Iterator[Problem]:
        """Problems with the columns that its files have, from the beginnings of a few of them."""
        yield from ()


class Carrying(Files):
    columns: Literal["*"] | tuple[str, ...] | dict[str, str] = Field(
        (),
        description='Columns to copy to every table and export: [title, license], "*" for all, or with new '
        "names, {site_language: language}.",
    )

    @field_validator("columns")
    @classmethod
    def _names(cls, columns: Any) -> Any:
        if columns != "*":
            check_own_names(by_name(columns))
        return columns


class Columned(Carrying):
    text_column: str = Field("text", description="Column, or JSON key, with the text.")
    url_column: str | None = Field(
        None,
        description="Column with the URL. A URL without a scheme, such as `example.com/page`, gets `http://`. None: "
        "documents have no URL.",
    )
    id_column: str | None = Field(
        None, description="Column with a unique id. None: the id is the record's position in its file."
    )
    date_column: str | None = Field(None, description="Column with the date. None: documents have no date.")

    @property
    def read_columns(self) -> Columns:
        return columns_of(self.columns, self.text_column, self.url_column, self.id_column, self.date_column)

    def column_problems(self, paths: Sequence[str]) -> Iterator[Problem]:
        if self.columns != "*" or not files.is_local(paths[0]):
            return
        try:
            own_columns.check_every(self.name, self.column_names(paths[0], self.read_columns))
        except (OSError, EOFError, ValueError) as error:
            yield ("columns",), error_sentence(error, paths[0])


def inspect_listed(
    source: SourceSettings, list_paths: Callable[[], list[str]], shown: str, is_asked: bool
) -> Inspection:
    """Look for the first of the files that lists name, if `is_asked`. `shown`: what errors call the lists."""
    count: int | None = None
    problems: list[Problem] = []
    if is_asked:
        try:
            paths = list_paths()
            count = len(paths)
            for path in paths[:1]:
                files.info(path)
        except (OSError, ValueError, RuntimeError) as error:
            problems.append(((source.key,), error_sentence(error, shown)))
    return Inspection(source, count, None, True, is_asked, tuple(problems))
