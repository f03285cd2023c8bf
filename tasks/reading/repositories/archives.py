"""The files of a repository: of a folder, a tar or zip archive (also as sdist or wheel), or one by itself.

Nothing is written to a disk. An archive comes from anybody: a name that leads out of it, a link, an encrypted or
damaged file costs this file; an archive that unfolds to more than `most_unpacked` bytes, or whose structure is damaged,
is read up to there.
"""

import bz2
import io
import lzma
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import IO

from gristmill.storage import files
from gristmill.storage.fingerprint import folder_files
from gristmill.storage.remote import streams
from gristmill.storage.remote.config import RemoteIOConfig
from gristmill.tasks.reading.members import Content, Stored, open_at
from gristmill.tasks.reading.range_plan import Reading

# of a name, or of a header of tar; longer ones would be held whole
_MAX_HEADER = 1 << 20
_MAX_PATH = 4096  # as Linux has it
_SHOWN = 200  # characters of a name that is refused
_LZMA_MEMORY = 256 << 20
_PIECE = 1 << 16
# of a zip's directory, which is held: some hundred thousand files, 700 bytes each in memory
_MAX_DIRECTORY = 32 << 20
_LOCAL_HEADER = 30  # bytes before a member's name (PKWARE's APPNOTE, 4.3.7)
_BZIP2, _XZ, _ZIP = b"BZh", b"\xfd7zXZ\0", (b"PK\x03\x04", b"PK\x05\x06")
_BUNDLE = (b"# v2 git bundle\n", b"# v3 git bundle\n")
_DAMAGE = (
    OSError,
    EOFError,
    ValueError,
    OverflowError,
    RecursionError,
    NotImplementedError,
    RuntimeError,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)


class TooMuchError(OSError):
    """An archive unfolds to more than it may."""


@dataclass(frozen=True)
class Member:
    """A file of a repository. `path`: within it, with `/`; `size`: that it says it has; `read(max_bytes)`: its first
    bytes, as long as it is the last member that was given; `problem`: (rule, detail) of one that is not read."""

    path: str
    size: int
    read: Callable[[int], bytes] = lambda max_bytes: b""
    problem: tuple[str, str] | None = None


def members(
    path: str, most_unpacked: int, remote_io: RemoteIOConfig, reading: Reading | None = None
) -> Iterator[Member]:
    """The files of a repository in the order of its archive, or of a folder by path; folders are skipped.

    What cannot be read on is a last member with the problem `damaged_archive`, or `archive_too_large`. `reading` learns
    how far it is. Holds a piece of the archive, and of zip its directory. Raises FileNotFoundError,
    RemoteIOError.
    """
    reading = reading or Reading()
    if files.is_local(path) and os.path.isdir(path):
        yield from _of_folder(path)
        return
    with closing(Stored(partial(open_at, path, remote_io))) as stored:
        head = stored.read()
        stored.back(0)
        if not head.startswith(_ZIP):
            yield from _of_stream(stored, head, path.rsplit("/", 1)[-1], most_unpacked, reading)
            return
    raw = streams.open_ranges(path, remote_io)
    with _Ranges(raw.detach() if isinstance(raw, io.BufferedReader) else raw, remote_io.block_bytes) as file:
        yield from _until_damage(_of_zip(file, most_unpacked, reading))


def _until_damage(archive_members: Iterator[Member]) -> Iterator[Member]:
    try:
        yield from archive_members
    except streams.RemoteIOError:
        raise
    except TooMuchError as error:
        yield Member("", 0, problem=("archive_too_large", str(error)))
    except _DAMAGE as error:
        yield Member("", 0, problem=("damaged_archive", f"and what follows: {type(error).__name__}: {error}"))


def _of_folder(folder: str) -> Iterator[Member]:
    for path in folder_files(folder):
        whole = os.path.join(folder, path)
        name = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace").replace(os.sep, "/")
        status = os.lstat(whole)
        if stat.S_ISLNK(status.st_mode):
            yield Member(name, 0, problem=("link", os.readlink(whole)))
        elif not stat.S_ISREG(status.st_mode):
            yield Member(name, 0, problem=("no_file", "a pipe, a socket or a device"))
        else:
            yield Member(name, status.st_size, partial(_read_file, whole))


def _read_file(path: str, max_bytes: int) -> bytes:
    with open(path, "rb") as f:
        return f.read(max_bytes)


def unsafe(path: str) -> bool:
    """Whether a member's path leads out of its archive, is longer than paths are, or is none at all."""
    if len(path) > _MAX_PATH:
        return True
    parts = path.replace("\\", "/").split("/")
    return (
        not path or path.startswith(("/", "\\")) or ".." in parts or "\0" in path or (len(path) > 1 and path[1] == ":")
    )


def _plain(path: str) -> str:
    """A path as a column may have it."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace").removeprefix("./")


class _Ranges(io.BufferedReader):
    """A zip archive whose directory is refused if it is larger than 32 MiB."""

    def read(self, size: int | None = -1, /) -> bytes:
        byte_count = _MAX_DIRECTORY + 1 if size is None or size < 0 else size
        if byte_count <= _MAX_DIRECTORY + 1:
            data = super().read(byte_count)
            if len(data) <= _MAX_DIRECTORY:
                return data
        raise OSError(f"its directory has {byte_count:,} bytes, or more")


def _overlapping(archive: zipfile.ZipFile) -> set[int]:
    """Where in the archive members begin that reach into the next one: one compressed text that is declared as
    thousands of files (Fifield 2019, "A better zip bomb")."""
    offsets, end = set(), archive.start_dir
    for info in sorted(archive.infolist(), key=lambda each: each.header_offset, reverse=True):
        if info.header_offset + _LOCAL_HEADER + info.compress_size > end:
            offsets.add(info.header_offset)
        end = info.header_offset
    return offsets


def _of_zip(file: IO[bytes], most_unpacked: int, reading: Reading) -> Iterator[Member]:
    unpacked = 0
    with zipfile.ZipFile(file) as archive:
        overlapping = _overlapping(archive)
        for info in archive.infolist():
            if info.is_dir():
                continue
            path = _plain(info.filename)
            mode = info.external_attr >> 16
            if unsafe(info.filename):
                yield Member(path[:_SHOWN], 0, problem=("unsafe_path", path[:_SHOWN]))
            elif stat.S_ISLNK(mode):
                yield Member(path, 0, problem=("link", "a symbolic link"))
            elif info.header_offset in overlapping:
                yield Member(path, 0, problem=("damaged_file", "it overlaps the next one in its archive"))
            elif info.flag_bits & 1:
                yield Member(path, 0, problem=("encrypted", "it has a password"))
            else:
                yield Member(path, info.file_size, partial(_read_zipped, archive, info))
                unpacked += info.file_size
                reading.bytes += info.compress_size
                if unpacked > most_unpacked:
                    raise TooMuchError(f"it unfolds to more than {most_unpacked:,} bytes")


def _read_zipped(archive: zipfile.ZipFile, info: zipfile.ZipInfo, max_bytes: int) -> bytes:
    with archive.open(info) as f:
        return f.read(max_bytes)


class _Forward(io.RawIOBase):
    """Pieces of content as a file that is read forwards; tarfile also goes back by one byte, to see that a member's
    last one is there. Refuses to hold a header of more than 1 MiB, and to give more than `max_bytes` bytes."""

    def __init__(self, pieces: Iterator[bytes], max_bytes: int) -> None:
        self.pieces, self.max_bytes = pieces, max_bytes
        self.position, self.piece, self.last = 0, b"", b""
        self.back = False

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.position - self.back

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence != os.SEEK_SET or offset < self.position - 1:
            raise OSError("it is read forwards")
        self.back = offset == self.position - 1
        while self.position < offset and self._take(offset - self.position):
            pass
        return self.tell()

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _MAX_HEADER:
            raise OSError(f"a header has {size:,} bytes")
        pieces = []
        if self.back and size:
            pieces, size, self.back = [self.last], size - 1, False
        while size and (piece := self._take(size)):
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def _take(self, size: int) -> bytes:
        if not self.piece:
            self.piece = next(self.pieces, b"")
        piece, self.piece = self.piece[:size], self.piece[size:]
        self.position += len(piece)
        if self.position > self.max_bytes:
            raise TooMuchError(f"it unfolds to more than {self.max_bytes:,} bytes")
        self.last = piece[-1:] or self.last
        return piece


def _of_stream(stored: Stored, head: bytes, name: str, most_unpacked: int, reading: Reading) -> Iterator[Member]:
    """The members of a tar archive, compressed or not; of what is none, the file itself."""
    if head.startswith(_BUNDLE):
        remedy = (
            "make an archive of it: `git clone --bare X.bundle X && git -C X archive --format=tar.gz HEAD > X.tar.gz`"
        )
        yield Member(name, 0, problem=("git_bundle", remedy))
        return
    unpacked = _pieces(stored, head, reading)
    first = b""
    try:
        while len(first) < tarfile.BLOCKSIZE and (piece := next(unpacked, b"")):
            first += piece
        is_tar = _is_tar(first)
    except _DAMAGE as error:
        yield Member(name, 0, problem=("damaged_archive", f"{type(error).__name__}: {error}"))
        return

    def pieces() -> Iterator[bytes]:
        yield first
        yield from unpacked

    file = _Forward(pieces(), most_unpacked)
    if is_tar:
        yield from _until_damage(_of_tar(file))
    else:
        yield Member(_plain(name), len(first), partial(_read_all, file))


def _is_tar(first: bytes) -> bool:
    try:
        tarfile.TarInfo.frombuf(first[: tarfile.BLOCKSIZE], "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def _read_all(file: _Forward, max_bytes: int) -> bytes:
    pieces = []
    while max_bytes and (piece := file.read(min(max_bytes, _PIECE))):
        pieces.append(piece)
        max_bytes -= len(piece)
    return b"".join(pieces)


class _Header(tarfile.TarInfo):
    """A header of tar. `tarfile` takes one that is damaged for the archive's end."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> "_Header":
        try:
            return super().fromtarfile(archive)
        except (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError) as error:  # type: ignore[attr-defined]
            raise tarfile.ReadError(str(error)) from error


def _of_tar(file: _Forward) -> Iterator[Member]:
    with tarfile.open(
        fileobj=file, mode="r:", encoding="utf-8", errors="surrogateescape", errorlevel=2, tarinfo=_Header
    ) as archive:
        while (info := archive.next()) is not None:
            archive.members.clear()  # type: ignore[attr-defined]  # which would hold a record of each
            path = _plain(info.name)
            if info.isdir():
                continue
            if unsafe(info.name):
                yield Member(path[:_SHOWN], 0, problem=("unsafe_path", path[:_SHOWN]))
            elif info.issym() or info.islnk():
                yield Member(path, 0, problem=("link", _plain(info.linkname)[:_SHOWN]))
            elif not info.isreg() or info.issparse():
                yield Member(path, 0, problem=("no_file", "a device, a pipe, or a file with holes"))
            else:
                yield Member(path, info.size, partial(_read_tarred, file, info))


def _read_tarred(file: _Forward, info: tarfile.TarInfo, max_bytes: int) -> bytes:
    file.seek(info.offset_data)
    data = _read_all(file, min(max_bytes, info.size))
    if len(data) < min(max_bytes, info.size):
        raise EOFError("the archive ends in the file")
    return data


def _pieces(stored: Stored, head: bytes, reading: Reading) -> Iterator[bytes]:
    """The content of a file: plain, gzip, zstd, lz4, bzip2 or xz."""
    if head.startswith(_BZIP2):
        unpacked = _decoded(stored, bz2.BZ2Decompressor)
    elif head.startswith(_XZ):
        unpacked = _decoded(stored, partial(lzma.LZMADecompressor, memlimit=_LZMA_MEMORY))
    else:
        unpacked = Content(stored).pieces()
    for piece in unpacked:
        reading.bytes = stored.position
        yield piece


def _decoded(stored: Stored, decoder: Callable[[], bz2.BZ2Decompressor | lzma.LZMADecompressor]) -> Iterator[bytes]:
    """The content of consecutive streams; the last one has to end."""
    data, stream = stored.read(), decoder()
    while data or not stream.needs_input:
        yield stream.decompress(data, _PIECE)
        data = b""
        if stream.eof:
            data = stream.unused_data or stored.read()
            if not data.strip(b"\0"):
                return
            stream = decoder()
        elif stream.needs_input:
            data = stored.read()
    raise EOFError("the compressed stream has no end")
