"""What a record's block gives: the answer's status and type, and the payload without its encodings.

Transfer and content encodings are undone whether they are claimed rightly or not, and the digests that the crawler
wrote beside the record are compared with it.
"""

import base64
import binascii
import hashlib
import io
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from fastwarc.stream_io import BrotliReader, ZstdReader
from isal import isal_zlib

from gristmill.tasks.reading.headers import FOLD, HEAD, blanks_end, fields, head_end, media_type
from gristmill.tasks.reading.members import DAMAGE, SKIPPABLE

_LENGTHS = {"md5": 16, "sha1": 20, "sha256": 32, "sha384": 48, "sha512": 64}


def differs(header_value: bytes, contents: Iterable[bytes]) -> str | None:
    """The digest in the header and the computed one, if none of `contents` has the former; None if it has, or if the
    digest cannot be read.

    `header_value` is an algorithm, a colon, and the value in base 32 as the WARC standard shows it, or in hexadecimal,
    or in base 64.
    """
    name, _, value = header_value.decode("latin-1").partition(":")
    algorithm, value = name.strip().lower().replace("-", ""), value.strip()
    expected = _bytes(value, _LENGTHS.get(algorithm, 0))
    if expected is None:
        return None
    digests = [hashlib.new(algorithm, content, usedforsecurity=False).digest() for content in contents]
    if expected in digests:
        return None
    return f"{algorithm}:{expected.hex()} is written, {digests[0].hex()} found"


def _bytes(value: str, length: int) -> bytes | None:
    """The reading of a value that has the algorithm's length."""
    for read in (bytes.fromhex, lambda v: base64.b32decode(v + "=" * (-len(v) % 8), casefold=True), _base64):
        try:
            data = read(value)
        except (ValueError, binascii.Error):
            continue
        if data and len(data) == length:
            return data
    return None


def _base64(value: str) -> bytes:
    return base64.b64decode(value + "=" * (-len(value) % 4), altchars=b"-_")


_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r?\n")
_LINE_END = re.compile(rb"\r?\n")


def decode(payload: bytes, http: Mapping[bytes, bytes], max_bytes: int) -> bytes:
    """The payload without its transfer and content encodings (RFC 9112 section 7, RFC 9110 section 8.4).

    `http`: its header fields by lower-case name. More than `max_bytes` are cut after one byte more, so that the
    caller can tell. Raises OSError or ValueError for an encoding that the bytes begin with and do not keep.
    Crawlers often store the decoded body under the header of the encoded one, so an encoding is taken off
    only where the bytes begin as it does. Brotli and raw deflate have no beginning of their own: there, what cannot
    be decoded and has no control characters is text as it is.
    """
    if b"chunked" in http.get(b"transfer-encoding", b"").lower() and _CHUNK_SIZE.match(payload):
        payload = dechunk(payload, max_bytes + 1)
    names = [name.strip() for name in http.get(b"content-encoding", b"").lower().split(b",")]
    for name in reversed(names):
        if name in _DECODERS:
            payload = _decoded(payload, name, max_bytes + 1)
    if b"text/" in http.get(b"content-type", b"").lower():
        # a text that begins like a compressed file was compressed without a header, or twice with one header
        for _ in range(_MAX_UNDECLARED):
            if not (begun := _begun(payload)):
                break
            payload = _decoded(payload, begun, max_bytes + 1)
    return payload


def _begun(payload: bytes) -> bytes | None:
    """The encoding that bytes begin as, of those that have a beginning."""
    return next((name for name, magic in _MAGIC.items() if payload.startswith(magic)), None)


def _decoded(payload: bytes, name: bytes, size: int) -> bytes:
    """At least `size` bytes, if there are that many, of what is encoded by `name`, or otherwise, as it begins."""
    actual = _begun(payload)
    if actual is None and name in _ZLIB and _is_zlib(payload):
        actual = b"deflate"
    if actual is None and name == b"zstd" and SKIPPABLE.match(payload):
        actual = b"zstd"
    if actual is None and name in _MAGIC:
        if payload.startswith(_MAGIC[b"gzip"][:2]):
            raise OSError("a gzip member of an unknown method")
        return payload
    try:
        return _DECODERS[actual or name](payload, size)
    except OSError:
        if actual or _CONTROLS.search(payload, 0, 512):
            raise
        return payload


def dechunk(payload: bytes, size: int) -> bytes:
    """At least `size` bytes of the chunks' content, if there are that many; extensions and trailers are skipped.

    A body that ends early gives what it has. Raises ValueError where a chunk's size should be and is not.
    """
    content, position = bytearray(), 0
    while position < len(payload) and len(content) < size:
        head = _CHUNK_SIZE.match(payload, position)
        if not head:
            raise ValueError(f"no chunk size at byte {position} of the chunked body")
        end = head.end() + int(head[1], 16)
        if end == head.end():
            break
        content += payload[head.end() : end]
        line_end = _LINE_END.match(payload, end)
        position = line_end.end() if line_end else end
    return bytes(content)


def _is_zlib(payload: bytes) -> bool:
    return len(payload) > 1 and payload[0] & 15 == 8 and int.from_bytes(payload[:2]) % 31 == 0


def _gunzip(payload: bytes, size: int) -> bytes:
    """The members of gzip one after the other, without what follows them and is none; of a cut one what it has."""
    content = bytearray()
    while payload.startswith(_MAGIC[b"gzip"]) and len(content) < size:
        inflater = isal_zlib.decompressobj(31)
        try:
            content += inflater.decompress(payload, size - len(content))
        except DAMAGE as error:
            raise OSError(f"{error}") from error
        if not inflater.eof:
            break
        payload = inflater.unused_data
    return bytes(content)


def _inflate(payload: bytes, size: int) -> bytes:
    """`deflate` as it is met: in zlib's format (RFC 1950), as the standard has it, or raw (RFC 1951)."""
    wrapped = _is_zlib(payload)
    inflater = zlib.decompressobj(zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS)
    try:
        data = inflater.decompress(payload, size)
    except zlib.error as error:
        raise OSError(str(error)) from error
    if not wrapped and not inflater.eof and len(data) < size:
        raise OSError("the deflated data ends early")
    return data


def _read_by(reader: type[BrotliReader | ZstdReader]) -> Callable[[bytes, int], bytes]:
    return lambda payload, size: reader(io.BytesIO(payload)).read(size)


_MAGIC = {b"gzip": b"\x1f\x8b\x08", b"x-gzip": b"\x1f\x8b\x08", b"zstd": b"\x28\xb5\x2f\xfd"}
_ZLIB = (b"gzip", b"x-gzip", b"br")
_MAX_UNDECLARED = 2
# maximum size in bytes of what an encoding encodes
_DECODERS: dict[bytes, Callable[[bytes, int], bytes]] = {
    b"gzip": _gunzip,
    b"x-gzip": _gunzip,
    b"zstd": _read_by(ZstdReader),
    b"br": _read_by(BrotliReader),
    b"deflate": _inflate,
}


WITH_PAYLOAD = frozenset({"response", "resource", "conversion"})
BARE = "no HTTP headers"

_DETAIL = 200
_STATUS = re.compile(rb"HTTP/\d(?:\.\d)?[ \t]+(\d{3})(?!\d)")
# Responses before the final one (RFC 9110, 15.2); 101 ends HTTP.
_INTERIM = (b"100", b"102", b"103")
_REFERS = (b"warc-refers-to-target-uri", b"warc-refers-to-date", b"warc-refers-to")
# Fields without a status line before them: a damaged head is not a page.
_HEADLESS = re.compile(rb"(?:[^\r\n<]{0,1000}\r{0,2}\n)?[A-Za-z][A-Za-z0-9-]{0,60}:[ \t]")
# Types that servers use if they do not know the type.
_SAYS_NOTHING = (
    *("", "application/octet-stream", "binary/octet-stream", "application/unknown", "unknown/unknown"),
    *("no-type", "unknown", "content/unknown", "application/x-unknown"),
)
_WEB = re.compile(r"(?:https?|ftp)://", re.IGNORECASE)


def read_block(
    data: bytes,
    start: int,
    end: int,
    header_columns: dict[str, Any],
    headers: dict[bytes, bytes],
    max_bytes: int,
    verify: bool,
) -> dict[str, Any]:
    """Columns of Record from its block, `data[start:end]`: payload or problem, and what the answer's head says.

    `header_columns`: columns from the record's own headers, `kind` and `url` among them; `headers`: these headers.
    """
    kind = header_columns["kind"]
    if kind == "unknown":
        return wrong("unknown_type", text_of(headers.get(b"warc-type", b"")))
    if verify and (unlike := differs(headers.get(b"warc-block-digest", b""), [data[start:end]])):
        return wrong("digest_mismatch", f"block: {unlike}")
    columns: dict[str, Any] = {}
    http: dict[bytes, bytes] = {}
    if kind in ("response", "revisit"):
        columns, http, start = _answer(data, start, end, header_columns["url"], headers)
    elif kind in ("resource", "conversion"):
        essence, charset = media_type(headers.get(b"content-type", b""))
        if kind == "conversion":
            essence, charset = essence or "text/plain", charset or "utf-8"
        columns = {"content_type": essence, "charset": charset}
    if kind == "revisit":
        refers = [text_of(value).strip("<>") for name in _REFERS if (value := headers.get(name))]
        columns |= wrong("revisit", " ".join(refers))
    if kind not in WITH_PAYLOAD or "problem" in columns:
        return columns
    if end - start > max_bytes:
        return columns | wrong("too_large", f"more than {max_bytes} bytes")
    raw = payload = data[start:end]
    try:
        if http:
            payload = decode(raw, http, max_bytes)
    except (OSError, ValueError) as error:
        return columns | wrong("undecodable_payload", str(error))
    if verify and (unlike := differs(headers.get(b"warc-payload-digest", b""), _bodies(raw, payload))):
        return columns | wrong("digest_mismatch", f"payload: {unlike}")
    if len(payload) > max_bytes:
        return columns | wrong("too_large", f"more than {max_bytes} bytes")
    columns["payload"] = payload
    return columns


def _answer(
    data: bytes, start: int, end: int, url: str, headers: dict[bytes, bytes]
) -> tuple[dict[str, Any], dict[bytes, bytes], int]:
    """Columns of Record from an HTTP answer's head, its fields, and where its body begins.

    Old crawls and exports of archives hold answers without a head (that is also what HTTP/0.9 sends): such a block of
    an address of the web is a body, and its type is the record's type.
    """
    if not data.startswith(b"HTTP/", start, end) and data.startswith(b"HTTP/", first := blanks_end(data, start)):
        start = first
    if not data.startswith(b"HTTP/", start, end):
        essence, charset = media_type(headers.get(b"content-type", b""))
        if not _WEB.match(url) or _HEADLESS.match(data, start, end):
            return wrong("not_http", text_of(headers.get(b"content-type", b""))), {}, start
        if essence == "application/http" or essence in _SAYS_NOTHING:
            essence, charset = _identified(headers), None
        return {"content_type": essence, "charset": charset, "note": BARE}, {}, start
    head = head_end(data, start, min(end, start + HEAD))
    if head is None:
        if end - start >= HEAD:
            return wrong("damaged_record", f"its HTTP headers do not end within {HEAD} bytes"), {}, start
        head = (end, end)
    status = _STATUS.match(data, start, head[1])
    if status and status[1] in _INTERIM and data.startswith(b"HTTP/", head[1], end):
        return _answer(data, head[1], end, url, headers)
    http = fields(data[start : head[0]])
    essence, charset = media_type(http.get(b"content-type", b""))
    if "/" not in essence and essence not in _SAYS_NOTHING:
        essence = ""  # a word such as `html` is not a type (RFC 9110, 8.3.1)
    if essence in _SAYS_NOTHING:
        essence = _identified(headers) or essence
    columns: dict[str, Any] = {
        "status": int(status[1]) if status else None,
        "content_type": essence,
        "charset": charset,
    }
    if not RIGHTS_FIELDS.isdisjoint(http):
        columns["headers"] = tuple(_stated(data[start : head[0]]))
    return columns, http, head[1]


# Fields by which a server says how an answer may be used: they stay with the record. `location`: a robots.txt is
# often at another address.
RIGHTS_FIELDS = frozenset({b"x-robots-tag", b"tdm-reservation", b"tdm-policy", b"content-usage", b"link", b"location"})


def _stated(head: bytes) -> Iterator[tuple[str, str]]:
    """The fields of RIGHTS_FIELDS in a head, in their order: each line of a repeated field by itself, since a line of
    `X-Robots-Tag` may be for only one agent."""
    for line in FOLD.sub(b" ", head).split(b"\n")[1:]:
        name, _, value = line.partition(b":")
        if (name := name.rstrip().lower()) in RIGHTS_FIELDS:
            yield name.decode(), text_of(value)


def _identified(headers: dict[bytes, bytes]) -> str:
    """The type that the crawler detected in the payload; empty if it says no more than the payload's bytes."""
    essence, _ = media_type(headers.get(b"warc-identified-payload-type", b""))
    return "" if essence in (*_SAYS_NOTHING, "text/plain") else essence


def _bodies(raw: bytes, decoded: bytes) -> Iterator[bytes]:
    """What crawlers take a payload's digest of: the body as sent, without its chunks, without any encoding."""
    yield raw
    yield decoded
    try:
        yield dechunk(raw, len(raw))
    except ValueError:
        return


def wrong(rule: str, detail: str) -> dict[str, Any]:
    """The column of a record that cannot become a document."""
    return {"problem": (rule, detail[:_DETAIL])}


def text_of(value: bytes) -> str:
    """A header's value."""
    return value.decode("utf-8", "replace").strip()
