"""The files that a source names, and which of them are read as one shard."""

import glob
import gzip
import logging
import os
import re
import time
import unicodedata
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import unquote, urlsplit

from fsspec.implementations.local import LocalFileSystem

from gristmill.storage import files
from gristmill.storage.printable import redact_url
from gristmill.storage.remote.addresses import check_no_name, file_system
from gristmill.tasks.reading.range_plan import Range
from gristmill.tasks.reading.record import NO_COLUMNS, Columns, Repositories

log = logging.getLogger(__name__)

# The folders at the root of Common Crawl's bucket: a list's line that begins with one is relative to that root.
_AT_THE_ROOT = ("crawl-data/", "cc-index/")
_SIGNS = re.compile(r"[*?\[]")
# A crawl's list of 90,000 files has 12 MB; a small compressed list can unpack to more than fits in memory.
LARGEST_LIST = 256 << 20
MAX_PASSED = 500_000  # files and folders that a pattern may visit without matching them: half a minute
_FIRST_SECONDS, _SECONDS = 5.0, 10.0  # until the first log line about a pattern, and between two


@dataclass(frozen=True)
class Shard:
    """A file to be read: `format` is `archive`, `selection`, `jsonl`, `parquet`, `text`, `page`, `code`, or the
        `module:function` of a user's reader.

    `name`: the path below the folder that the source names, so that a document's id does not depend on where that
        folder is, nor on which other files are in it; `columns`: of tables; `base`: where the archives are that a
        selection names; `part`: the range of an archive that is read, None for all of it; `repositories`: how code is
        read, whose path may be that of a folder.
    """

    format: str
    path: str
    name: str
    columns: Columns = NO_COLUMNS
    base: str = ""
    part: Range | None = None
    repositories: Repositories | None = None


# A source has at least this many shards, if it has as many files, so that workers have work.
_SHARDS = 16
# So many files of a shard are named one by one, where it is recorded and in the arguments of its job.
MAX_NAMED_FILES = 16


def shards(format: str, names: Mapping[str, str], columns: Columns = NO_COLUMNS) -> list[Shard]:
    """The files of a source, given with their names. Raises ValueError for two files of one name, and for a name that
    is not in UTF-8."""
    paths_by_name: dict[str, str] = {}
    for path, name in names.items():
        if not path.isprintable() and (shown := path.encode("utf-8", "backslashreplace").decode()) != path:
            raise ValueError(
                f"the name of {redact_url(shown)} is not in UTF-8, which the ledger requires: rename the file"
            )
        if (first := paths_by_name.setdefault(name, path)) != path:
            both = f"{redact_url(first)} and {redact_url(path)}"
            if files.is_local(path) and os.path.normpath(first) == os.path.normpath(path):
                raise ValueError(f"{both} are one file: write it once, or in one way")
            raise ValueError(
                f"{both} both have the name {name}, and ids are computed from names: use one glob for both folders, as "
                "folder/*/*.warc.gz, or two sources"
            )
    return [Shard(format, path, name, columns) for path, name in names.items()]


def together(read: Sequence[Shard], sizes: Sequence[int | None], shard_bytes: int) -> list[range]:
    """Which files of a source are read as one shard, by their places in it.

    Files go together in their order, up to `shard_bytes` as they are stored and up to a sixteenth of the source, so
    that a small source has work for some workers, too. A larger file is a shard by itself; so is one of unknown size
    (None), one whose address has a login or a query, or one in another folder than the file before.
    """
    most = min(shard_bytes, sum(size or 0 for size in sizes) // _SHARDS)
    runs: list[range] = []
    begin, bytes_so_far, folder = 0, 0, None
    for index, (file, size) in enumerate(zip(read, sizes, strict=True)):
        here = _folder(file)
        if index > begin and (size is None or here is None or here != folder or bytes_so_far + size > most):
            runs.append(range(begin, index))
            begin, bytes_so_far = index, 0
        bytes_so_far, folder = bytes_so_far + (size or 0), here if size is not None else None
    return [*runs, range(begin, len(read))] if read else []


def expected_shards(files: int, size: int | None, shard_bytes: int) -> int:
    """About how many shards `together` makes of `files` files with `size` bytes, None if unknown: exact for files of
    one size that divide a shard, too many where small files are beside a large one."""
    return files if size is None else min(files, max(_SHARDS, -(-size // shard_bytes)))


def _folder(file: Shard) -> str | None:
    """The part of the address before the file's name; None if the name is written another way, or if the address may
    contain a secret."""
    whole = file.path.endswith(file.name) and redact_url(file.path) == file.path
    return file.path.removesuffix(file.name) if whole else None


@dataclass(frozen=True)
class ListedFiles:
    """Many files of one source that are read as one shard, in the order of a list in a stage's folder: a job does not
    carry their names. `path`: a Parquet file with the columns `path` and `name`."""

    path: str
    format: str
    columns: Columns = NO_COLUMNS
    base: str = ""
    repositories: Repositories | None = None


def listed(path: str, read: Sequence[Shard]) -> tuple[Shard, ...] | ListedFiles:
    """What a job is given of the files of its shard: few as they are; many, none of which may hold a secret, by a list
    that is written to `path`."""
    if len(read) <= MAX_NAMED_FILES or any(_folder(file) is None for file in read):
        return tuple(read)
    # here, since a check of a recipe needs none of them
    import pyarrow as pa

    from gristmill.storage import parquet

    names = pa.table({"path": [file.path for file in read], "name": [file.name for file in read]})
    parquet.write_table(path, names)
    return ListedFiles(path, read[0].format, read[0].columns, read[0].base, read[0].repositories)


def given_files(shard_files: tuple[Shard, ...] | ListedFiles) -> tuple[Shard, ...]:
    """The files of a job's shard."""
    if not isinstance(shard_files, ListedFiles):
        return shard_files
    from gristmill.storage import parquet

    rows = parquet.read_table(shard_files.path).to_pylist()
    return tuple(
        Shard(
            shard_files.format,
            row["path"],
            row["name"],
            shard_files.columns,
            shard_files.base,
            repositories=shard_files.repositories,
        )
        for row in rows
    )


def recorded(read_files: Sequence[Shard]) -> list[Shard]:
    """Files that were read, for a record from which `recorded_file` finds each: many of one folder by the folder, which
    is a Shard without a name."""
    folders = {_folder(file) for file in read_files}
    if len(read_files) <= MAX_NAMED_FILES or len(folders) > 1 or None in folders:
        return [replace(file, path=redact_url(file.path), base=redact_url(file.base)) for file in read_files]
    return [replace(read_files[0], path=str(*folders), name="")]


def recorded_file(files_of_shard: Sequence[Shard], name: str) -> Shard:
    """The file of a shard that holds a record, from what `recorded` gave. A selection from an index, which names its
    archives itself, is one file."""
    file = next((file for file in files_of_shard if file.name == name), files_of_shard[0])
    return file if file.name else replace(file, path=file.path + name, name=name)


def expand(patterns: Sequence[str]) -> list[str]:
    """The files that patterns name, sorted: paths, globs and `*.paths` or `*.paths.gz` lists, local or remote.

    A list's line is an address of its own, or begins at the bucket's root as Common Crawl's do (`crawl-data/`,
    `cc-index/`), or is relative to the folder of the list.
    Raises FileNotFoundError for a pattern that names no file, and ValueError for one that passes over very many.
    """
    return list(files_of(patterns))


def files_of(patterns: Sequence[str], folders: bool = False) -> dict[str, str]:
    """The names of the files, by path: the part after a glob's fixed folder, a line of a list, else the file's own
    name. `folders`: local ones may be named, too."""
    names: dict[str, str] = {}
    for pattern in patterns:
        fs, inner = file_system(pattern)
        if files.is_local(pattern):
            _check_files([inner])
        if redact_url(pattern).endswith((".paths", ".paths.gz")):
            pattern_names = files_of_list(pattern if "://" in pattern else inner)
        elif _is_name(pattern, inner):
            pattern_names = {pattern if "://" in pattern else inner: _name(redact_url(inner).rsplit("/", 1)[-1])}
        elif any(c in redact_url(pattern) for c in ("*[" if pattern.startswith("http") else "*?[")):
            literal = _literal_folder(inner) if files.is_local(pattern) else ""
            matches = bounded_glob(glob.escape(literal) + inner[len(literal) :] if literal else pattern)
            if not matches:
                raise FileNotFoundError(f"no file matches the source's pattern {redact_url(pattern)}")
            if not files.is_local(pattern):
                for match in matches:
                    check_no_name(match, pattern)
            elif not folders:
                matches = _without_folders(pattern, matches)
            fixed = len(literal) or len(_SIGNS.split(inner)[0].rpartition("/")[0])
            pattern_names = {_as_named(fs, pattern, inner, m): _name(m[fixed:].lstrip("/")) for m in matches}
        elif folders and files.is_local(pattern) and os.path.isdir(inner):
            pattern_names = {inner.rstrip("/"): _name(inner.rstrip("/").rsplit("/", 1)[-1])}
        else:
            try:
                files.info(pattern)
            except FileNotFoundError as error:
                similar = f"; there is {name}" if (name := _similar(pattern, inner)) else ""
                raise FileNotFoundError(f"the source's file {redact_url(pattern)} does not exist{similar}") from error
            except IsADirectoryError as error:
                raise IsADirectoryError(
                    f"the source's file {pattern} is a folder: name the files in it, as {files.join(pattern, '*')}"
                ) from error
            pattern_names = {pattern if "://" in pattern else inner: _name(redact_url(inner).rsplit("/", 1)[-1])}
        if files.is_local(pattern):
            _check_files(pattern_names)
        for path, name in pattern_names.items():
            names[path] = min(names.get(path, name), name, key=lambda n: (len(n), n))
    return dict(sorted(names.items()))


def _is_name(pattern: str, inner: str) -> bool:
    """Whether there is a file of the very name, though it has the signs of a pattern."""
    if files.is_local(pattern):
        return os.path.isfile(inner)
    return "[" in redact_url(inner) and "*" not in inner and not pattern.startswith("http") and files.exists(pattern)


def _without_folders(pattern: str, matches: Sequence[str]) -> list[str]:
    """The files among local matches. Raises IsADirectoryError for a folder whose name the pattern asks for, as in
    `*.jsonl`: other tools write a table as a folder of parts."""
    folders = [match for match in matches if os.path.isdir(match)]
    if folders and (pattern.rpartition("/")[2].strip("*") or len(folders) == len(matches)):
        raise IsADirectoryError(
            f"the source's pattern {pattern} names the folder {folders[0]}: name the files in it, as {folders[0]}/*"
        )
    return [match for match in matches if match not in folders]


def _literal_folder(inner: str) -> str:
    """The longest folder of a local pattern that is there by its very name, if that has the signs of a pattern."""
    folder = inner.rpartition("/")[0]
    while _SIGNS.search(folder):
        if os.path.isdir(folder):
            return folder
        folder = folder.rpartition("/")[0]
    return ""


def _similar(pattern: str, inner: str) -> str:
    """What is in the place of a local file that is not there: a link, or a name of other case or form of Unicode."""
    folder, _, name = inner.rpartition("/")
    if os.path.islink(inner):
        return f"only a link to {os.readlink(inner)}"
    if not files.is_local(pattern) or not os.path.isdir(folder):
        return ""
    return next((other for other in sorted(os.listdir(folder)) if _folded(other) == _folded(name)), "")


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _check_files(paths: Iterable[str]) -> None:
    """Raise FileNotFoundError for local pipes and devices: to open one may wait for ever, or read without end."""
    for path in paths:
        local = path.removeprefix("file://")
        if files.is_local(path) and os.path.exists(local) and not (os.path.isfile(local) or os.path.isdir(local)):
            raise FileNotFoundError(
                f"the source's file {path} is a pipe or a device: write its content to a file, and use that file"
            )


def _as_named(fs: Any, pattern: str, inner: str, match: str) -> str:
    """The address of a glob's match, its secrets by their names as in the pattern."""
    if "://" not in pattern:
        return match
    inner_match, pattern_match = (re.match(r"[^/]*//[^/]*", one) for one in (inner, pattern))
    if inner_match and pattern_match and match.startswith(inner_match[0]):
        return pattern_match[0] + match[len(inner_match[0]) :]
    return fs.unstrip_protocol(match)


def _name(name: str) -> str:
    """A name that any store and table takes: bytes of a file's name that are not UTF-8 are escaped."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def files_of_list(path: str) -> dict[str, str]:
    """The files of a list in its order, with their names."""
    try:
        with files.open_stream(path) as f:
            packed = redact_url(path).endswith(".gz")
            data = (gzip.GzipFile(fileobj=f) if packed else f).read(LARGEST_LIST + 1)
        if len(data) > LARGEST_LIST:
            raise ValueError(f"it has more than {LARGEST_LIST:,} bytes")
        text = data.decode()
    except (gzip.BadGzipFile, zlib.error, EOFError, ValueError) as error:
        raise ValueError(f"the list {redact_url(path)} is damaged: {error}; fetch it again") from error
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise FileNotFoundError(f"the list {redact_url(path)} has no files")
    _check_lines(path, lines)
    # a query, which may have slashes, is the list's own
    place = path.partition("?")[0] if path.startswith("http") else path
    root, at_the_root, _ = place.partition("crawl-data/")
    folder = place.rsplit("/", 1)[0]

    def address(line: str) -> str:
        if "://" in line or line.startswith("/"):
            return line
        return files.join(root if at_the_root and line.startswith(_AT_THE_ROOT) else folder, line)

    absolute = ("/", "http://", "https://", "s3://")
    return {
        address(line): _name(redact_url(line).rsplit("/", 1)[-1] if line.startswith(absolute) else line)
        for line in lines
    }


def _leads_up(line: str) -> bool:
    """Whether a line has `..` as a part of its path, also if it is escaped so that only a server reads it."""
    while (plain := unquote(line)) != line:
        line = plain
    return ".." in re.split(r"[/\\?#]", line)


def _check_lines(path: str, lines: list[str]) -> None:
    """Raise ValueError for what a list from elsewhere may not name: files of this machine, paths above its own folder,
    other stores, hosts that are not public."""
    if files.is_local(path):
        return
    scheme = path.partition("://")[0]
    allowed = ("http", "https") if scheme == "http" else (scheme,)
    own = urlsplit(path).hostname
    hosts = set()
    for line in lines:
        check_no_name(line, path)
        elsewhere = "://" in line and line.partition("://")[0] not in allowed
        if line.startswith("/") or "::" in line or elsewhere or _leads_up(line):
            raise ValueError(
                f"the list {redact_url(path)} has {redact_url(line)[:200]!r}; a list that is read from "
                f"{scheme}:// may only have paths below its own folder, and addresses that begin with "
                f"{'://, '.join(allowed)}://: if you trust it, copy it to this machine and use the copy"
            )
        if scheme.startswith("http") and "://" in line:
            hosts.add(urlsplit(line).hostname)
    if not hosts - {own}:
        return
    # imported here, since local lists need no HTTP
    from gristmill.storage.remote.redirects import check_public

    for host in sorted(filter(None, hosts - {own})):
        check_public(host, f"the list {redact_url(path)} names")


class _Counting(LocalFileSystem):
    """A local file system that counts the entries it lists for one pattern."""

    cachable = False  # each pattern has its own count

    def __init__(self, pattern: str) -> None:
        super().__init__()
        self._pattern = pattern
        self._last = pattern.rstrip("/").rpartition("/")[2]
        self._passed = self._seen = 0
        self._next = time.monotonic() + _FIRST_SECONDS

    def ls(self, path: str, detail: bool = False, **kwargs: Any) -> list[Any]:
        """The entries of a folder. Raises ValueError, which fsspec's walk does not catch, after MAX_PASSED."""
        entries = super().ls(path, detail=detail, **kwargs)
        names = (entry["name"] if detail else entry for entry in entries)
        self._passed += sum(not fnmatchcase(name.rpartition("/")[2], self._last) for name in names)
        self._seen += len(entries)
        if self._passed > MAX_PASSED:
            raise ValueError(
                f"the pattern {self._pattern} visits more than {MAX_PASSED:,} files and folders that do not "
                "match; begin it with the folder that has the files"
            )
        if (now := time.monotonic()) > self._next:
            self._next = now + _SECONDS
            log.warning("%s: checked %s files and folders so far, now %s", self._pattern, f"{self._seen:,}", path)
        return entries


def bounded_glob(pattern: str) -> list[str]:
    """Paths that match a pattern, as `files.glob` returns them.

    A local pattern with `**`, such as `/**/*.jsonl`, could visit all disks of the machine. It raises ValueError after
    MAX_PASSED files and folders that do not match, and logs its progress.
    """
    if "**" not in pattern or not files.is_local(pattern):
        return files.glob(pattern)
    inner = pattern.removeprefix("file://")
    return sorted(_Counting(inner).glob(inner))
