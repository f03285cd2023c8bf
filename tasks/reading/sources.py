"""What a recipe may name as a source, and the files that it stands for, each of them a shard.

A source is told by which key it has: `warc`, `jsonl`, `parquet`, `text`, `snapshot` or `index`.
"""

import gzip
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import fsspec
from pydantic import Discriminator, Field, Tag

from storage import files
from storage.remote import streams
from storage.remote.redact import redact_url
from storage.remote.streams import DEFAULT, RemoteIOConfig
from tasks.documents.step import Settings
from tasks.reading.tables import Columns

COMMON_CRAWL = "https://data.commoncrawl.org"
_SNAPSHOT = r"CC-MAIN-\d{4}-\d{2}"
_SEGMENT = re.compile(r"/segments/([^/]+)/")
# the folders at the root of Common Crawl's bucket: a list's line that begins so begins there
_AT_THE_ROOT = ("crawl-data/", "cc-index/")

Paths = Annotated[
    tuple[str, ...],
    Field(min_length=1, description="paths, globs, https:// or s3:// addresses, or *.paths or *.paths.gz lists"),
]
Range = Annotated[
    tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]],
    Field(description="[first, last], counted from 0; both are taken"),
]

_NO_COLUMNS = Columns()


@dataclass(frozen=True)
class Shard:
    """A file to be read: `format` is `archive`, `selection`, `jsonl`, `parquet` or `text`.

    `name`: the path behind the folder that the source names, so that a document's id does not depend on where that
    folder lies, nor on which other files are in it; `columns`: of tables; `base`: where the archives lie that a
    selection names.
    """

    format: str
    path: str
    name: str
    columns: Columns = _NO_COLUMNS
    base: str = ""


class _Named(Settings):
    name: str = Field(pattern=r"^[a-z][a-z0-9_-]*$")


class Archives(_Named):
    """WARC, ARC and WET files, told apart by their content.

    In an address `{home}` stands for where the stages are kept and `{local}` for the machine's own folder.
    """

    warc: Paths


class _Columned(_Named):
    text_column: str = "text"
    url_column: str | None = None
    id_column: str | None = None
    date_column: str | None = None

    @property
    def columns(self) -> Columns:
        return Columns(self.text_column, self.url_column, self.id_column, self.date_column)


class Lines(_Columned):
    """Files of JSON objects, one a line: plain, gzip or zstd, told apart by their content."""

    jsonl: Paths


class Tables(_Columned):
    """Parquet files."""

    parquet: Paths


class Texts(_Named):
    """Plain text files, one document a file: plain, gzip or zstd."""

    text: Paths


class Snapshot(_Named):
    """A crawl of Common Crawl, or a part of it.

    `segments` takes Common Crawl's segments (a hundred a crawl, some 900 files each) by their place in its list of
    files, `files` takes files (of 1 GB) by their place among those that are left. Without them it is the whole crawl.
    """

    snapshot: str = Field(pattern=f"^{_SNAPSHOT}$", description="CC-MAIN-YYYY-WW")
    format: Literal["warc", "wet"] = Field("warc", description="`wet`: the text as Common Crawl extracts it")
    segments: Range | None = None
    files: Range | None = None
    base: str = Field(COMMON_CRAWL, description="or s3://commoncrawl, or a mirror")


class Selection(_Named):
    """Records that Common Crawl's columnar index names, fetched one by one, or neighbours together.

    A record is taken if it meets every filter that is not empty (https://commoncrawl.org/columnar-index).
    """

    index: tuple[str, ...] = Field(
        min_length=1,
        description="snapshots (CC-MAIN-YYYY-WW), or paths, globs, addresses or lists of the index's Parquet files",
    )
    hosts: tuple[str, ...] = Field((), description="www.example.org")
    domains: tuple[str, ...] = Field((), description="example.org: what was registered, with all its hosts")
    tlds: tuple[str, ...] = Field((), description="org")
    languages: tuple[str, ...] = Field((), description="ISO 639-3, as `isl`; the page's first language counts")
    mime: tuple[str, ...] = Field(("text/html", "application/xhtml+xml"), description="as detected from the content")
    status: tuple[int, ...] = (200,)
    url_prefixes: tuple[str, ...] = Field((), description="https://www.example.org/news/")
    limit: int | None = Field(None, gt=0, description="at most so many records, an even sample of all that fit")
    records_per_shard: int = Field(20_000, gt=0)
    base: str = Field(COMMON_CRAWL, description="where the archives lie that the index names, and its snapshots")


_KINDS = {
    "warc": Archives,
    "jsonl": Lines,
    "parquet": Tables,
    "text": Texts,
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
    | Annotated[Snapshot, Tag("snapshot")]
    | Annotated[Selection, Tag("index")],
    Discriminator(
        _kind,
        custom_error_type="source",
        custom_error_message=f"a source has exactly one of the keys {', '.join(_KINDS)}",
    ),
]


def shards_of(source: Source, remote_io: RemoteIOConfig = DEFAULT, selected: Sequence[str] = ()) -> list[Shard]:
    """The shards of a source: files by their names in order, those of a snapshot in the order of its list.

    `selected`: what `tasks.reading.index.gather` wrote for this source, if it selects from an index.
    Raises FileNotFoundError for what names no file, RemoteIOError, and ValueError for a damaged list or two files
    that cannot be told apart.
    """
    match source:
        case Archives():
            return _shards("archive", _files(source.warc, remote_io))
        case Lines():
            return _shards("jsonl", _files(source.jsonl, remote_io), source.columns)
        case Tables():
            return _shards("parquet", _files(source.parquet, remote_io), source.columns)
        case Texts():
            return _shards("text", _files(source.text, remote_io))
        case Snapshot():
            return _shards("archive", _of_snapshot(source, remote_io))
        case Selection():
            return [Shard("selection", path, path.rsplit("/", 1)[-1], base=source.base) for path in selected]


def _shards(format: str, named: Mapping[str, str], columns: Columns = _NO_COLUMNS) -> list[Shard]:
    known: dict[str, str] = {}
    for path, name in named.items():
        if known.setdefault(name, path) != path:
            raise ValueError(
                f"{redact_url(known[name])} and {redact_url(path)} are both called {name}, and ids are made of names: "
                "give them by one glob for both folders, as folder/*/*.warc.gz, or in two sources"
            )
    return [Shard(format, path, name, columns) for path, name in named.items()]


def tables_of(source: Selection, remote_io: RemoteIOConfig = DEFAULT) -> list[str]:
    """The Parquet files of the index that a source selects from, sorted.

    Of a snapshot those of its pages: the index also has redirects, errors and robots.txt, which are no pages.
    """
    snapshots = [name for name in source.index if re.fullmatch(_SNAPSHOT, name)]
    found = set(expand([path for path in source.index if path not in snapshots], remote_io))
    for name in snapshots:
        listed = _from_list(files.join(source.base, "crawl-data", name, "cc-index-table.paths.gz"), remote_io)
        found.update(path for path in listed if "/subset=warc/" in path)
    return sorted(found)


def expand(patterns: Sequence[str], remote_io: RemoteIOConfig = DEFAULT) -> list[str]:
    """The files that patterns name, sorted: paths, globs and `*.paths` or `*.paths.gz` lists, local or remote.

    A list's line is an address of its own, or begins at the bucket's root as Common Crawl's do (`crawl-data/`,
    `cc-index/`), or is relative to the folder of the list.
    Raises FileNotFoundError for a pattern that names no file.
    """
    return list(_files(patterns, remote_io))


def _files(patterns: Sequence[str], remote_io: RemoteIOConfig) -> dict[str, str]:
    """The names of the files, by path: what is behind a glob's fixed folder, a line of a list, else the file's own."""
    found: dict[str, str] = {}
    for pattern in patterns:
        fs, inner = fsspec.core.url_to_fs(pattern)
        fs.invalidate_cache()  # a process that lives for months must see this month's files
        if redact_url(pattern).endswith((".paths", ".paths.gz")):
            named = _from_list(pattern if "://" in pattern else inner, remote_io)
        elif any(c in inner for c in ("*[" if pattern.startswith("http") else "*?[")):
            matches = (
                fs.glob(inner)
                if files.is_local(pattern)
                else streams.retrying_call(lambda fs=fs, inner=inner: fs.glob(inner), redact_url(pattern), remote_io)
            )
            if not matches:
                raise FileNotFoundError(f"no file matches the source's pattern {redact_url(pattern)}")
            fixed = len(re.split(r"[*?\[]", inner)[0].rpartition("/")[0])
            named = {fs.unstrip_protocol(m) if "://" in pattern else m: _name(m[fixed:].lstrip("/")) for m in matches}
        else:
            try:
                streams.info(pattern, remote_io)
            except FileNotFoundError as error:
                raise FileNotFoundError(f"the source's file {redact_url(pattern)} does not exist") from error
            except IsADirectoryError as error:
                raise IsADirectoryError(
                    f"the source's file {pattern} is a folder: name the files in it, as {files.join(pattern, '*')}"
                ) from error
            named = {pattern if "://" in pattern else inner: _name(redact_url(inner).rsplit("/", 1)[-1])}
        for path, name in named.items():
            found[path] = min(found.get(path, name), name, key=lambda n: (len(n), n))
    return dict(sorted(found.items()))


def _name(name: str) -> str:
    """A name that any store and table takes: bytes of a file's name that are no UTF-8 are written out."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _of_snapshot(source: Snapshot, remote_io: RemoteIOConfig) -> dict[str, str]:
    path = files.join(source.base, "crawl-data", source.snapshot, f"{source.format}.paths.gz")
    named = _from_list(path, remote_io)
    found = list(named)
    if source.segments:
        segments = [match[1] if (match := _SEGMENT.search(file)) else "" for file in found]
        wanted = set(_places(list(dict.fromkeys(segments)), source.segments, f"{redact_url(path)}: segments"))
        found = [file for file, segment in zip(found, segments, strict=True) if segment in wanted]
    if source.files:
        found = _places(found, source.files, f"{redact_url(path)}: files")
    return {file: named[file] for file in found}


def _places(found: list[str], places: tuple[int, int], what: str) -> list[str]:
    first, last = places
    if not first <= last < len(found):
        raise FileNotFoundError(f"{what} {first} to {last} are asked for; there are 0 to {len(found) - 1}")
    return found[first : last + 1]


def _from_list(path: str, remote_io: RemoteIOConfig) -> dict[str, str]:
    """The files of a list in its order, with their names."""
    data = streams.fetch_all(path, remote_io)
    try:
        text = (gzip.decompress(data) if redact_url(path).endswith(".gz") else data).decode()
    except (OSError, EOFError, ValueError) as error:
        raise ValueError(f"the list {redact_url(path)} is damaged: {error}; fetch it again") from error
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise FileNotFoundError(f"the list {redact_url(path)} names no file")
    root, at_the_root, _ = path.partition("crawl-data/")
    folder = path.rsplit("/", 1)[0]

    def address(line: str) -> str:
        if "://" in line or line.startswith("/"):
            return line
        return files.join(root if at_the_root and line.startswith(_AT_THE_ROOT) else folder, line)

    absolute = ("/", "http://", "https://", "s3://")
    return {
        address(line): _name(redact_url(line).rsplit("/", 1)[-1] if line.startswith(absolute) else line)
        for line in lines
    }
