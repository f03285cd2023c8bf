"""One attempt at the bytes of a remote file, at an HTTP server or in another of fsspec's stores.

Each answer is held against the first one's size and tag: a file that changes while it is read is an error.
"""

import asyncio
import logging
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import fsspec
from fsspec.implementations.http import HTTPFileSystem

from storage.remote.config import RemoteIOConfig
from storage.remote.redact import redact_url
from storage.remote.retry import PASSING, Refused

log = logging.getLogger(__name__)

PIECE = 1 << 18

_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")


class Store:
    """One attempt at a file of S3 or another of fsspec's file systems, whose open file knows its size and tag."""

    host = ""

    def __init__(self, fs: Any, inner: str):
        self.fs, self.inner = fs, inner
        self.file: Any = None
        self.details: dict[str, Any] = {}

    @property
    def size(self) -> int | None:
        return self.details.get("size")

    def read(self, start: int, end: int) -> bytes:
        try:
            self._open()
            end = min(end, self.size)
            self.file.seek(start)
            data = self.file.read(max(end - start, 0))
        except FileNotFoundError as error:
            if self.file is None:
                raise
            raise Refused("it is gone", 404) from error
        if len(data) < end - start:
            raise Refused(f"the answer ends after {len(data)} of {end - start} bytes", again=True)
        return data

    def info(self) -> dict[str, Any]:
        self._open()
        return self.details

    def close(self) -> None:
        if self.file is not None:
            self.file.close()

    def _open(self) -> None:
        if self.file is None:
            file = self.fs.open(self.inner, "rb", cache_type="none")
            self.details = getattr(file, "details", None) or self.fs.info(self.inner)
            self.file = file


class Http:
    """One attempt at a file of an HTTP server (RFC 9110, section 14).

    A server that knows no ranges answers with the whole file: that answer is kept open and read on as long as the
    ranges follow each other, else it is asked for again and read over.
    """

    def __init__(self, fs: HTTPFileSystem, url: str, remote_io: RemoteIOConfig):
        self.fs, self.url, self.remote_io = fs, url, remote_io
        self.host = urlsplit(url).netloc.rpartition("@")[2].lower()
        self.size: int | None = None
        self.tags: dict[str, str] | None = None
        self.answer: aiohttp.ClientResponse | None = None
        self.at = 0

    def read(self, start: int, end: int) -> bytearray:
        return fsspec.asyn.sync(self.fs.loop, self._read, start, end)

    def close(self) -> None:
        """Without waiting, since at a process's end the loop stands still. A thread that reads ends with an error."""
        self.fs.loop.call_soon_threadsafe(self._drop)

    def info(self) -> dict[str, Any]:
        self.read(0, 1)
        return {"size": self.size, **self.tags}

    async def _read(self, start: int, end: int) -> bytearray:
        data = bytearray()
        try:
            if self.answer is None or self.at != start:
                self._drop()
                if not await self._ask(start, end):
                    return data
            async with asyncio.timeout(self.remote_io.block_seconds):
                content = self.answer.content
                while len(data) < end - start and (piece := await content.read(min(PIECE, end - start - len(data)))):
                    data += piece
            if self.size is not None and len(data) < min(end, self.size) - start:
                raise Refused(f"the answer ends after {len(data)} of {min(end, self.size) - start} bytes", again=True)
            self.at += len(data)
            if len(data) < end - start:
                self.size = self.at
            if self.answer and self.answer.status == 206:
                self._drop()
            return data
        except BaseException:
            self._drop()
            raise

    def _drop(self) -> None:
        if self.answer is not None:
            self.answer.close()
        self.answer = None

    async def _ask(self, start: int, end: int) -> bool:
        """Leave an answer to be read at `start`, if the file goes so far."""
        session = await self.fs.set_session()
        given = dict(self.fs.kwargs)
        given["headers"] = {
            **given.get("headers", {}),
            "Range": f"bytes={start}-{end - 1}",
            # an archive's own compression is not the transfer's
            "Accept-Encoding": "identity",
        }
        stall = self.remote_io.stall_seconds
        given["timeout"] = aiohttp.ClientTimeout(total=None, sock_connect=stall, sock_read=stall)
        answer = await session.get(self.fs.encode_url(self.url), auto_decompress=False, **given)
        self.answer, self.at = answer, start
        said = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", ""))
        size = int(said[3]) if said and said[3] != "*" else None
        if answer.status == 206:
            if not said or not said[1] or size is None:
                raise Refused(f"the server sends the range {answer.headers.get('Content-Range')!r}", 206)
            self._compare(size, answer)
            if int(said[1]) != start or int(said[2]) + 1 != min(end, size):
                raise Refused(f"the server sends the range {said[0]!r}", 206, again=True)
        elif answer.status == 200:
            self._compare(answer.content_length, answer)
            if answer.content_length is None and answer.headers.get("Transfer-Encoding", "").lower() != "chunked":
                raise Refused("the server gives neither ranges nor a length: a break looks like the file's end", 200)
            await self._read_over(start)
        elif answer.status == 416 and size is not None and start >= size:
            self._compare(size, answer)
            self._drop()
            return False
        elif answer.status in (404, 410) and self.tags is None:
            raise FileNotFoundError(f"{redact_url(self.url)} does not exist: the server answers {answer.status}")
        else:
            reason = f"the server answers {answer.status} {answer.reason or ''}".rstrip()
            raise Refused(reason, answer.status, answer.status in PASSING, _retry_after(answer.headers))
        return True

    async def _read_over(self, start: int) -> None:
        if start:
            log.info("%s: the server ignores ranges; %d bytes are read over", redact_url(self.url), start)
        over = 0
        while over < start and (piece := await self.answer.content.read(min(PIECE, start - over))):
            over += len(piece)
        if over < start and self.size is None:
            raise Refused(f"it ends at byte {over}, before byte {start} that is read next", 200)

    def _compare(self, size: int | None, answer: aiohttp.ClientResponse) -> None:
        tags = {name: answer.headers[name] for name in ("ETag", "Last-Modified") if name in answer.headers}
        if self.tags is None:
            self.size, self.tags = size, tags
        shared = [name for name in tags if name in self.tags][:1]
        resized = None not in (size, self.size) and size != self.size
        if resized or any(tags[name] != self.tags[name] for name in shared):
            before, now = {"size": self.size, **self.tags}, {"size": size, **tags}
            raise Refused(f"it has changed while it was read: {before} at first, {now} now")


def _retry_after(headers: Any) -> float:
    """Seconds that the server asks to wait: a number or a date (RFC 9110, section 10.2.3); 0 if none."""
    asked = headers.get("Retry-After", "").strip()
    if asked.isascii() and asked.isdigit():
        return float(asked)
    try:
        until = parsedate_to_datetime(asked)
    except ValueError:
        return 0.0
    return max(0.0, (until - datetime.now(UTC)).total_seconds()) if until.tzinfo else 0.0
