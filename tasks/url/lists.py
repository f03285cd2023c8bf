"""Blocklists in the layout of UT1, takedown lists and word lists: which files there are, and what their lines mean.

UT1 (Université Toulouse Capitole) has one folder for each category with the files `domains`, `urls` and
`expressions`, and ships it as `adult.tar.gz`; the format of the files is squidGuard's.
"""

import codecs
import io
import re
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

import xxhash

from gristmill.storage import files
from gristmill.storage.printable import redact_url
from gristmill.tasks.documents.file_problems import error_sentence, file_problems
from gristmill.tasks.documents.step import Problem
from gristmill.tasks.url.canonical import Canonical, canonical_host, canonicalizer, host_of, without_www

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


# What a line of a takedown list may be, as a remedy.
ENTRIES = "give an id, a host without its port, a URL, or a folder as https://host/path/*"
# Names of a blocklist's files in UT1's layout; the folder that one is in names it in the ledger.
KINDS = ("domains", "urls", "expressions")


class ListError(ValueError):
    """A list cannot be used: what it is, why, and what to do."""


def list_files(address: str, categories: tuple[str, ...] = ()) -> list[str]:
    """The files at an address of a blocklist, sorted by category: of a folder's categories, of a category, or the file.

    `categories` chooses among a folder's; none means all. An address of HTTP is a file's. Raises ListError if there is
    nothing to read.
    """
    if not files.exists(address):
        raise ListError(f"the list {redact_url(address)} does not exist")
    if not files.is_folder(address):
        return [address]
    if paths := _kinds(address):
        return paths
    selection = [name for name in files.names(address) if not categories or name in categories]
    paths = [path for name in selection for path in _kinds(files.join(address, name))]
    if not paths:
        which = f" for the categories {', '.join(categories)}" if categories else ""
        raise ListError(
            f"the folder {redact_url(address)} has no files {', '.join(KINDS)}{which}; give a folder in UT1's layout"
        )
    return paths


def list_problems(
    address: str,
    key: tuple[str | int, ...],
    deep: bool,
    categories: tuple[str, ...] | None = None,
    takedowns: Canonical | None = None,
) -> Iterator[Problem]:
    """Problems with the files of a list. `categories`: the categories of a blocklist, which may be a folder; None for a
    list that is a file. `takedowns`: how the addresses of a takedown list are made comparable, for such a list; then
    its first MAX_CHECKED lines are read, too."""

    def check() -> None:
        if categories is None and files.is_local(address) and files.is_folder(address):
            raise ListError(f"the list {address} is a folder; name a file")
        for path in list_files(address, categories or ()):
            files.info(path)
            if takedowns is not None:
                check_takedowns(path, takedowns, MAX_CHECKED)

    return file_problems(address, key, deep, check, _sentence)


def _sentence(error: Exception, address: str) -> str:
    sentence = error_sentence(error, address)
    return sentence if ";" in sentence else f"{sentence}; correct the address"


def _kinds(folder: str) -> list[str]:
    return [files.join(folder, kind) for kind in KINDS if kind in files.names(folder)]


MAX_CHECKED = 100_000  # lines of a takedown list that `check` reads, which takes a second
_HTTPS_PORT = re.compile(r"([^/]+):443/")
_ARCHIVES = (".tar.gz", ".tgz", ".tar")
_PIECE = 1 << 22
MAX_LINE_BYTES = 1 << 24
# A file of these bytes only, with no dot at a line's end, has hosts in canonical form: most do.
_PLAIN = b"abcdefghijklmnopqrstuvwxyz0123456789-_.\n"


@dataclass(frozen=True)
class Entries:
    """Lines of one list. `label` names it in the ledger, `kind` is one of `KINDS`, or "" if each line decides.

    `lines` are as they are in the file, some megabytes at a time, without blank lines and comments.
    """

    label: str
    kind: str
    lines: Iterator[list[bytes]]


def read_entries(address: str, categories: tuple[str, ...] = (), checksum: str | None = None) -> Iterator[Entries]:
    """The lists in one file, which is an archive or itself a list; each must be read before the next is asked for.

    Raises ListError if the file's xxh3-128 is not `checksum`, or if it cannot be read.
    """
    path = redact_url(address)
    try:
        with _checked(address, checksum) as stream:
            if not path.endswith(_ARCHIVES):
                folder, _, name = path.rpartition("/")
                kind = name if name in KINDS else ""
                label = f"{folder.rpartition('/')[2]}/{name}" if kind else name
                yield Entries(label, kind, _lines(path, stream))
                return
            has_entries = False
            with tarfile.open(fileobj=stream, mode="r|*") as archive:
                for member in archive:
                    folder, _, name = member.name.rpartition("/")
                    category = folder.rpartition("/")[2]
                    # links: UT1's archive of everything names some categories twice
                    if member.isreg() and name in KINDS and (not categories or category in categories):
                        has_entries = True
                        content = archive.extractfile(member)
                        assert content is not None, "a regular file has content"
                        yield Entries(f"{category}/{name}", name, _lines(path, content))
            if not has_entries:
                raise ListError(f"the archive {path} has none of the lists {', '.join(categories) or KINDS}")
    except (OSError, EOFError, tarfile.TarError) as error:
        raise ListError(f"the list {path} cannot be read: {error}") from error


class _Hashed(io.RawIOBase):
    """A stream that is read forwards only, and the xxh3-128 of what was read."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream
        self.digest = xxhash.xxh3_128()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        target = memoryview(buffer)
        data = self.stream.read(len(target))
        self.digest.update(data)
        target[: len(data)] = data
        return len(data)


@contextmanager
def _checked(address: str, checksum: str | None) -> Iterator[IO[bytes]]:
    with files.open_file(address) as stream:
        hashed = _Hashed(stream)
        reader = io.BufferedReader(hashed, _PIECE)
        yield reader
        while reader.read(_PIECE):
            pass
    if checksum and hashed.digest.hexdigest() != checksum:
        raise ListError(
            f"the list {redact_url(address)} has the checksum {hashed.digest.hexdigest()} instead of {checksum}: it "
            "has changed since this run was planned; start the run again, or restore the old list"
        )


def entry_of(line: bytes, label: str) -> str:
    """A word of the list `label`. Raises ListError for one that is not in UTF-8, which would match nothing."""
    try:
        return line.decode().strip()
    except UnicodeDecodeError:
        shown = line.decode("utf-8", "backslashreplace")
        raise ListError(f"the list {label} has {shown[:200]!r}, which is not UTF-8; write the list in UTF-8") from None


def _lines(path: str, stream: IO[bytes]) -> Iterator[list[bytes]]:
    rest = stream.read(len(codecs.BOM_UTF8)).removeprefix(codecs.BOM_UTF8)
    if rest.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ListError(f"the list {redact_url(path)} is in UTF-16; write it in UTF-8")
    while piece := stream.read(_PIECE):
        head, newline, tail = piece.rpartition(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            raise ListError(f"the list {path} cannot be read: one of its lines has more than {MAX_LINE_BYTES:,} bytes")
        if not newline:
            rest += piece
            continue
        yield _entries(rest + head)
        rest = tail
    yield _entries(rest)


def _entries(piece: bytes) -> list[bytes]:
    if b"\r" in piece or b"#" in piece or b" " in piece or b"\t" in piece:
        lines = [line.strip() for line in piece.split(b"\n")]
        return [line for line in lines if line and not line.startswith(b"#")]
    return [line for line in piece.split(b"\n") if line]


def hosts_are_canonical(lines: list[bytes]) -> bool:
    """Whether lines of a `domains` file are used as they are; cheap, and False if in doubt."""
    data = b"\n" + b"\n".join(lines) + b"\n"
    return not (data.translate(None, _PLAIN) or b"\n." in data or b".\n" in data or b".." in data)


def blocked(line: str, options: Canonical) -> str:
    """The key of a line of a blocklist: of a host, or of a host with a path; "" if it is neither."""
    line = line.removeprefix(".")
    if "/" not in line:
        return canonical_host(line)
    canonical = canonicalizer(options)(line if "://" in line else f"http://{line}")
    address_key = key(canonical)
    # the whole site is named by its exact host: an entry `www.example.org/` does not concern other hosts
    return address_key if "/" in address_key else host_of(canonical.partition("://")[2].rstrip("/"))


def check_takedowns(path: str, options: Canonical, max_lines: int | None = None) -> None:
    """Read a takedown list, or its first `max_lines` lines. Raises ListError for the first that cannot be
    understood."""
    read = 0
    for entries in read_entries(path):
        for lines in entries.lines:
            for line in lines if entries.kind != "expressions" else ():
                if max_lines is not None and (read := read + 1) > max_lines:
                    return
                taken_down(entry_of(line, entries.label), options, f"the list {entries.label}")


def taken_down(line: str, options: Canonical, where: str = "the takedown list") -> str:
    """The key of a line of a takedown list. `where`: what has the line, for the error.

    `example.org` and `https://example.org` name the host and all below it, `https://example.org/a/*` that folder and
    all below it, any other address this one page; the key of a page begins with `=`. A page is the same with and
    without a slash at its end; without a scheme it matches any scheme. Raises ListError for a line that cannot be
    understood, and for one without a scheme that has the port of https: none must be passed over.
    """
    address = line.partition("://")[2] or line
    if "/" not in address or address.endswith("/*"):
        entry = blocked(line.removesuffix("*"), options)
    else:
        canonical = canonicalizer(options)(line if "://" in line else f"http://{line}")
        entry = f"={key(canonical)}" if canonical and not address.endswith("*") else ""
    if "://" not in line and _HTTPS_PORT.match(entry):
        # as a page of http it would be one of another port
        page = _HTTPS_PORT.sub(r"\1/", line.lstrip("/"), count=1)
        raise ListError(f"{where} has the line {line[:200]!r} with the port of https; write https://{page[:200]}")
    if not entry:
        raise ListError(f"{where} has the line {line[:200]!r}; {ENTRIES}")
    return entry


def key(canonical: str) -> str:
    """What of a canonical URL lists are compared with, "" for "": lower case, no scheme, `www.`, slash at the end.

    squidGuard compares in lower case and without `www` and a number, too.
    """
    host, slash, rest = canonical.partition("://")[2].lower().rstrip("/").partition("/")
    return without_www(host) + slash + rest
