"""Payloads come out of their encodings as they went in, and encodings that lie cost no more than their payload."""

import gzip
import random
import zlib

import brotli
import pytest

from gristmill.tasks.reading.block import dechunk, decode
from gristmill.tasks.reading.members import zstd

BODY = ("<html><body><p>" + "The mill turns as long as there is water. " * 200 + "</p></body></html>").encode()
MEGABYTE = 1 << 20
GZIPPED = gzip.compress(BODY, mtime=0)


def chunked(data: bytes, size: int = 1000, extension: bytes = b"", trailer: bytes = b"") -> bytes:
    pieces = [data[i : i + size] for i in range(0, len(data), size)]
    return b"".join(b"%x%s\r\n%s\r\n" % (len(p), extension, p) for p in pieces) + b"0\r\n" + trailer + b"\r\n"


def raw_deflate(data: bytes) -> bytes:
    deflater = zlib.compressobj(wbits=-15)
    return deflater.compress(data) + deflater.flush()


def by(content: bytes = b"", transfer: bytes = b"") -> dict[bytes, bytes]:
    return {b"content-encoding": content, b"transfer-encoding": transfer}


HTML = {b"content-type": b"text/html; charset=utf-8"}
ENCODINGS = {
    "none": (BODY, {}),
    "gzip": (GZIPPED, by(b"gzip")),
    "x-gzip": (GZIPPED, by(b" X-GZip ")),
    "zlib deflate": (zlib.compress(BODY), by(b"deflate")),
    "fast zlib deflate": (zlib.compress(BODY, 1), by(b"deflate")),
    "raw deflate": (raw_deflate(BODY), by(b"deflate")),
    "brotli": (brotli.compress(BODY), by(b"br")),
    "zstd": (zstd.compress(BODY), by(b"zstd")),
    "gzip, then deflate": (zlib.compress(GZIPPED), by(b"gzip, deflate")),
    "gzip twice": (gzip.compress(GZIPPED), by(b"gzip, gzip")),
    "chunked": (chunked(BODY), by(b"", b"chunked")),
    "one chunk": (chunked(BODY, len(BODY)), by(b"", b"Chunked")),
    "chunk extensions": (chunked(BODY, extension=b';name="value"'), by(b"", b"chunked")),
    "chunked with a trailer": (chunked(BODY, trailer=b"Link: <a>\r\n"), by(b"", b"chunked")),
    "chunked gzip": (chunked(GZIPPED, 50), by(b"gzip", b"chunked")),
    "chunked deflate": (chunked(raw_deflate(BODY), 50), by(b"deflate", b"chunked")),
    "unknown encoding": (BODY, by(b"none")),
    # the header names another encoding, or one of two, or none
    "gzip under brotli": (GZIPPED, by(b"br")),
    "gzip under deflate": (GZIPPED, by(b"deflate")),
    "zlib under gzip": (zlib.compress(BODY), by(b"gzip")),
    "zstd under gzip": (zstd.compress(BODY), by(b"gzip")),
    "gzip twice, said once": (gzip.compress(GZIPPED), by(b"gzip") | HTML),
    "gzip, unsaid": (GZIPPED, HTML),
    "zstd, unsaid": (zstd.compress(BODY), HTML),
    "gzip with bytes after it": (GZIPPED + b"\r\n\0\0", by(b"gzip")),
    "gzip in two members": (gzip.compress(BODY[:500]) + gzip.compress(BODY[500:]), by(b"gzip")),
    # the crawler took the encoding off and kept the header
    "decoded under gzip": (BODY, by(b"gzip")),
    "decoded under deflate": (BODY, by(b"deflate")),
    "decoded under brotli": (BODY, by(b"br")),
    "decoded under zstd": (BODY, by(b"zstd")),
    "decoded under chunked": (BODY, by(b"", b"chunked")),
    "decoded under both": (BODY, by(b"gzip", b"chunked")),
}


@pytest.mark.parametrize("name", ENCODINGS)
def test_every_encoding_gives_the_body(name):
    payload, http = ENCODINGS[name]
    assert decode(payload, http, MEGABYTE) == BODY


def test_a_file_that_is_compressed_itself_is_what_it_is():
    assert decode(GZIPPED, {b"content-type": b"application/gzip"}, MEGABYTE) == GZIPPED
    assert decode(GZIPPED, {}, MEGABYTE) == GZIPPED


@pytest.mark.parametrize("name", ["gzip", "zlib deflate", "raw deflate", "brotli", "zstd", "chunked", "chunked gzip"])
def test_no_more_than_the_limit_and_one_byte_is_made(name):
    payload, http = ENCODINGS[name]
    if name == "chunked":
        assert BODY.startswith(decode(payload, http, 1500)) and len(decode(payload, http, 1500)) > 1500
    else:
        assert decode(payload, http, 1500) == BODY[:1501]


@pytest.mark.parametrize(
    "payload,encoding",
    [
        (GZIPPED[:20] + bytes(50) + GZIPPED[70:], b"gzip"),
        (zlib.compress(BODY)[:10] + b"\xff" * 50, b"deflate"),
        (bytes(range(256)), b"br"),
        (b"\x28\xb5\x2f\xfd" + bytes(range(200)), b"zstd"),
    ],
    ids=["gzip", "deflate", "brotli", "zstd"],
)
def test_an_encoding_that_lies_is_an_error(payload, encoding):
    with pytest.raises((OSError, ValueError)):
        decode(payload, by(encoding), MEGABYTE)


def test_a_chunked_body_without_a_size_is_an_error():
    broken = chunked(BODY)[:1500] + b"no size here" + BODY
    with pytest.raises(ValueError, match="no chunk size"):
        decode(broken, by(b"", b"chunked"), MEGABYTE)


def test_chunks_that_end_early_give_what_they_have():
    assert dechunk(chunked(BODY)[:1500], MEGABYTE) == BODY[: 1500 - len(b"3e8\r\n\r\n3e8\r\n")]
    assert dechunk(b"ffffffff\r\nabc", MEGABYTE) == b"abc"


def test_random_bytes_under_every_encoding_end_well():
    draw = random.Random(3)
    for _ in range(300):
        payload = draw.choice([b"", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"1f\r\n", b"x\x9c"]) + draw.randbytes(
            draw.randrange(200)
        )
        http = by(draw.choice([b"gzip", b"br", b"zstd", b"deflate", b"gzip,br"]), draw.choice([b"", b"chunked"]))
        try:
            assert len(decode(payload, http, 1000)) <= 1001 + len(payload)
        except (OSError, ValueError):
            pass
