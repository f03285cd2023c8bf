"""What this process has opened and read, of local files and remote ones: jobs are billed by it. It is separate since
both `gristmill.storage.files` and the streams of remote files count here."""

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_opened = 0
_read_bytes = 0


def opened() -> int:
    """Number of files that this process has opened to read."""
    return _opened


def read_bytes() -> int:
    """Bytes that this process has read from files, as they are stored: of Parquet only the columns that were
    requested."""
    return _read_bytes


def count_opened() -> None:
    """Call this when a file is opened for reading."""
    global _opened
    _opened += 1


def count_read(size: int) -> None:
    """Call this when `size` bytes of a file were read."""
    global _read_bytes
    _read_bytes += size


class _CountedFile(io.FileIO):
    """Counts what a buffer takes of it, which never calls `read`."""

    def readinto(self, buffer: "WriteableBuffer") -> int:
        size = super().readinto(buffer) or 0  # None only of what does not block, which a file does
        count_read(size)
        return size

    def readall(self) -> bytes:
        data = super().readall() or b""
        count_read(len(data))
        return data


def open_local(path: str) -> io.BufferedReader:
    """A local file to read, whose bytes are counted as they are read. Raises OSError."""
    return io.BufferedReader(_CountedFile(path))
