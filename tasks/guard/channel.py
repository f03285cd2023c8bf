"""Plain data between parent and worker: as bytes behind a length in a pipe, or in memory that both see."""

import mmap
import os
import struct
import tempfile
from typing import Any

import msgpack

# of a call: its length; where it is in the ring, or -1 where it follows; whether all results up to its own are
# wanted at once
CALL = struct.Struct("<Qq?")
# of a result, and of what the zygote says: its length
RESULT = struct.Struct("<Q")


def pack(value: Any) -> bytes:
    """Raises TypeError, ValueError or OverflowError for what msgpack does not know.

    Text may hold lone surrogates, as Python's own does: it arrives as it was.
    """
    return msgpack.packb(value, unicode_errors="surrogatepass")


def unpack(data: bytes | memoryview) -> Any:
    return msgpack.unpackb(data, unicode_errors="surrogatepass", strict_map_key=False)


def framed(value: Any) -> bytes:
    packed = pack(value)
    return RESULT.pack(len(packed)) + packed


class Ring:
    """A file in memory, without a name, in which calls lie one behind the other until they are answered.

    They are let go in the order in which they were put. Workers map it for reading only.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        if hasattr(os, "memfd_create"):
            self.fd = os.memfd_create("calls")
        else:
            with tempfile.TemporaryFile() as f:
                self.fd = os.dup(f.fileno())
        os.ftruncate(self.fd, size)
        self._memory = mmap.mmap(self.fd, size)
        self._first = self._next = 0  # bytes ever let go, and ever put, with those that were left out at the end

    def put(self, data: bytes | memoryview) -> tuple[int, int] | None:
        """Where the data is, and a mark for `let_go`; None if there is no room for it in one piece."""
        position = self._next % self.size
        begin = self._next + (self.size - position if position + len(data) > self.size else 0)
        if begin + len(data) - self._first > self.size:
            return None
        place = begin % self.size
        self._memory[place : place + len(data)] = data
        self._next = begin + len(data)
        return place, self._next

    def let_go(self, mark: int) -> None:
        """Everything up to and including the data whose mark this is."""
        self._first = mark

    def clear(self) -> None:
        self._first = self._next = 0

    def close(self) -> None:
        self._memory.close()
        os.close(self.fd)


def readable(fd: int) -> memoryview:
    """The ring behind a file descriptor, as a worker sees it."""
    return memoryview(mmap.mmap(fd, os.fstat(fd).st_size, prot=mmap.PROT_READ))
