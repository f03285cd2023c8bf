"""One attempt at the bytes of a remote file, from an HTTP server, S3 or another of fsspec's stores.

The size and tag of each response are compared with the first one's: a file that changes while it is read is an error.
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

from gristmill.storage.printable import redact_url
from gristmill.storage.remote.config import RemoteIOConfig
from gristmill.storage.remote.retry import TRANSIENT, BadResponse

log = logging.getLogger(__name__)

_CHUNK = 1 << 18
_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")


class S3:
    """One attempt at an object of S3. A range's response says how long the object is, so nothing is asked before
    it."""

    host = ""

    def __init__(self, fs: Any, inner: str) -> None:
        self.fs, self.inner = fs, inner
        self.bucket, self.key, self.version = fs.split_path(inner)
        self.size: int | None = None
        self.tag: str | None = None

    def read(self, start: int, end: int) -> bytes:
        data = self._get(f"bytes={start}-{end - 1}")
        expected = max(0, (end if self.size is None else min(end, self.size)) - start)
        if data and len(data) < expected:
            raise BadResponse(f"the answer ends after {len(data)} of {expected} bytes", transient=True)
        return data

    def tail(self, length: int) -> bytes:
        """The last bytes of the object, at most `length`."""
        data = self._get(f"bytes=-{length}")
        if self.size is None:
            self.size = 0
        if len(data) < min(length, self.size):
            raise BadResponse(f"the answer ends after {len(data)} of {min(length, self.size)} bytes", transient=True)
        return data

    def info(self) -> dict[str, Any]:
        return self.fs.info(self.inner, refresh=True)  # not from a listing that may be old

    def close(self) -> None:
        """Nothing is open between two reads."""

    def _get(self, span: str) -> bytes:
        try:
            return fsspec.asyn.sync(self.fs.loop, self._request, span)
        except FileNotFoundError as error:
            if self.tag is None:
                raise
            raise BadResponse("it is gone", 404) from error
        except OSError as error:
            status = getattr(error.__cause__, "response", {}).get("ResponseMetadata", {}).get("HTTPStatusCode")
            if status == 416:  # of an empty object any range, else one after its end
                return b""
            if status == 412:
                raise BadResponse("it has changed while it was read") from error
            raise

    async def _request(self, span: str) -> bytes:
        given = {"VersionId": self.version} if self.version else {}
        given |= {"IfMatch": self.tag} if self.tag else {}
        response = await self.fs._call_s3("get_object", Bucket=self.bucket, Key=self.key, Range=span, **given)
        try:
            data = await response["Body"].read()
        finally:
            response["Body"].close()
        if response["ContentLength"] == 0:  # some stores refuse any range of an empty object, others do not
            self.size, self.tag = 0, response["ETag"]
            return data
        content_range = _CONTENT_RANGE.fullmatch(response.get("ContentRange", ""))
        if content_range is None or content_range[3] == "*":
            raise BadResponse(f"the store answers {span} with the range {response.get('ContentRange')!r}")
        self.size, self.tag = int(content_range[3]), response["ETag"]
        return data


class Store:
    """One attempt at a file of another of fsspec's file systems, whose open file knows its size and tag."""

    host = ""

    def __init__(self, fs: Any, inner: str) -> None:
        self.fs, self.inner = fs, inner
        self.file: Any = None
        self.details: dict[str, Any] = {}

    @property
    def size(self) -> int | None:
        return self.details.get("size")

    def read(self, start: int, end: int) -> bytes:
        try:
            self._open()
            assert self.size is not None, "fsspec's file systems know the size of an open file"
            end = min(end, self.size)
            self.file.seek(start)
            data = self.file.read(max(end - start, 0))
        except FileNotFoundError as error:
            if self.file is None:
                raise
            raise BadResponse("it is gone", 404) from error
        if len(data) < end - start:
            raise BadResponse(f"the answer ends after {len(data)} of {end - start} bytes", transient=True)
        return data

    def tail(self, length: int) -> bytes:
        """None: the size is asked for, and ranges by their places."""
        self._open()
        return b""

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

    A server without ranges responds with the whole file: that response is kept open and read on as long as the ranges
    follow each other, else the file is requested again and skipped through.
    """

    def __init__(self, fs: HTTPFileSystem, url: str, remote_io: RemoteIOConfig) -> None:
        self.fs, self.url, self.remote_io = fs, url, remote_io
        self.host = urlsplit(url).netloc.rpartition("@")[2].lower()
        self.size: int | None = None
        self.tags: dict[str, str] | None = None
        self.response: aiohttp.ClientResponse | None = None
        self.position = 0

    def read(self, start: int, end: int) -> bytearray:
        return fsspec.asyn.sync(self.fs.loop, self._read, start, end)

    def close(self) -> None:
        """Without waiting, since at a process's end the loop no longer runs. A thread that reads ends with an error."""
        self.fs.loop.call_soon_threadsafe(self._drop)

    def tail(self, length: int) -> bytes:
        """None: servers without ranges would send the whole file."""
        self.read(0, 1)
        return b""

    def info(self) -> dict[str, Any]:
        self.read(0, 1)
        return {"size": self.size, **(self.tags or {})}

    async def _read(self, start: int, end: int) -> bytearray:
        data = bytearray()
        try:
            if self.response is None or self.position != start:
                self._drop()
                if not await self._request(start, end):
                    return data
            assert self.response is not None, "a request that succeeds leaves its response open"
            async with asyncio.timeout(self.remote_io.block_seconds):
                content = self.response.content
                while len(data) < end - start and (chunk := await content.read(min(_CHUNK, end - start - len(data)))):
                    data += chunk
            if self.size is not None and len(data) < (expected := min(end, self.size) - start):
                raise BadResponse(f"the answer ends after {len(data)} of {expected} bytes", transient=True)
            self.position += len(data)
            if len(data) < end - start:
                self.size = self.position
            if self.response and self.response.status == 206:
                self._drop()
            return data
        except BaseException:
            self._drop()
            raise

    def _drop(self) -> None:
        if self.response is not None:
            self.response.close()
        self.response = None

    async def _request(self, start: int, end: int) -> bool:
        """Open a response at byte `start`; False if the file ends before."""
        session = await self.fs.set_session()
        # an archive's own compression is not the transfer's
        headers = {"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
        stall = self.remote_io.stall_seconds
        options = {
            **self.fs.kwargs,
            "headers": self.fs.kwargs.get("headers", {}) | headers,
            "timeout": aiohttp.ClientTimeout(total=None, sock_connect=stall, sock_read=stall),
        }
        response = await session.get(self.fs.encode_url(self.url), auto_decompress=False, **options)
        self.response, self.position = response, start
        content_range = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
        size = int(content_range[3]) if content_range and content_range[3] != "*" else None
        if response.status == 206:
            if not content_range or not content_range[1] or size is None:
                raise BadResponse(f"the server sends the range {response.headers.get('Content-Range')!r}", 206)
            self._compare(size, response)
            if int(content_range[1]) != start or int(content_range[2]) + 1 != min(end, size):
                raise BadResponse(f"the server sends the range {content_range[0]!r}", 206, transient=True)
        elif response.status == 200:
            self._compare(response.content_length, response)
            if response.content_length is None and response.headers.get("Transfer-Encoding", "").lower() != "chunked":
                raise BadResponse(
                    "the server supports neither ranges nor lengths, so an interruption looks like the end of the file",
                    200,
                )
            await self._skip(response, start)
        elif response.status == 416 and size is not None and start >= size:
            self._compare(size, response)
            self._drop()
            return False
        elif response.status in (404, 410) and self.tags is None:
            raise FileNotFoundError(f"{redact_url(self.url)} does not exist: the server answers {response.status}")
        else:
            reason = f"the server answers {response.status} {response.reason or ''}".rstrip()
            raise BadResponse(reason, response.status, response.status in TRANSIENT, _retry_after(response.headers))
        return True

    async def _skip(self, response: aiohttp.ClientResponse, start: int) -> None:
        if start:
            log.info("%s: the server ignores ranges; %d bytes are skipped", redact_url(self.url), start)
        skipped = 0
        while skipped < start and (chunk := await response.content.read(min(_CHUNK, start - skipped))):
            skipped += len(chunk)
        if skipped < start and self.size is None:
            raise BadResponse(f"it ends at byte {skipped}, before byte {start} that is read next", 200)

    def _compare(self, size: int | None, response: aiohttp.ClientResponse) -> None:
        tags = {name: response.headers[name] for name in ("ETag", "Last-Modified") if name in response.headers}
        if self.tags is None:
            self.size, self.tags = size, tags
        shared = [name for name in tags if name in self.tags][:1]
        resized = None not in (size, self.size) and size != self.size
        if resized or any(tags[name] != self.tags[name] for name in shared):
            before, now = {"size": self.size, **self.tags}, {"size": size, **tags}
            raise BadResponse(f"it has changed while it was read: {before} at first, {now} now")


def _retry_after(headers: Any) -> float:
    """Seconds to wait by a Retry-After header, a number or a date (RFC 9110, section 10.2.3); 0 without one."""
    value = headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        until = parsedate_to_datetime(value)
    except ValueError:
        return 0.0
    return max(0.0, (until - datetime.now(UTC)).total_seconds()) if until.tzinfo else 0.0
