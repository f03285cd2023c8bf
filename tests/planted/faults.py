"""Damage to records, as disks, networks and careless writers do it."""

import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.planted.transfer import gzip

_LENGTH = re.compile(rb"(?i)\r\nContent-Length: (\d+)")
Damage = Callable[[Random, bytes], bytes]


@dataclass(frozen=True)
class Fault:
    """`before` changes the record before it is compressed, `after` what is stored, `body` its HTTP body.

    `yields` as in `truth.SCHEMA`; `headers` go with the body. `gzip_only`: there is no such damage elsewhere.
    Whatever happens to a record, the bytes of the next one are whole.
    """

    yields: str
    before: Damage | None = None
    after: Damage | None = None
    body: Damage | None = None
    headers: tuple[tuple[str, str], ...] = ()
    gzip_only: bool = False


def _with_length(change: Callable[[int], int]) -> Damage:
    return lambda rng, record: _LENGTH.sub(lambda m: b"\r\nContent-Length: %d" % change(int(m[1])), record, count=1)


def _line_ends(rng: Random, record: bytes) -> bytes:
    head, blank, block = record.partition(b"\r\n\r\n")
    return (head + blank).replace(b"\r\n", b"\n") + block


def _flip(rng: Random, stored: bytes, first: int, end: int) -> bytes:
    at = rng.randrange(first, end)
    return stored[:at] + bytes([stored[at] ^ 1 << rng.randrange(8)]) + stored[at + 1 :]


def _flip_deflated(rng: Random, stored: bytes) -> bytes:
    """A bit of the second half, one that matters."""
    while True:
        flipped = _flip(rng, stored, len(stored) // 2, len(stored) - 8)
        try:
            zlib.decompress(flipped, zlib.MAX_WBITS | 16)
        except zlib.error:
            return flipped


def _bad_chunks(rng: Random, body: bytes) -> bytes:
    half = len(body) // 2
    return b"%x\r\n%s\r\n" % (half, body[:half]) + b"not a size\r\n" + body[half:] + b"\r\n0\r\n\r\n"


_CHUNKED = (("Transfer-Encoding", "chunked"),)

VARIANTS: dict[str, Fault] = {
    # the stored bytes
    "clipped": Fault("damaged", after=lambda rng, b: b[: rng.randrange(20, len(b) - 20)]),
    "bit_flip": Fault("damaged", after=_flip_deflated, gzip_only=True),
    "wrong_crc": Fault("damaged", after=lambda rng, b: _flip(rng, b, len(b) - 8, len(b) - 4), gzip_only=True),
    "wrong_size": Fault("either", after=lambda rng, b: _flip(rng, b, len(b) - 4, len(b)), gzip_only=True),
    "zeroed": Fault(
        "damaged",
        after=lambda rng, b: b[: len(b) // 3] + bytes(len(b) // 3) + b[len(b) // 3 * 2 :],
        gzip_only=True,
    ),
    "garbage_after": Fault("page", after=lambda rng, b: b + bytes(rng.choices(range(32, 127), k=300))),
    "zeros_after": Fault("page", after=lambda rng, b: b + bytes(512)),
    # the record's lengths
    "no_length": Fault("damaged", before=lambda rng, b: _LENGTH.sub(b"", b, count=1)),
    "bad_length": Fault("damaged", before=lambda rng, b: _LENGTH.sub(b"\r\nContent-Length: many", b, count=1)),
    "long_length": Fault("damaged", before=_with_length(lambda n: n + 1000)),
    "huge_length": Fault("damaged", before=_with_length(lambda n: n + (1 << 40))),
    "short_length": Fault("either", before=_with_length(lambda n: n - 100)),
    # its headers
    "lf_only": Fault("page", before=_line_ends),
    "no_version": Fault("damaged", before=lambda rng, b: b.partition(b"\r\n")[2]),
    "other_version": Fault("either", before=lambda rng, b: b"WARC/7.5" + b[8:]),
    "no_colon": Fault("page", before=lambda rng, b: b.replace(b"\r\n", b"\r\na line without a colon\r\n", 1)),
    "folded_header": Fault("page", before=lambda rng, b: b.replace(b"\r\n", b"\r\nX-Long: one\r\n two\r\n", 1)),
    "no_id": Fault("page", before=lambda rng, b: re.sub(rb"WARC-Record-ID: [^\r]*\r\n", b"", b, count=1)),
    "no_blank_lines": Fault("page", before=lambda rng, b: b.removesuffix(b"\r\n\r\n")),
    "wrong_digest": Fault("page", before=lambda rng, b: re.sub(rb"sha1:\w{8}", b"sha1:AAAAAAAA", b)),
    # its HTTP message
    "bad_status": Fault("either", before=lambda rng, b: b.replace(b"HTTP/1.1 200 OK", b"HTTP/1.1 TWO OK", 1)),
    "no_status_line": Fault("either", before=lambda rng, b: b.replace(b"HTTP/1.1 200 OK\r\n", b"??" * 7 + b"?\r\n", 1)),
    "short_chunks": Fault("either", body=lambda rng, b: b"%x\r\n" % (len(b) + 5000) + b, headers=_CHUNKED),
    "bad_chunk_size": Fault("either", body=_bad_chunks, headers=_CHUNKED),
    "clipped_gzip_body": Fault(
        "either", body=lambda rng, b: gzip(b)[: len(b) // 5], headers=(("Content-Encoding", "gzip"),)
    ),
    "no_gzip_body": Fault(
        "either", body=lambda rng, b: b"\x1f\x8b" + rng.randbytes(2000), headers=(("Content-Encoding", "gzip"),)
    ),
}
