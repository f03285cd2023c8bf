"""Damage to records, as disks, networks and careless writers do it. The bytes of the next record are whole."""

import re
import zlib
from collections.abc import Callable
from random import Random

from tests.planted.records import CHUNKED, Damage, Sent, encoded, gzip

_LENGTH = re.compile(rb"(?i)\r\nContent-Length: (\d+)")


def _with_length(change: Callable[[int], int]) -> Damage:
    return lambda rng, record: _LENGTH.sub(lambda m: b"\r\nContent-Length: %d" % change(int(m[1])), record, count=1)


def _replaced(old: bytes, new: bytes) -> Damage:
    """The first match of an expression."""
    return lambda rng, record: re.sub(old, lambda _: new, record, count=1)


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


def _bad_chunks(rng: Random, body: bytes, text: str) -> bytes:
    half = len(body) // 2
    return b"%x\r\n%s\r\n" % (half, body[:half]) + b"not a size\r\n" + body[half:] + b"\r\n0\r\n\r\n"


VARIANTS = {
    # the stored bytes
    "clipped": Sent(yields="damaged", after=lambda rng, b: b[: rng.randrange(20, len(b) - 20)]),
    "bit_flip": Sent(yields="damaged", after=_flip_deflated),
    "wrong_crc": Sent(yields="damaged", after=lambda rng, b: _flip(rng, b, len(b) - 8, len(b) - 4)),
    "wrong_size": Sent(yields="either", after=lambda rng, b: _flip(rng, b, len(b) - 4, len(b))),
    "zeroed": Sent(yields="damaged", after=lambda _, b: b[: len(b) // 3] + bytes(len(b) // 3) + b[len(b) // 3 * 2 :]),
    "garbage_after": Sent(after=lambda rng, b: b + bytes(rng.choices(range(32, 127), k=300))),
    "zeros_after": Sent(after=lambda rng, b: b + bytes(512)),
    # the record's lengths
    "no_length": Sent(yields="damaged", before=_replaced(_LENGTH.pattern, b"")),
    "bad_length": Sent(yields="damaged", before=_replaced(_LENGTH.pattern, b"\r\nContent-Length: many")),
    "long_length": Sent(before=_with_length(lambda n: n + 1000)),
    "huge_length": Sent(yields="damaged", before=_with_length(lambda n: n + (1 << 40))),
    "short_length": Sent(yields="either", before=_with_length(lambda n: n - 100)),
    # its headers
    "lf_only": Sent(before=_line_ends),
    "no_version": Sent(yields="damaged", before=lambda rng, b: b.partition(b"\r\n")[2]),
    "other_version": Sent(yields="either", before=lambda rng, b: b"WARC/7.5" + b[8:]),
    "no_colon": Sent(before=_replaced(b"\r\n", b"\r\na line without a colon\r\n")),
    "folded_header": Sent(before=_replaced(b"\r\n", b"\r\nX-Long: one\r\n two\r\n")),
    "no_id": Sent(before=_replaced(rb"WARC-Record-ID: [^\r]*\r\n", b"")),
    "no_blank_lines": Sent(before=lambda rng, b: b.removesuffix(b"\r\n\r\n")),
    "wrong_digest": Sent(before=_replaced(rb"sha1:\w{8}", b"sha1:AAAAAAAA")),
    # its HTTP message
    "bad_status": Sent(yields="either", before=_replaced(rb"HTTP/1.1 200 OK", b"HTTP/1.1 TWO OK")),
    "no_status_line": Sent(yields="either", before=_replaced(rb"HTTP/1.1 200 OK\r\n", b"??" * 7 + b"?\r\n")),
    "short_chunks": Sent(lambda rng, b, text: b"%x\r\n" % (len(b) + 5000) + b, CHUNKED, yields="either"),
    "bad_chunk_size": Sent(_bad_chunks, CHUNKED, yields="either"),
    "clipped_gzip_body": Sent(lambda rng, b, text: gzip(b)[: len(b) // 5], encoded("gzip"), yields="either"),
    "no_gzip_body": Sent(lambda rng, b, t: b"\x1f\x8b" + rng.randbytes(2000), encoded("gzip"), yields="either"),
}
