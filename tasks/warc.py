"""WARC files by path, glob, address or list; and their response records, one at a time."""

import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO

import fsspec
from fastwarc.stream_io import BrotliReader, GzipReader, WarcReader, ZstdReader
from fastwarc.warc import ArchiveIterator, WarcRecordType

from storage import files

_GZIP = b"\x1f\x8b"
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r?\n")
_LINE_END = re.compile(rb"\r?\n")
_DETAIL = 200


@dataclass(frozen=True)
class Response:
    """One response record: where it lies, what the server said, the payload with its encodings taken off.

    `problem` is a pair (rule, detail) when the record cannot become a document, else None.
    """

    offset: int
    record_id: str
    url: str
    date: str
    status: int | None
    content_type: str
    charset: str | None
    payload: bytes
    problem: tuple[str, str] | None = None


def expand(patterns: list[str]) -> list[str]:
    """The WARC files that a source names, sorted: paths, globs and `*.paths` or `*.paths.gz` lists, local or remote.

    A list's line is an address of its own, or begins at the bucket's root when it starts with `crawl-data/`
    (as in Common Crawl's lists), or is relative to the folder of the list.
    Raises FileNotFoundError for a pattern that names no file.
    """
    found: set[str] = set()
    for pattern in patterns:
        fs, inner = fsspec.core.url_to_fs(pattern)
        fs.invalidate_cache()  # a process that lives for months must see this month's files
        if pattern.endswith((".paths", ".paths.gz")):
            found.update(_from_list(pattern if "://" in pattern else inner))
        elif any(c in inner for c in ("*[" if pattern.startswith("http") else "*?[")):
            matches = fs.glob(inner)
            if not matches:
                raise FileNotFoundError(f"no file matches the source's pattern {pattern}")
            found.update(fs.unstrip_protocol(m) if "://" in pattern else m for m in matches)
        else:
            if not fs.exists(inner):
                raise FileNotFoundError(f"the source's file {pattern} does not exist")
            found.add(pattern if "://" in pattern else inner)
    return sorted(found)


def _from_list(path: str) -> list[str]:
    data = files.read_bytes(path)
    text = (gzip.decompress(data) if path.endswith(".gz") else data).decode()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise FileNotFoundError(f"the list {path} names no file")
    root, folder = path.split("crawl-data/")[0], path.rsplit("/", 1)[0]
    return [
        line
        if "://" in line or line.startswith("/")
        else files.join(root, line)
        if line.startswith("crawl-data/") and "crawl-data/" in path
        else files.join(folder, line)
        for line in lines
    ]


def responses(path: str, max_bytes: int) -> Iterator[Response]:
    """The response records of a WARC file in its order; one record's payload is held at a time.

    A payload over `max_bytes`, raw or decoded, and one whose encoding lies are yielded with a problem and no
    payload; so is a record that the file's end cuts off (`damaged_record`). Damage that stops the parser ends the
    file with a problem `damaged_record`, at the offset of the gzip member, else of the last record before it.
    """
    if files.is_local(path):
        yield from _read(files.local_copy(path), max_bytes)
    else:
        with files.open_file(path) as stream:
            yield from _read(_Ahead(stream), max_bytes)


class _Ahead:
    """A stream that is read forwards only, and whose first bytes can be looked at before."""

    def __init__(self, stream: IO[bytes]):
        self.stream = stream
        self.first = stream.read(len(_GZIP))
        self.at = 0

    def read(self, size: int = -1) -> bytes:
        data, self.first = self.first or self.stream.read(size), b""
        self.at += len(data)
        return data

    def tell(self) -> int:
        return self.at


def _begins_as_gzip(stream: str | _Ahead) -> bool:
    if isinstance(stream, _Ahead):
        return stream.first == _GZIP
    with open(stream, "rb") as f:
        return f.read(len(_GZIP)) == _GZIP


def _read(stream: str | _Ahead, max_bytes: int) -> Iterator[Response]:
    members = GzipReader(stream) if _begins_as_gzip(stream) else None
    offset = -1
    try:
        for record in ArchiveIterator(members or stream, parse_http=False, stream_detect=not members):
            offset = record.stream_pos
            # the parser takes a file that ends inside a record's headers or body for one that ends well
            if record.headers.get("Content-Length") is None:
                yield _damaged(offset, "the record has no Content-Length")
            elif record.record_type == WarcRecordType.response:
                yield _response(record, max_bytes)
            elif (found := record.reader.consume()) < record.content_length:
                yield _damaged(offset, f"{found} of {record.content_length} bytes")
    except OSError as error:
        start = members.frame_start_position() if members else None
        yield _damaged(max(offset, 0) if start is None else start, str(error))
        return
    # and a gzip member that ends before its first block does as none at all
    if members and (start := members.frame_start_position() or 0) > offset:
        yield _damaged(start, "the file ends inside this gzip member")


def _damaged(offset: int, detail: str) -> Response:
    return Response(offset, "", "", "", None, "", None, b"", ("damaged_record", detail[:_DETAIL]))


def _response(record, max_bytes: int) -> Response:
    http = None
    payload, problem = b"", None
    try:
        record.parse_http()
    except OSError as error:
        problem = ("damaged_record", str(error)[:_DETAIL])
    else:
        http = record.http_headers
        payload = record.reader.read(max_bytes + 1)
        if len(payload) < min(record.content_length, max_bytes + 1):
            problem = ("damaged_record", f"{len(payload)} of {record.content_length} bytes")
        elif not record.is_http or http is None:
            problem = ("not_http", record.headers.get("Content-Type", ""))
        elif len(payload) <= max_bytes:
            try:
                payload = _decode(payload, http, max_bytes)
            except (OSError, ValueError) as error:
                problem = ("undecodable_payload", str(error)[:_DETAIL])
        if not problem and len(payload) > max_bytes:
            problem = ("too_large", f"more than {max_bytes} bytes")
    return Response(
        record.stream_pos,
        record.record_id or "",
        (record.headers.get("WARC-Target-URI") or "").strip("<>"),
        record.headers.get("WARC-Date") or "",
        http.status_code if http is not None else None,
        (record.http_content_type or "").lower() if http is not None else "",
        record.http_charset if http is not None else None,
        b"" if problem else payload,
        problem,
    )


def _decode(payload: bytes, http, max_bytes: int) -> bytes:
    """The payload without its transfer and content encodings (RFC 9112 section 7, RFC 9110 section 8.4).

    Crawlers often store the decoded body under the header of the encoded one, so an encoding is taken off
    only where the bytes begin as it does. Brotli and raw deflate have no beginning of their own: there, what cannot
    be decoded and has no control characters is text as it is.
    """
    if "chunked" in (http.get("Transfer-Encoding") or "").lower() and _CHUNK_SIZE.match(payload):
        payload = _dechunk(payload, max_bytes + 1)
    for encoding in reversed((http.get("Content-Encoding") or "").lower().replace(" ", "").split(",")):
        magic, decode = _DECODERS.get(encoding, (b"", None))
        if not decode or not payload.startswith(magic):
            continue
        try:
            payload = decode(payload, max_bytes + 1)
        except OSError:
            if magic or _CONTROLS.search(payload, 0, 512):
                raise
    return payload


def _dechunk(payload: bytes, size: int) -> bytes:
    """At least `size` bytes of the chunks' content, if there are so many; extensions and trailers are passed over.

    A body that ends early gives what it has. Raises ValueError where a chunk's size should be and is not.
    """
    content, at = bytearray(), 0
    while at < len(payload) and len(content) < size:
        head = _CHUNK_SIZE.match(payload, at)
        if not head:
            raise ValueError(f"no chunk size at byte {at} of the chunked body")
        end = head.end() + int(head[1], 16)
        if end == head.end():
            break
        content += payload[head.end() : end]
        line_end = _LINE_END.match(payload, end)
        at = line_end.end() if line_end else end
    return bytes(content)


def _inflate(payload: bytes, size: int) -> bytes:
    """`deflate` as it is met: in zlib's format (RFC 1950), as the standard has it, or raw (RFC 1951)."""
    wrapped = len(payload) > 1 and payload[0] & 15 == 8 and int.from_bytes(payload[:2]) % 31 == 0
    inflater = zlib.decompressobj(zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS)
    try:
        found = inflater.decompress(payload, size)
    except zlib.error as error:
        raise OSError(str(error)) from error
    if not wrapped and not inflater.eof and len(found) < size:
        raise OSError("the deflated data ends early")
    return found


def _read_by(reader: type[WarcReader]) -> Callable[[bytes, int], bytes]:
    return lambda payload, size: reader(io.BytesIO(payload)).read(size)


# how an encoding begins, and at most so many bytes of what it encodes
_DECODERS = {
    "gzip": (_GZIP, _read_by(GzipReader)),
    "x-gzip": (_GZIP, _read_by(GzipReader)),
    "zstd": (b"\x28\xb5\x2f\xfd", _read_by(ZstdReader)),
    "br": (b"", _read_by(BrotliReader)),
    "deflate": (b"", _inflate),
}
