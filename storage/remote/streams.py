"""Remote files as streams and ranges, retried within a time budget.

A file is read in blocks, each a range request of its own, so that an interrupted read resumes where it broke off.
The retry policy is the call's `remote_io`, or else the process's (`gristmill.storage.remote.config.configure`).
"""

import contextvars
import io
import logging
import os
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import closing, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from fsspec.implementations.local import LocalFileSystem

from gristmill.storage.printable import redact_url
from gristmill.storage.remote import traffic
from gristmill.storage.remote.addresses import file_system
from gristmill.storage.remote.config import RemoteIOConfig, configured
from gristmill.storage.remote.retry import NEVER, RemoteIOError, slot, with_retries

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from gristmill.storage.remote.backends import S3, Http, Store

log = logging.getLogger(__name__)
T = TypeVar("T")

_BUFFER = 1 << 18


def open_stream(path: str, remote_io: RemoteIOConfig | None = None, start: int = 0) -> io.BufferedReader:
    """A file to be read forwards (`read`, `readline`, `peek`, `tell`, `close`), local or remote, from byte `start` on.

    Of a remote one the next block is fetched while one is used. Raises FileNotFoundError; RemoteIOError also later.
    """
    if (inner := _local(path)) is not None:
        f = traffic.open_local(inner)
        f.seek(start)
        return f
    return io.BufferedReader(_Forward(_File(path, remote_io), start), _BUFFER)


def open_ranges(path: str, remote_io: RemoteIOConfig | None = None) -> io.BufferedReader | io.RawIOBase:
    """A seekable file, local or remote, of which every `read` is one request, and nothing is kept: for Parquet."""
    if (inner := _local(path)) is not None:
        return traffic.open_local(inner)
    return _Ranges(_File(path, remote_io))


def fetch(
    path: str, start: int, end: int, remote_io: RemoteIOConfig | None = None, stop: threading.Event = NEVER
) -> bytes:
    """Bytes `start` to `end` (exclusive) of a file, local or remote; fewer where the file ends before.

    `stop`, once set, ends the waiting.
    """
    if (inner := _local(path)) is not None:
        with traffic.open_local(inner) as f:
            f.seek(start)
            return f.read(end - start)
    file = _File(path, remote_io)
    with closing(file.backend):
        return bytes(file.read(start, end, stop))


def info(path: str, remote_io: RemoteIOConfig | None = None) -> dict[str, Any]:
    """Metadata of a file, a remote one's from its store: `size` (None if unknown), `ETag`, ...

    Raises FileNotFoundError; of a local file any OSError; else RemoteIOError.
    """
    if (inner := _local(path)) is not None:
        with open(inner, "rb") as f:
            return {"size": os.fstat(f.fileno()).st_size}
    file = _File(path, remote_io)
    with closing(file.backend):
        return file.info()


def read_at_once(path: str, remote_io: RemoteIOConfig | None = None) -> bytes:
    """All bytes of a file, from a store by one request, where `open_stream` asks for its size first.

    Raises FileNotFoundError; else RemoteIOError.
    """
    fs, inner = file_system(path)
    if _is_http(fs):
        with open_stream(path, remote_io) as f:
            return f.read()
    # s3fs asks for the size before reads that it may split
    options = {"max_concurrency": 1} if "s3" in fs.protocol else {}
    data = retrying_call(lambda: bytes(fs.cat_file(inner, **options)), redact_url(path), remote_io)
    traffic.count_read(len(data))
    return data


def retrying_call(call: Callable[[], T], what: str, remote_io: RemoteIOConfig | None = None) -> T:
    """The result of an idempotent call to a remote store, retried on transient errors.

    Raises FileNotFoundError, and RemoteIOError with `what` in the message.
    """
    return with_retries(call, what, remote_io or configured(), NEVER)


def ahead(calls: Iterator[Callable[[threading.Event], T]]) -> Generator[T, None, None]:
    """The results of calls in their order, the next one under way in a thread while one is used.

    Each call is given an event that is set when the caller leaves.
    """
    stop = threading.Event()

    def begin() -> Future[T] | None:
        call = next(calls, None)
        if call is None:
            return None
        result: Future[T] = Future()
        # a daemon: a process that ends need not wait for the retries of a call that nobody waits for
        # in a copy of this context, in which the lines of its retries find their fields
        run = contextvars.copy_context().run
        threading.Thread(target=run, args=(_complete, result, call, stop), daemon=True).start()
        return result

    try:
        under_way = begin()
        while under_way:
            result = under_way.result()
            under_way = begin()
            yield result
    finally:
        stop.set()


def _complete(result: Future[T], call: Callable[[threading.Event], T], stop: threading.Event) -> None:
    try:
        result.set_result(call(stop))
    except BaseException as error:
        result.set_exception(error)


def _local(path: str) -> str | None:
    fs, inner = file_system(path)
    return inner if isinstance(fs, LocalFileSystem) else None


def _is_http(fs: Any) -> bool:
    """Whether a file system is fsspec's for HTTP, whose module needs aiohttp."""
    return "http" in fs.protocol


class _File:
    """A remote file, read by one thread at a time."""

    def __init__(self, path: str, remote_io: RemoteIOConfig | None) -> None:
        fs, inner = file_system(path)
        self.label, self.remote_io = redact_url(path), remote_io or configured()
        self.backend = self._backend(fs, inner)

    def _backend(self, fs: Any, inner: str) -> "Http | S3 | Store":
        from gristmill.storage.remote.backends import S3, Http, Store  # local files need no aiohttp

        if _is_http(fs):
            return Http(fs, inner, self.remote_io)
        return S3(fs, inner) if "s3" in fs.protocol else Store(fs, inner)

    def read(self, start: int, end: int, stop: threading.Event = NEVER) -> bytes | bytearray:
        size = self.backend.size
        if start >= end or (size is not None and start >= size):
            return b""
        what = f"{self.label}, bytes {start}-{end - 1}"
        data = self._with_retries(lambda: self.backend.read(start, end), what, stop)
        traffic.count_read(len(data))
        return data

    def tail(self, length: int) -> bytes:
        """The last bytes, at most `length`; none from a store without such requests. Then the size is known."""
        data = self._with_retries(lambda: self.backend.tail(length), f"{self.label}, its end", NEVER)
        traffic.count_read(len(data))
        return data

    def info(self) -> dict[str, Any]:
        return self._with_retries(self.backend.info, self.label, NEVER)

    def _with_retries(self, call: Callable[[], T], what: str, stop: threading.Event) -> T:
        host = self.backend.host
        # a slot is kept while its holder waits: a host that asks for fewer requests gets fewer
        with slot(host, self.remote_io.per_host, stop) if host else nullcontext():
            return with_retries(call, what, self.remote_io, stop, host)


class _Forward(io.RawIOBase):
    """A file from a place to its end; the first block is there when it opens."""

    def __init__(self, file: _File, start: int) -> None:
        self.file, self.start, self.position = file, start, start
        self.blocks = ahead(self._calls())
        self.block = memoryview(next(self.blocks))

    def _calls(self) -> Iterator[Callable[[threading.Event], bytes | bytearray]]:
        start, size = self.start, self.file.remote_io.block_bytes
        while True:
            yield partial(self.file.read, start, start + size)
            start += size

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.position

    def readinto(self, buffer: "WriteableBuffer") -> int:
        if not self.block:
            self.block = memoryview(next(self.blocks))
        target = memoryview(buffer)
        size = min(len(target), len(self.block))
        target[:size], self.block = self.block[:size], self.block[size:]
        self.position += size
        return size

    def close(self) -> None:
        if not self.closed:
            self.blocks.close()
            self.file.backend.close()
            if self.position > self.start:  # else most often a file that was looked for and is not there
                log.info("%s: %d bytes read", self.file.label, self.position - self.start)
        super().close()


# What Parquet's footer most often fits into, and a small file whole.
_TAIL = 1 << 16


class _Ranges(io.RawIOBase):
    """A file at any place, one request for each read, but none for what its end has, which comes as it opens."""

    def __init__(self, file: _File) -> None:
        self.file, self.position = file, 0
        self.tail = memoryview(file.tail(_TAIL))
        if file.backend.size is None:
            raise RemoteIOError(
                f"{file.label}: its server does not say how long it is; copy the file and read the copy"
            )

    @property
    def size(self) -> int:
        size = self.file.backend.size
        assert size is not None, "the size is known once the file is open"
        return size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self.position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self.position, os.SEEK_END: self.size}[whence]
        return self.position

    def readinto(self, buffer: "WriteableBuffer") -> int:
        target = memoryview(buffer)
        kept = self.size - len(self.tail)
        if self.position >= kept:
            data: bytes | bytearray | memoryview = self.tail[self.position - kept :][: len(target)]
        else:
            data = self.file.read(self.position, self.position + len(target))
        target[: len(data)] = data
        self.position += len(data)
        return len(data)

    def readall(self) -> bytes:
        return self.read(max(0, self.size - self.position)) or b""

    def close(self) -> None:
        if not self.closed:
            self.file.backend.close()
        super().close()
