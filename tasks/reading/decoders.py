"""The compressions of members, gzip, zstd and lz4, recognised by their first bytes, with one interface for all."""

import re
from typing import Protocol

import lz4.frame
from backports import zstd
from isal import isal_zlib

# Where a member of any kind begins.
MAGIC = re.compile(rb"\x1f\x8b\x08[\x00-\x1f]|\x28\xb5\x2f\xfd|\x04\x22\x4d\x18")
# Frames that hold no content; the first one holds the dictionary of a file of zstd members
# (RFC 8878, 3.1.2; iipc.github.io/warc-specifications/specifications/warc-zstd).
SKIPPABLE = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18")
DICTIONARY = b"\x5d\x2a\x4d\x18"
MAX_DICTIONARY = 64 << 20
# A zstd frame's header is at most so long.
FRAME_HEADER = 18

_GZIP_ERROR: type[Exception] = isal_zlib.error  # type: ignore[assignment]  # its stub has an instance
# What decoders raise for bytes that are damaged.
DAMAGE = (_GZIP_ERROR, zstd.ZstdError, RuntimeError, ValueError, EOFError)


class Decoder(Protocol):
    """Decodes one member. `decompress` gives at most `size` bytes; what it has not used yet it keeps."""

    def decompress(self, data: bytes | memoryview, size: int) -> bytes: ...

    @property
    def needs_input(self) -> bool:
        """Nothing more comes out of what it has."""

    @property
    def eof(self) -> bool:
        """The member has ended; `unused_data` follows it."""

    @property
    def unused_data(self) -> bytes: ...


class _Gzip:
    """isal's gzip decoder with the interface of the others."""

    def __init__(self) -> None:
        self.inner = isal_zlib.decompressobj(31)
        self.tail = b""

    def decompress(self, data: bytes | memoryview, size: int) -> bytes:
        piece = self.inner.decompress(self.tail + data if self.tail else data, size)
        self.tail = self.inner.unconsumed_tail
        return piece

    @property
    def needs_input(self) -> bool:
        return not self.tail

    @property
    def eof(self) -> bool:
        return self.inner.eof

    @property
    def unused_data(self) -> bytes:
        return self.inner.unused_data


class _Plain:
    """What is not compressed is one member that ends with the file."""

    needs_input, eof, unused_data = True, False, b""

    def decompress(self, data: bytes | memoryview, size: int) -> bytes:
        return bytes(data)


def kind_of(data: bytes) -> str:
    """`gzip`, `zstd` or `lz4`, by the first four bytes of a member; "" for other bytes."""
    if data[:3] == b"\x1f\x8b\x08" and data[3:4] < b"\x20":
        return "gzip"
    return {b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4"}.get(data[:4], "")


def decoder(kind: str, dictionary: zstd.ZstdDict | None) -> Decoder:
    """A decoder for one member; `kind`: of `kind_of`, or `plain`; `dictionary`: of a file of zstd members."""
    match kind:
        case "gzip":
            return _Gzip()
        case "zstd":
            return zstd.ZstdDecompressor(dictionary)
        case "lz4":
            return lz4.frame.LZ4FrameDecompressor()
        case _:
            return _Plain()


def wants_dictionary(data: bytes) -> bool:
    """Whether these bytes begin a zstd member that cannot be read without the dictionary of its file."""
    try:
        return kind_of(data) == "zstd" and zstd.get_frame_info(data).dictionary_id != 0
    except zstd.ZstdError:
        return False


def read_dictionary(frame: bytes) -> zstd.ZstdDict | None:
    """The dictionary in a frame's content, which may be compressed itself; None if it is damaged."""
    try:
        if kind_of(frame) == "zstd":
            frame = zstd.ZstdDecompressor().decompress(frame, MAX_DICTIONARY)
        return zstd.ZstdDict(frame)
    except DAMAGE:
        return None
