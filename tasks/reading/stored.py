"""A file's bytes as they are stored, local or remote, read forwards with a way back."""

import io
from collections import deque
from collections.abc import Callable
from typing import IO

from gristmill.storage.remote import streams
from gristmill.storage.remote.config import RemoteIOConfig

BLOCK = 1 << 16
# Bytes read last that are kept for the way back.
WINDOW = 8 << 20


def open_at(path: str, remote_io: RemoteIOConfig, offset: int) -> IO[bytes]:
    """A file, local or remote, to be read forwards from a place in it. Raises FileNotFoundError, RemoteIOError."""
    if offset == 0:
        return streams.open_stream(path, remote_io)
    stream = streams.open_ranges(path, remote_io)
    stream.seek(offset)
    return io.BufferedReader(stream, remote_io.block_bytes) if isinstance(stream, io.RawIOBase) else stream


class Stored:
    """A file's bytes as they are stored, read forwards in blocks, with a way back.

    `at`: where in the file the next block begins. The last 8 MiB are kept; from further back the file is opened again
    by `open_at(offset)`.
    """

    def __init__(self, open_at: Callable[[int], IO[bytes]], start: int = 0, block: int = BLOCK) -> None:
        self.open_at, self.block = open_at, block
        self.stream = open_at(start)
        self.at = start
        self.kept: deque[bytes] = deque()
        self.kept_bytes = 0
        self.again: deque[bytes] = deque()

    def read(self) -> bytes:
        """The next block, b"" at the file's end."""
        block = self.again.popleft() if self.again else self.stream.read(self.block)
        if block:
            self.at += len(block)
            self._keep(block)
        return block

    def _keep(self, block: bytes) -> None:
        self.kept.append(block)
        self.kept_bytes += len(block)
        while self.kept_bytes > WINDOW:
            self.kept_bytes -= len(self.kept.popleft())

    def back(self, offset: int) -> None:
        """The next block begins at `offset`, which was read before."""
        if offset < self.at - self.kept_bytes:
            self.close()
            self.stream = self.open_at(offset)
            self.kept.clear()
            self.again.clear()
            self.at, self.kept_bytes = offset, 0
        while self.at > offset:
            block = self.kept.pop()
            self.again.appendleft(block)
            self.at -= len(block)
            self.kept_bytes -= len(block)
        if over := offset - self.at:
            block = self.again.popleft()
            self.again.appendleft(block[over:])
            self._keep(block[:over])
            self.at = offset

    def close(self) -> None:
        self.stream.close()
