"""Bytes of archive records: WARC 1.1, ARC 1; each compressed by itself or not at all."""

import hashlib
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from random import Random

import pyarrow as pa

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Message:
    """A record before it is written. `http` is the status line and the headers, None for a block that is no HTTP
    response; `content_type` is that of the block then."""

    record_type: str
    url: str
    date: str
    record_id: str
    body: bytes
    http: tuple[str, Headers] | None = None
    content_type: str = "application/http;msgtype=response"
    ip: str | None = None
    extra: Headers = ()

    def block(self) -> bytes:
        if self.http is None:
            return self.body
        status, headers = self.http
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
        return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + self.body


def warc(message: Message) -> bytes:
    block = message.block()
    headers = [
        "WARC/1.1",
        f"WARC-Type: {message.record_type}",
        f"WARC-Record-ID: {message.record_id}",
        f"WARC-Date: {message.date}",
        f"Content-Type: {message.content_type}",
        f"Content-Length: {len(block)}",
    ]
    if message.url:
        headers.append(f"WARC-Target-URI: {message.url}")
    if message.ip:
        headers.append(f"WARC-IP-Address: {message.ip}")
    if message.http:
        headers.append(f"WARC-Payload-Digest: {_digest(message.body)}")
    headers += [f"{name}: {value}" for name, value in message.extra]
    return b"".join(("\r\n".join(headers).encode(), b"\r\n\r\n", block, b"\r\n\r\n"))


def arc(message: Message) -> bytes:
    """ARC 1: address, IP, date, type, length on one line; has no record ids and no other types."""
    block = message.block()
    headers = dict(message.http[1]) if message.http else {}
    kind = headers.get("Content-Type", "no-type").split(";")[0]
    date = "".join(c for c in message.date if c.isdigit())
    return f"{message.url} {message.ip or '0.0.0.0'} {date} {kind} {len(block)}\n".encode() + block + b"\n"


def arc_head(name: str, date: str) -> bytes:
    """The version block that an ARC file begins with."""
    block = b"1 0 gristmill\nURL IP-address Archive-date Content-type Archive-length\n\n"
    stamp = "".join(c for c in date if c.isdigit())
    return f"filedesc://{name} 0.0.0.0 {stamp} text/plain {len(block)}\n".encode() + block + b"\n"


def record_id(rng: Random) -> str:
    h = f"{rng.getrandbits(128):032x}"
    return f"<urn:uuid:{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}>"


def compressor(container: str) -> Callable[[bytes], bytes]:
    """Of one record; level 1, for there is much to write."""
    if container == "plain":
        return lambda record: record
    if container in ("zstd", "lz4"):
        return lambda record: _codec(container).compress(record, asbytes=True)
    return lambda record: zlib.compress(record, 1, zlib.MAX_WBITS | 16)


def suffix(container: str) -> str:
    return {
        "gzip": ".warc.gz",
        "plain": ".warc",
        "zstd": ".warc.zst",
        "lz4": ".warc.lz4",
        "arc": ".arc.gz",
        "wet": ".warc.wet.gz",
    }[container]


@cache
def _codec(name: str) -> pa.Codec:
    return pa.Codec(name)


_BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_PAIRS = [a + b for a in _BASE32 for b in _BASE32]


def _digest(data: bytes) -> str:
    """SHA-1 in base 32, ten times as fast as by `base64`."""
    number = int.from_bytes(hashlib.sha1(data).digest())
    return "sha1:" + "".join([_PAIRS[number >> shift & 1023] for shift in range(150, -1, -10)])
