"""The content of a file of compressed members, one after the other, and the way on from a damaged one."""

import io
import re
from collections import deque
from collections.abc import Callable, Iterator
from typing import IO

import lz4.frame
from backports import zstd
from isal import isal_zlib

from storage.remote import streams
from storage.remote.config import RemoteIOConfig
from tasks.reading.headers import ARC_SIGN, HEAD, LINE, WARC_FOUND, WARC_LINE, arc_line, find_arc_line, head_end

BLOCK = 1 << 16
PIECE = 1 << 20
WINDOW = 8 << 20

# What must be known of a member to tell whether a record begins in it: a block of zstd is at most 128 KiB.
_PROBE = 1 << 18
_MAGIC = re.compile(rb"\x1f\x8b\x08[\x00-\x1f]|\x28\xb5\x2f\xfd|\x04\x22\x4d\x18")
_LINES = re.compile(b"|".join((WARC_FOUND.pattern, ARC_SIGN.pattern)))
_PADDING = b"\0 \t\r\n"
_BLANKS = re.compile(rb"[\r\n]*")
_LINE_ENDS = b"\r\n"
_CONTROLS = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
# Frames that hold no content; the dictionary of a file of zstd members lies in the first one
# (RFC 8878, 3.1.2; iipc.github.io/warc-specifications/specifications/warc-zstd).
_SKIPPABLE = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18")
_DICTIONARY = b"\x5d\x2a\x4d\x18"
_MAX_DICTIONARY = 64 << 20
_FRAME_HEADER = 18

# Deflate notices damage late, often a block of its own after it, and text has no digest to tell: what so many bytes of
# the file before it held is not trusted.
_DOUBTFUL = 1 << 16

# Bytes of a file that may be read a second time to learn what a damaged member held before the damage, and
# how often a file may be wound back over more than a payload: so damage planted everywhere costs no more than this.
_SALVAGE = 256 << 20
_REWINDS = 64


def open_at(path: str, remote_io: RemoteIOConfig, offset: int) -> IO[bytes]:
    """A file, local or remote, to be read forwards from a place in it."""
    if offset == 0:
        return streams.open_stream(path, remote_io)
    stream = streams.open_ranges(path, remote_io)
    stream.seek(offset)
    return io.BufferedReader(stream, remote_io.block_bytes) if isinstance(stream, io.RawIOBase) else stream


class Stored:
    """A file's bytes as they are stored, read forwards in blocks, with a way back.

    The last 8 MiB are kept; from further back the file is opened again by `open_at(offset)`.
    """

    def __init__(self, open_at: Callable[[int], IO[bytes]], start: int = 0, block: int = BLOCK):
        self.open_at, self.block = open_at, block
        self.stream = open_at(start)
        self.at = start
        self.kept: deque[bytes] = deque()
        self.kept_bytes = 0
        self.again: deque[bytes] = deque()

    def read(self) -> bytes:
        """The next block, b"" at the file's end."""
        block = self.again.popleft() if self.again else self.stream.read(self.block)
        if block:
            self.at += len(block)
            self._keep(block)
        return block

    def _keep(self, block: bytes) -> None:
        self.kept.append(block)
        self.kept_bytes += len(block)
        while self.kept_bytes > WINDOW:
            self.kept_bytes -= len(self.kept.popleft())

    def back(self, offset: int) -> None:
        """The next block begins at `offset`, which was read before."""
        if offset < self.at - self.kept_bytes:
            self.close()
            self.stream = self.open_at(offset)
            self.kept.clear()
            self.again.clear()
            self.at, self.kept_bytes = offset, 0
        while self.at > offset:
            block = self.kept.pop()
            self.again.appendleft(block)
            self.at -= len(block)
            self.kept_bytes -= len(block)
        if over := offset - self.at:
            block = self.again.popleft()
            self.again.appendleft(block[over:])
            self._keep(block[:over])
            self.at = offset

    def close(self) -> None:
        self.stream.close()


class _Gzip:
    """isal's gzip decoder with the interface of the others."""

    def __init__(self):
        self.inner = isal_zlib.decompressobj(31)
        self.tail = b""

    def decompress(self, data: bytes, size: int) -> bytes:
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

    def decompress(self, data: bytes, size: int) -> bytes:
        return data


_DECODERS = {"gzip": _Gzip, "lz4": lz4.frame.LZ4FrameDecompressor, "plain": _Plain}
_DAMAGE = (isal_zlib.error, zstd.ZstdError, RuntimeError, ValueError, EOFError)


class Content:
    """A file's content around the place where it is read, `buffer[position:]`.

    A *segment* is a member, or several where records run over members' ends; it begins at `start` in the file and
    at `start_base` in the content. `end`: where in the file the one before it ended. `garbage`: where bytes began
    that are no member, if some lay between the two, else None. Holds what was asked for by `need`, and 1 MiB.
    """

    def __init__(self, stored: Stored):
        self.stored = stored
        self.data = b""
        self.buffer, self.position, self.base = b"", 0, 0
        self.start, self.start_base = stored.at, 0
        self.member = stored.at
        self.kind, self.decoder = "", None
        self.used = False
        self.ended, self.fault, self.cut = True, None, False
        self.garbage: int | None = None
        self.end = stored.at
        self.members = 0
        self.compressed = False
        self.warc = False
        self.dictionary: zstd.ZstdDict | None = None
        self.ahead: bytes | None = None
        self.delivered = 0
        self.salvage, self.rewinds = _SALVAGE, _REWINDS

    @property
    def offset(self) -> int:
        """Of the place in the file's content."""
        return self.base + self.position

    @property
    def stored_offset(self) -> int:
        """Of the next byte of the file that no decoder has taken."""
        return self.stored.at - len(self.data)

    @property
    def segment_end(self) -> int:
        """Where in the file this segment ends, once all of it is in the buffer."""
        return self.stored_offset if self.ahead is None else self.end

    @property
    def whole(self) -> bool:
        """Whether the rest of the segment is in the buffer."""
        return self.ended or self.ahead is not None

    @property
    def alone(self) -> bool:
        """Whether the buffer is a whole and sound compressed member, of which nothing is used yet."""
        return self.ended and not self.used and self.ahead is None and self.fault is None and self.members == 1

    @property
    def broken(self) -> str | None:
        """Why the segment ends too early, known once all of it is in the buffer."""
        return self.fault if self.ahead is None else None

    def fill(self, size: int) -> int:
        """Bytes of the segment at the place, at least `size` if it has so many."""
        have = len(self.buffer) - self.position
        if have >= size or self.whole:
            return have
        pieces = [self.buffer[self.position :]] if have else []
        while have < size and (piece := self._pull()):
            pieces.append(piece)
            have += len(piece)
        self.base += self.position
        self.position = 0
        self.buffer = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        return have

    def need(self, size: int) -> int:
        """As `fill`, but on over the ends of members whose successor begins with no record."""
        have = self.fill(size)
        if have >= size:
            return have
        pieces = [self.buffer[self.position :]]
        while have < size and (piece := self._join()) is not None:
            while piece:
                pieces.append(piece)
                have += len(piece)
                piece = self._pull() if have < size else b""
        if len(pieces) > 1:
            self.base += self.position
            self.position = 0
            self.buffer = b"".join(pieces)
        return have

    def skip(self, size: int) -> int:
        """Pass over so many bytes of content without holding them; how many there were."""
        passed = 0
        while passed < size and (have := self.need(1)):
            step = min(size - passed, have)
            self.position += step
            passed += step
        return passed

    def blanks(self) -> bool:
        """Pass over empty lines; whether something follows in this segment."""
        if self.position < len(self.buffer) and self.buffer[self.position] not in _LINE_ENDS:
            return True
        while True:
            self.position = _BLANKS.match(self.buffer, self.position).end()
            if self.position < len(self.buffer):
                return True
            if not self.fill(1):
                return False

    def next(self) -> bool:
        """Go to the next segment; False at the end of the file.

        After a fault the file is looked through, from the damaged member's second byte on, for a member in which
        a record begins; so it is from where a member should begin and does not.
        """
        self.base += len(self.buffer)
        self.buffer, self.position = b"", 0
        self.garbage = None
        if self.ahead is not None:
            self.buffer, self.ahead, found = self.ahead, None, True
        elif self.fault:
            found = self._find(self.member + 1)
            self.end = self.stored_offset
            found = found and self._open()
        else:
            self.end = self.stored_offset
            found = self._open()
            if not found and self._peek(1):
                self.garbage = self.stored_offset
                found = self._find(self.garbage + 1) and self._open()
        self.start = self.member if found else self.stored_offset
        self.start_base, self.members, self.used = self.base, 1, False
        if found:
            self.fill(1)
        else:
            self.ended, self.fault = True, None
        return found

    def scan(self) -> bool:
        """Go to the next line in this segment that a record begins with; False if there is none."""
        lines = WARC_FOUND if self.warc else _LINES
        while True:
            at, line_end = self.position, 0
            while found := lines.search(self.buffer, at):
                begin, at = found.start(), found.end()
                if found.lastgroup:
                    # a line with many signs is taken apart once
                    if at <= line_end:
                        continue
                    line_end = self.buffer.find(b"\n", at)
                    if line_end < 0:
                        break
                    begin = find_arc_line(self.buffer, self.position, line_end)
                if begin >= 0:
                    self.position = begin
                    return True
            if self.whole:
                self.position = len(self.buffer)
                return False
            self.position = max(self.position, len(self.buffer) - LINE)
            self.fill(len(self.buffer) - self.position + 1)

    def rewind(self, start: int, start_base: int, offset: int) -> bool:
        """Go back to a place in the content, in the segment at `start`; False once that was done too often."""
        if self.rewinds == 0:
            return False
        self.rewinds -= 1
        self.data, self.ahead = b"", None
        if self.kind == "plain":
            self.stored.back(start + offset - start_base)
            self.decoder, self.ended = self._decoder(), False
            self.buffer, self.position, self.base = b"", 0, offset
            return True
        self.stored.back(start)
        self._open()
        self.buffer, self.position, self.base = b"", 0, start_base
        self.start, self.start_base, self.members = start, start_base, 1
        self.skip(offset - start_base)
        return True

    def begins(self, size: int = 0) -> bool:
        """Whether a record begins after `size` bytes at the place."""
        self.fill(size + 16)
        if self.buffer.startswith(b"WARC/", self.position + size):
            self.warc |= bool(found := WARC_LINE.match(self.buffer, self.position + size))
            return found is not None
        self.fill(size + LINE)
        at = self.position + size
        return (size == 0 or self.buffer[at - 1] in _LINE_ENDS) and arc_line(self.buffer, at) is not None

    def following(self, size: int) -> tuple[int, bool]:
        """How many bytes of empty lines lie after `size` bytes at the place; whether more follows in the segment."""
        while True:
            start = self.position + size
            end = _BLANKS.match(self.buffer, start).end()
            if end < len(self.buffer) or end - start > HEAD:
                return end - start, True
            if self.fill(end - self.position + 1) <= end - self.position:
                return end - start, False

    def _join(self) -> bytes | None:
        """The next member's first piece, now part of this segment; None if a record begins there, or no member."""
        if self.fault or self.ahead is not None or not self.ended or self.kind == "plain":
            return None
        self.end = self.stored_offset
        if not self._open():
            return None
        piece = self._pull()
        if (not piece and self.fault) or _begins(piece):
            self.ahead = piece
            return None
        self.members += 1
        return piece

    def _pull(self) -> bytes:
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
            except _DAMAGE as error:
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

    def _before_damage(self, failing: int) -> bytes:
        """What the bytes on which the decoder failed held before the damage.

        The member is decoded a second time, the last `failing` bytes one by one.
        """
        failed, end = self.stored.at - failing, self.stored.at
        self.data = b""
        if end - self.member > self.salvage:
            return b""
        self.salvage -= end - self.member
        self.stored.back(self.member)
        decoder, passed, pieces, at = self._decoder(), 0, [], self.member
        while at < end and (block := self.stored.read()):
            again = block[: max(0, failed - at)]
            slowly = block[len(again) : end - at]
            at += len(block)
            for part in (again, *(slowly[i : i + 1] for i in range(len(slowly)))):
                while part or not decoder.needs_input:
                    try:
                        piece = decoder.decompress(part, PIECE)
                    except _DAMAGE:
                        return b"".join(pieces)
                    part = b""
                    passed += len(piece)
                    if passed > self.delivered:
                        pieces.append(piece[-min(len(piece), passed - self.delivered) :])
        return b"".join(pieces)

    def pieces(self) -> Iterator[bytes]:
        """All content from here on, of whatever kind, without the zeros and blanks between and behind the members.

        Raises OSError where a member is damaged, the file ends inside it or none begins, once what came before is
        given: before damage, but for what the last 64 KiB of the file and two blocks held. Holds these.
        """
        if not self._open():
            self._begin("plain")
        self.salvage = 0
        held: deque[tuple[int, bytes]] = deque()
        while True:
            while piece := self._pull():
                held.append((self.stored.at, piece))
                while held[0][0] <= self.stored.at - _DOUBTFUL:
                    yield held.popleft()[1]
            if not self.fault or self.cut:
                yield from (piece for _, piece in held)
            held.clear()
            if self.fault:
                raise OSError(self.fault)
            while self._peek(1) and not (rest := self.data.lstrip(_PADDING)):
                self.data = b""
            if not self.data:
                return
            self.data = rest
            if not self._open():
                raise OSError(f"no compressed member begins at byte {self.stored_offset}")

    def _peek(self, size: int) -> bytes:
        """The file's next bytes, `size` of them if there are so many."""
        while len(self.data) < size and (block := self.stored.read()):
            self.data += block
        return self.data[:size]

    def _open(self) -> bool:
        """Begin with the member that begins at the file's next byte; False if none does."""
        while _SKIPPABLE.match(self._peek(8)):
            if not self._pass_over():
                return False
        kind = _kind(self._peek(4)) or ("plain" if _begins(self._peek(LINE)) else "")
        if kind:
            self._begin(kind)
        return bool(kind)

    def _begin(self, kind: str) -> None:
        self.kind, self.member, self.delivered = kind, self.stored_offset, 0
        self.compressed |= kind != "plain"
        self.decoder, self.ended, self.fault, self.cut = self._decoder(), False, None, False
        if kind == "zstd" and self.dictionary is None and wants_dictionary(self._peek(_FRAME_HEADER)):
            self.ended, self.fault = True, "this zstd member needs a dictionary that the file does not begin with"

    def _pass_over(self) -> bool:
        """Pass over a frame without content; False, and back where it began, if the file ends inside it."""
        at = self.stored_offset
        size = int.from_bytes(self.data[4:8], "little")
        if self.data[:4] == _DICTIONARY and self.dictionary is None and size <= _MAX_DICTIONARY:
            self._learn(self._peek(8 + size)[8:])
        left = 8 + size
        while left and (step := min(left, len(self._peek(1) and self.data))):
            self.data = self.data[step:]
            left -= step
        if left:
            self.stored.back(at)
            self.data = b""
        return not left

    def _learn(self, dictionary: bytes) -> None:
        try:
            if _kind(dictionary) == "zstd":
                dictionary = zstd.ZstdDecompressor().decompress(dictionary, _MAX_DICTIONARY)
            self.dictionary = zstd.ZstdDict(dictionary)
        except _DAMAGE:
            self.dictionary = None

    def _decoder(self):
        if self.kind == "zstd":
            return zstd.ZstdDecompressor(self.dictionary)
        return _DECODERS[self.kind]()

    def _find(self, offset: int) -> bool:
        """Go to the first place in the file, from `offset` on, where a member begins, and in it a record.

        A record that is not compressed is looked for only where no compressed one was met.
        """
        self.stored.back(offset)
        self.data = b""
        signs = _MAGIC if self.compressed else re.compile(b"|".join((_MAGIC.pattern, _LINES.pattern)))
        # what must be kept before a sign: an ARC line begins with its URL
        before = 8 if self.compressed else LINE
        at = seen = 0
        while True:
            sign = signs.search(self.data, at)
            if not sign:
                cut = max(0, len(self.data) - before)
                self.data, at = self.data[cut:], max(0, at - cut)
                if not (block := self.stored.read()):
                    self.data = b""
                    return False
                self.data += block
                continue
            if sign.start() > PIECE:
                cut = sign.start() - before
                self.data, at = self.data[cut:], before
                continue
            at = begin = sign.start()
            self._peek(at + _PROBE)
            if sign.lastgroup:
                line_end = self.data.find(b"\n", at, at + LINE)
                # a line with many signs is taken apart once
                new = self.stored_offset + line_end > seen
                begin = find_arc_line(self.data, 0, line_end) if line_end >= 0 and new else -1
                seen = max(seen, self.stored_offset + line_end)
            if begin >= 0 and self._is_member(begin):
                self.stored.back(self.stored_offset + begin)
                self.data = b""
                return True
            at += 1

    def _is_member(self, at: int) -> bool:
        """Whether a member begins there in the bytes ahead, and a record in it."""
        self.kind = _kind(self.data[at : at + 4]) or "plain"
        if self.kind == "plain":
            end = head_end(self.data, at, at + HEAD)
            return end is not None and not _CONTROLS.search(self.data, at, end[0])
        probe = memoryview(self.data)[at : at + _PROBE]
        try:
            piece = self._decoder().decompress(probe, LINE)
        except _DAMAGE:
            return False
        # a block of lz4 may be larger than what is looked at here
        return _begins(piece) or (not piece and self.kind == "lz4" and len(probe) == _PROBE)


def wants_dictionary(data: bytes) -> bool:
    """Whether these bytes begin a zstd member that cannot be read without the dictionary of its file."""
    try:
        return _kind(data) == "zstd" and zstd.get_frame_info(data).dictionary_id != 0
    except zstd.ZstdError:
        return False


def dictionary(stored: Stored) -> zstd.ZstdDict | None:
    """The dictionary that a file of zstd members begins with."""
    content = Content(stored)
    content.next()
    return content.dictionary


def _kind(data: bytes) -> str:
    if data[:3] == b"\x1f\x8b\x08" and data[3:4] < b"\x20":
        return "gzip"
    return {b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4"}.get(data[:4], "")


def _begins(data: bytes) -> bool:
    """Whether content begins with a record, empty lines aside."""
    at = _BLANKS.match(data).end()
    return bool(WARC_LINE.match(data, at) or arc_line(data, at))
