"""Payloads without their transfer and content encodings, whether these are claimed rightly or not."""

import io
import re
import zlib
from collections.abc import Callable, Mapping

from fastwarc.stream_io import BrotliReader, GzipReader, ZstdReader

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
    for encoding in reversed(http.get(b"content-encoding", b"").lower().split(b",")):
        magic, decoder = _DECODERS.get(encoding.strip(), (b"", None))
        if not decoder or not payload.startswith(magic):
            continue
        try:
            payload = decoder(payload, max_bytes + 1)
        except OSError:
            if magic or _CONTROLS.search(payload, 0, 512):
                raise
    return payload


def dechunk(payload: bytes, size: int) -> bytes:
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


def _read_by(reader: type[BrotliReader | GzipReader | ZstdReader]) -> Callable[[bytes, int], bytes]:
    return lambda payload, size: reader(io.BytesIO(payload)).read(size)


# how an encoding begins, and at most so many bytes of what it encodes
_DECODERS = {
    b"gzip": (b"\x1f\x8b", _read_by(GzipReader)),
    b"x-gzip": (b"\x1f\x8b", _read_by(GzipReader)),
    b"zstd": (b"\x28\xb5\x2f\xfd", _read_by(ZstdReader)),
    b"br": (b"", _read_by(BrotliReader)),
    b"deflate": (b"", _inflate),
}
