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
from storage import transfer as transfers
from storage.transfer import DEFAULT, Transfer
from tasks.reading.tables import Columns
from tasks.step import Settings

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


@dataclass(frozen=True)
class Shard:
    """A file to be read: `format` is `archive`, `selection`, `jsonl`, `parquet` or `text`.

    `name`: the end of the path, as much of it as tells the source's files apart, so that a document's id does not
    depend on where the files lie; `columns`: of tables; `base`: where the archives lie that a selection names.
    """

    format: str
    path: str
    name: str
    columns: Columns = Columns()
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


def shards_of(source: Source, transfer: Transfer = DEFAULT, selected: Sequence[str] = ()) -> list[Shard]:
    """The shards of a source: files by their names in order, those of a snapshot in the order of its list.

    `selected`: what `tasks.reading.index.gather` wrote for this source, if it selects from an index.
    Raises FileNotFoundError for what names no file, TransferError, and ValueError for a damaged list.
    """
    match source:
        case Archives():
            return _shards("archive", expand(source.warc, transfer))
        case Lines():
            return _shards("jsonl", expand(source.jsonl, transfer), source.columns)
        case Tables():
            return _shards("parquet", expand(source.parquet, transfer), source.columns)
        case Texts():
            return _shards("text", expand(source.text, transfer))
        case Snapshot():
            return _shards("archive", _of_snapshot(source, transfer))
        case Selection():
            return _shards("selection", selected, base=source.base)


def _shards(format: str, paths: Sequence[str], columns: Columns = Columns(), base: str = "") -> list[Shard]:
    return [Shard(format, path, name, columns, base) for path, name in zip(paths, _names(paths), strict=True)]


def _names(paths: Sequence[str]) -> list[str]:
    """The last parts of each path, as many for all of them as tell them apart."""
    split = [path.split("/") for path in paths]
    for parts in range(1, max(map(len, split), default=0) + 1):
        names = ["/".join(path[-parts:]) for path in split]
        if len(set(names)) == len(names):
            return names
    return list(paths)


def tables_of(source: Selection, transfer: Transfer = DEFAULT) -> list[str]:
    """The Parquet files of the index that a source selects from, sorted.

    Of a snapshot those of its pages: the index also has redirects, errors and robots.txt, which are no pages.
    """
    snapshots = [name for name in source.index if re.fullmatch(_SNAPSHOT, name)]
    found = set(expand([path for path in source.index if path not in snapshots], transfer))
    for name in snapshots:
        listed = _from_list(files.join(source.base, "crawl-data", name, "cc-index-table.paths.gz"), transfer)
        found.update(path for path in listed if "/subset=warc/" in path)
    return sorted(found)


def expand(patterns: Sequence[str], transfer: Transfer = DEFAULT) -> list[str]:
    """The files that patterns name, sorted: paths, globs and `*.paths` or `*.paths.gz` lists, local or remote.

    A list's line is an address of its own, or begins at the bucket's root as Common Crawl's do (`crawl-data/`,
    `cc-index/`), or is relative to the folder of the list.
    Raises FileNotFoundError for a pattern that names no file.
    """
    found: set[str] = set()
    for pattern in patterns:
        fs, inner = fsspec.core.url_to_fs(pattern)
        fs.invalidate_cache()  # a process that lives for months must see this month's files
        if pattern.endswith((".paths", ".paths.gz")):
            found.update(_from_list(pattern if "://" in pattern else inner, transfer))
        elif any(c in inner for c in ("*[" if pattern.startswith("http") else "*?[")):
            matches = transfers.persistently(lambda fs=fs, inner=inner: fs.glob(inner), pattern, transfer)
            if not matches:
                raise FileNotFoundError(f"no file matches the source's pattern {pattern}")
            found.update(fs.unstrip_protocol(m) if "://" in pattern else m for m in matches)
        else:
            try:
                transfers.info(pattern, transfer)
            except FileNotFoundError as error:
                raise FileNotFoundError(f"the source's file {pattern} does not exist") from error
            found.add(pattern if "://" in pattern else inner)
    return sorted(found)


def _of_snapshot(source: Snapshot, transfer: Transfer) -> list[str]:
    path = files.join(source.base, "crawl-data", source.snapshot, f"{source.format}.paths.gz")
    found = _from_list(path, transfer)
    if source.segments:
        named = [match[1] if (match := _SEGMENT.search(file)) else "" for file in found]
        wanted = set(_places(list(dict.fromkeys(named)), source.segments, f"{path}: segments"))
        found = [file for file, segment in zip(found, named, strict=True) if segment in wanted]
    return _places(found, source.files, f"{path}: files") if source.files else found


def _places(found: list[str], places: tuple[int, int], what: str) -> list[str]:
    first, last = places
    if not first <= last < len(found):
        raise FileNotFoundError(f"{what} {first} to {last} are asked for; there are 0 to {len(found) - 1}")
    return found[first : last + 1]


def _from_list(path: str, transfer: Transfer) -> list[str]:
    data = transfers.fetch_all(path, transfer)
    try:
        text = (gzip.decompress(data) if path.endswith(".gz") else data).decode()
    except (OSError, EOFError, ValueError) as error:
        raise ValueError(f"the list {path} is damaged: {error}; fetch it again") from error
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise FileNotFoundError(f"the list {path} names no file")
    root, at_the_root, _ = path.partition("crawl-data/")
    folder = path.rsplit("/", 1)[0]
    return [
        line
        if "://" in line or line.startswith("/")
        else files.join(root, line)
        if at_the_root and line.startswith(_AT_THE_ROOT)
        else files.join(folder, line)
        for line in lines
    ]
