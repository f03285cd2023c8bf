"""Memory that parent and worker both see: a call is copied into it once instead of four times through a pipe."""

import mmap
import os
import tempfile


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
        at = self._next % self.size
        begin = self._next + (self.size - at if at + len(data) > self.size else 0)
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
