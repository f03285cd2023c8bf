"""The content of a file of compressed members, one after the other, as far as they are sound; and the
compressions of members, gzip, zstd and lz4, recognized by their first bytes, with one interface for all.

The file's bytes, local or remote, are read forwards with a way back.
"""

import re
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import IO, Protocol

import lz4.frame
from isal import isal_zlib

from gristmill.storage.remote import streams
from gristmill.storage.remote.config import RemoteIOConfig
from gristmill.tasks.reading.headers import LINE, begins_record

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd  # the same module, for earlier Pythons

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
        """Whether it can produce nothing more without more input."""

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


BLOCK = 1 << 16
# Bytes read last that are kept for the way back.
WINDOW = 8 << 20


def open_at(path: str, remote_io: RemoteIOConfig, offset: int) -> IO[bytes]:
    """A file, local or remote, to be read forwards from a place in it. Raises FileNotFoundError, RemoteIOError."""
    return streams.open_stream(path, remote_io, offset)


class Stored:
    """A file's bytes as they are stored, read forwards in blocks, with a way back.

    A block ends where one ends that is read from the file's beginning: what decoders are given at a time does not
    depend on `start`. `position`: where in the file the next block begins. The last 8 MiB are kept; from further back
    the file is opened again by `open_at(offset)`.
    """

    def __init__(self, open_at: Callable[[int], IO[bytes]], start: int = 0, block: int = BLOCK) -> None:
        self.open_at, self.block = open_at, block
        self.stream = open_at(start)
        self.position = start
        self.kept: deque[bytes] = deque()
        self.kept_bytes = 0
        self.again: deque[bytes] = deque()

    def read(self) -> bytes:
        """The next block, b"" at the file's end."""
        block = self.again.popleft() if self.again else self.stream.read(self.block - self.position % self.block)
        if block:
            self.position += len(block)
            self._keep(block)
        return block

    def _keep(self, block: bytes) -> None:
        self.kept.append(block)
        self.kept_bytes += len(block)
        while self.kept_bytes > WINDOW:
            self.kept_bytes -= len(self.kept.popleft())

    def back(self, offset: int) -> None:
        """The next block begins at `offset`, which was read before."""
        if offset < self.position - self.kept_bytes:
            self.close()
            self.stream = self.open_at(offset)
            self.kept.clear()
            self.again.clear()
            self.position, self.kept_bytes = offset, 0
        while self.position > offset:
            block = self.kept.pop()
            self.again.appendleft(block)
            self.position -= len(block)
            self.kept_bytes -= len(block)
        if over := offset - self.position:
            block = self.again.popleft()
            self.again.appendleft(block[over:])
            self._keep(block[:over])
            self.position = offset

    def close(self) -> None:
        self.stream.close()


PIECE = 1 << 20

_PADDING = b"\0 \t\r\n"
# Deflate notices damage late, often a block of its own after it, and text has no digest to compare: what so many bytes
# of the file before it held is not trusted.
_DOUBTFUL = 1 << 16
# Of content that is not given yet: 65 kB of a zstd file may unfold to gigabytes, which no text does.
MAX_HELD_BYTES = 128 << 20
# Bytes of a file that may be read a second time to learn what a damaged member held before the damage: so damage
# planted everywhere costs no more than this.
SALVAGE = 256 << 20


class Content:
    """A file's content, member by member.

    kind, member: of the member that is decoded (`gzip`, `zstd`, `lz4` or `plain`), and where in the file it begins.
    ended: it was decoded to its end, or to where it is damaged. fault: why it cannot be decoded on, else None; cut:
    because the file ends in it. compressed: a compressed member was met. dictionary: of a file of zstd members, and
    dictionary_at, where in the file the frame begins that holds it. salvage: bytes that may still be read a second
    time. data: bytes of the file ahead, not given to the decoder yet.
    """

    def __init__(self, stored: Stored) -> None:
        self.stored = stored
        self.data = b""
        self.member = stored.position
        self.kind = ""
        self.decoder: Decoder = decoder("plain", None)
        self.ended, self.cut, self.compressed = True, False, False
        self.fault: str | None = None
        self.dictionary: zstd.ZstdDict | None = None
        self.dictionary_at: int | None = None
        self.delivered = 0
        self.salvage = SALVAGE

    @property
    def stored_offset(self) -> int:
        """The offset of the next byte of the file that no decoder has taken."""
        return self.stored.position - len(self.data)

    def back(self, offset: int) -> None:
        """The next byte is that at `offset` of the file, which was read before."""
        self.stored.back(offset)
        self.data = b""

    def peek(self, size: int) -> bytes:
        """The file's next bytes, `size` of them if there are that many."""
        while len(self.data) < size and (block := self.stored.read()):
            self.data += block
        return self.data[:size]

    def open(self) -> bool:
        """Begin with the member that begins at the file's next byte; False if none does."""
        while SKIPPABLE.match(self.peek(8)):
            if not self._skip_frame():
                return False
        kind = kind_of(self.peek(4)) or ("plain" if begins_record(self.peek(LINE)) else "")
        if kind:
            self._begin(kind)
        return bool(kind)

    def resume_plain(self, offset: int) -> None:
        """Go on with the member that is not compressed, at `offset` of the file, which was read before."""
        self.back(offset)
        self.decoder, self.ended = decoder("plain", None), False

    def pull(self) -> bytes:
        """The next piece of the member's content; b"" at its end."""
        while not self.ended:
            if not self.data and self.decoder.needs_input:
                self.data = self.stored.read()
                if not self.data:
                    self.ended = True
                    if self.kind != "plain":
                        self.cut = True
                        self.fault = f"the file ends inside this {self.kind} member"
                    return b""
            data = self.data
            try:
                piece = self.decoder.decompress(data, PIECE)
            except DAMAGE as error:
                self.ended = True
                self.fault = f"this {self.kind} member is damaged: {error}"
                return self._before_damage(len(data))
            if self.decoder.eof:
                self.data = self.decoder.unused_data or b""
                self.ended = True
            else:
                self.data = b""
            if piece:
                self.delivered += len(piece)
                return piece
        return b""

    def pieces(self, end: int | None = None) -> Iterator[bytes]:
        """All content from here on, of any kind, without the zeros and blanks between and after the members. It ends
        before a member that begins at or after the byte `end` of the file.

        Raises OSError where a member is damaged, the file ends inside it or none begins, once what came before is
        given: before damage, but for what the last 64 KiB of the file and two blocks held. Holds these, at most
        MAX_HELD_BYTES bytes.
        """
        if not self.open():
            self._begin("plain")
        if end is not None and self.member >= end:
            return
        self.salvage = 0
        waiting: deque[tuple[int, bytes]] = deque()
        size = 0
        while True:
            while piece := self.pull():
                waiting.append((self.stored.position, piece))
                size += len(piece)
                while waiting and (waiting[0][0] <= self.stored.position - _DOUBTFUL or size > MAX_HELD_BYTES):
                    size -= len(waiting[0][1])
                    yield waiting.popleft()[1]
            if not self.fault or self.cut:
                yield from (piece for _, piece in waiting)
            waiting.clear()
            size = 0
            if self.fault:
                raise OSError(self.fault)
            if not self._skip_between():
                return
            if not self.open():
                raise OSError(f"no compressed member begins at byte {self.stored_offset}")
            if end is not None and self.member >= end:
                return

    def _skip_between(self) -> bool:
        """Skip zeros, blanks and frames without content; False at the file's end."""
        while True:
            while self.peek(1) and not (rest := self.data.lstrip(_PADDING)):
                self.data = b""
            if not self.data:
                return False
            self.data = rest
            if not (SKIPPABLE.match(self.peek(8)) and self._skip_frame()):
                return True

    def _begin(self, kind: str) -> None:
        self.kind, self.member, self.delivered = kind, self.stored_offset, 0
        self.compressed |= kind != "plain"
        self.decoder, self.ended, self.fault, self.cut = decoder(kind, self.dictionary), False, None, False
        if kind == "zstd" and self.dictionary is None and wants_dictionary(self.peek(FRAME_HEADER)):
            self.ended, self.fault = (
                True,
                "this zstd member needs a dictionary that the file does not begin with",
            )

    def _skip_frame(self) -> bool:
        """Skip a frame without content; False, and back where it began, if the file ends inside it."""
        begin = self.stored_offset
        size = int.from_bytes(self.data[4:8], "little")
        if self.data[:4] == DICTIONARY and self.dictionary is None and size <= MAX_DICTIONARY:
            self.dictionary = read_dictionary(self.peek(8 + size)[8:])
            self.dictionary_at = begin if self.dictionary else None
        remaining_bytes = 8 + size
        while remaining_bytes and (step := min(remaining_bytes, len(self.peek(1) and self.data))):
            self.data = self.data[step:]
            remaining_bytes -= step
        if remaining_bytes:
            self.back(begin)
        return not remaining_bytes

    def _before_damage(self, failing: int) -> bytes:
        """What the bytes on which the decoder failed held before the damage.

        The member is decoded a second time, the last `failing` bytes one by one.
        """
        failed, end = self.stored.position - failing, self.stored.position
        self.data = b""
        if end - self.member > self.salvage:
            return b""
        self.salvage -= end - self.member
        self.stored.back(self.member)
        again, passed, position = decoder(self.kind, self.dictionary), 0, self.member
        pieces: list[bytes] = []
        while position < end and (block := self.stored.read()):
            fast = block[: max(0, failed - position)]
            slow = block[len(fast) : end - position]
            position += len(block)
            for part in (fast, *(slow[i : i + 1] for i in range(len(slow)))):
                while part or not again.needs_input:
                    try:
                        piece = again.decompress(part, PIECE)
                    except DAMAGE:
                        return b"".join(pieces)
                    part = b""
                    passed += len(piece)
                    if passed > self.delivered:
                        pieces.append(piece[-min(len(piece), passed - self.delivered) :])
        return b"".join(pieces)


@contextmanager
def open_content(path: str, remote_io: RemoteIOConfig, start: int = 0) -> Iterator[Content]:
    """The content of a file, local or remote, from byte `start` of it on."""
    stored = Stored(partial(open_at, path, remote_io), start)
    try:
        yield Content(stored)
    finally:
        stored.close()
