"""Digests that a crawler wrote beside a record, held against the record."""

import base64
import binascii
import hashlib
from collections.abc import Iterable

_LENGTHS = {"md5": 16, "sha1": 20, "sha256": 32, "sha384": 48, "sha512": 64}


def differs(written: bytes, contents: Iterable[bytes]) -> str | None:
    """What the digest is and should be, if it is that of none of `contents`; None for one that cannot be read.

    `written` is an algorithm, a colon, and the value in base 32 as the WARC standard shows it, or in hexadecimal, or
    in base 64.
    """
    name, _, value = written.decode("latin-1").partition(":")
    algorithm, value = name.strip().lower().replace("-", ""), value.strip()
    expected = _bytes(value, _LENGTHS.get(algorithm, 0))
    if expected is None:
        return None
    found = [hashlib.new(algorithm, content, usedforsecurity=False).digest() for content in contents]
    if expected in found:
        return None
    return f"{algorithm}:{expected.hex()} is written, {found[0].hex()} found"


def _bytes(value: str, length: int) -> bytes | None:
    """Of the readings of a value, the one that has the algorithm's length."""
    for read in (bytes.fromhex, lambda v: base64.b32decode(v + "=" * (-len(v) % 8), casefold=True), _base64):
        try:
            found = read(value)
        except (ValueError, binascii.Error):
            continue
        if found and len(found) == length:
            return found
    return None


def _base64(value: str) -> bytes:
    return base64.b64decode(value + "=" * (-len(value) % 4), altchars=b"-_")
