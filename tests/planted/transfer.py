"""Bodies with content and transfer encodings, as servers send them and as crawlers store them."""

import io
import zlib
from collections.abc import Callable
from random import Random

import pyarrow as pa
from fastwarc.stream_io import BrotliWriter

Headers = list[tuple[str, str]]


def gzip(body: bytes) -> bytes:
    return zlib.compress(body, 6, zlib.MAX_WBITS | 16)


def _raw_deflate(body: bytes) -> bytes:
    return zlib.compress(body, 6, -zlib.MAX_WBITS)


def brotli(body: bytes) -> bytes:
    target = io.BytesIO()
    writer = BrotliWriter(target)
    writer.write(body)
    writer.close()
    return target.getvalue()


def zstd(body: bytes) -> bytes:
    return pa.Codec("zstd", 3).compress(body, asbytes=True)


def chunked(rng: Random, body: bytes, extension: bytes = b"", trailer: bytes = b"") -> bytes:
    """RFC 9112, section 7.1; chunks of 1 byte to 8 kB."""
    parts, at = [], 0
    while at < len(body):
        piece = body[at : at + rng.choice((1, 100, 1000, 4096, 8192))]
        parts.append(b"%x%s\r\n%s\r\n" % (len(piece), extension, piece))
        at += len(piece)
    return b"".join([*parts, b"0\r\n", trailer, b"\r\n"])


_GZIP, _CHUNKED = ("Content-Encoding", "gzip"), ("Transfer-Encoding", "chunked")

# Each gives the body as it is stored and the headers that go with it. `claimed_*`: the header stayed when the
# crawler took the encoding off, as is common.
VARIANTS: dict[str, Callable[[Random, bytes], tuple[bytes, Headers]]] = {
    "gzip": lambda rng, b: (gzip(b), [_GZIP]),
    "x-gzip": lambda rng, b: (gzip(b), [("Content-Encoding", "x-gzip")]),
    "deflate": lambda rng, b: (zlib.compress(b), [("Content-Encoding", "deflate")]),
    "raw_deflate": lambda rng, b: (_raw_deflate(b), [("Content-Encoding", "deflate")]),
    "br": lambda rng, b: (brotli(b), [("Content-Encoding", "br")]),
    "zstd": lambda rng, b: (zstd(b), [("Content-Encoding", "zstd")]),
    "gzip_twice": lambda rng, b: (gzip(gzip(b)), [("Content-Encoding", "gzip, gzip")]),
    "chunked": lambda rng, b: (chunked(rng, b), [_CHUNKED]),
    "chunked_extras": lambda rng, b: (chunked(rng, b, b";name=value", b"Expires: never\r\n"), [_CHUNKED]),
    "gzip_chunked": lambda rng, b: (chunked(rng, gzip(b)), [_GZIP, _CHUNKED]),
    "br_chunked": lambda rng, b: (chunked(rng, brotli(b)), [("Content-Encoding", "br"), _CHUNKED]),
    "claimed_gzip": lambda rng, b: (b, [_GZIP]),
    "claimed_br": lambda rng, b: (b, [("Content-Encoding", "br")]),
    "claimed_chunked": lambda rng, b: (b, [_CHUNKED]),
    "identity": lambda rng, b: (b, [("Content-Encoding", "identity")]),
}
