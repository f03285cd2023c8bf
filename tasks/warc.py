"""WARC files by path, glob, address or list; and their response records, one at a time."""

import gzip
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass

import fsspec
from fastwarc.stream_io import BrotliReader, ChunkedReader, GzipReader, ZstdReader
from fastwarc.warc import ArchiveIterator, WarcRecordType

from storage import files

_CONTENT_READERS = {
    "gzip": (b"\x1f\x8b", GzipReader),
    "x-gzip": (b"\x1f\x8b", GzipReader),
    "br": (b"", BrotliReader),
    "zstd": (b"\x28\xb5\x2f\xfd", ZstdReader),
}
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,8}[ \t]*(;[^\r\n]*)?\r?\n")
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
        if pattern.endswith((".paths", ".paths.gz")):
            found.update(_from_list(pattern))
        elif any(c in inner for c in "*?["):
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
    payload. Damage that stops the parser ends the file with a problem `damaged_record` at its offset.
    """
    if files.is_local(path):
        yield from _read(files.local_copy(path, ""), path, max_bytes)
    else:
        with files.open_file(path) as stream:
            yield from _read(stream, path, max_bytes)


def _read(stream, path: str, max_bytes: int) -> Iterator[Response]:
    offset = 0
    try:
        records = ArchiveIterator(
            stream, record_types=WarcRecordType.response, parse_http=True, auto_decode="none"
        )
        for record in records:
            offset = record.stream_pos
            yield _response(record, max_bytes)
    except OSError as error:
        yield Response(offset, "", "", "", None, "", None, b"", ("damaged_record", str(error)[:_DETAIL]))


def _response(record, max_bytes: int) -> Response:
    http = record.http_headers
    payload, problem = b"", None
    if not record.is_http or http is None:
        problem = ("not_http", record.headers.get("Content-Type", ""))
    else:
        payload = record.reader.read(max_bytes + 1)
        try:
            payload = _decode(payload, http, max_bytes)
        except (OSError, ValueError) as error:
            payload, problem = b"", ("undecodable_payload", str(error)[:_DETAIL])
        if len(payload) > max_bytes:
            payload, problem = b"", ("too_large", f"more than {max_bytes} bytes")
    return Response(
        record.stream_pos,
        record.record_id or "",
        (record.headers.get("WARC-Target-URI") or "").strip("<>"),
        record.headers.get("WARC-Date") or "",
        http.status_code if http is not None else None,
        (record.http_content_type or "").lower() if http is not None else "",
        record.http_charset if http is not None else None,
        payload,
        problem,
    )


def _decode(payload: bytes, http, max_bytes: int) -> bytes:
    """The payload without its transfer and content encodings (RFC 9112 section 7, RFC 9110 section 8.4).

    Crawlers often store the decoded body under the header of the encoded one, so an encoding is taken off
    only where the bytes begin as it does.
    """
    if "chunked" in (http.get("Transfer-Encoding") or "").lower() and _CHUNK_SIZE.match(payload):
        payload = ChunkedReader(io.BytesIO(payload)).read(max_bytes + 1)
    for encoding in reversed((http.get("Content-Encoding") or "").lower().replace(" ", "").split(",")):
        magic, reader = _CONTENT_READERS.get(encoding, (b"", None))
        if reader and payload.startswith(magic):
            payload = reader(io.BytesIO(payload)).read(max_bytes + 1)
    return payload
