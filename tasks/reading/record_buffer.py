"""A file's content around the record that is read: what of it is held, and the ways to the next record and back.

Where the file is damaged, the next record begins at the first place where a member begins that holds one.
"""

import re

from gristmill.tasks.reading.headers import (
    CONTROLS,
    HEAD,
    LINE,
    LINE_ENDS,
    RECORD_FOUND,
    WARC_FOUND,
    WARC_LINE,
    arc_line,
    begins_record,
    blanks_end,
    find_arc_line,
    head_end,
)
from gristmill.tasks.reading.members import DAMAGE, MAGIC, PIECE, Content, decoder, kind_of

# What must be known of a member to see whether a record begins in it: a block of zstd is at most 128 KiB.
_PROBE = 1 << 18
_MAGIC_OR_RECORD = re.compile(b"|".join((MAGIC.pattern, RECORD_FOUND.pattern)))


def find_member(content: Content, offset: int, stop: int | None = None) -> bool:
    """Go to the first place in the file, from `offset` on, where a member begins, and in it a record.

    A record that is not compressed is looked for only where no compressed one was met. False if there is none, at the
    file's end or 8 KiB after `stop`.
    """
    content.back(offset)
    signs = MAGIC if content.compressed else _MAGIC_OR_RECORD
    # what must be kept before a sign: an ARC line begins with its URL
    before = 8 if content.compressed else LINE
    position = seen = 0
    while stop is None or content.stored_offset + position < stop + before:
        sign = signs.search(content.data, position)
        if not sign:
            cut = max(0, len(content.data) - before)
            content.data, position = content.data[cut:], max(0, position - cut)
            if not (block := content.stored.read()):
                content.data = b""
                return False
            content.data += block
            continue
        if sign.start() > PIECE:
            cut = sign.start() - before
            content.data, position = content.data[cut:], before
            continue
        position = begin = sign.start()
        content.peek(position + _PROBE)
        if sign.lastgroup:
            line_end = content.data.find(b"\n", position, position + LINE)
            # a line with many signs is taken apart once
            new = content.stored_offset + line_end > seen
            begin = find_arc_line(content.data, 0, line_end) if line_end >= 0 and new else -1
            seen = max(seen, content.stored_offset + line_end)
        if begin >= 0 and _is_member(content, begin):
            content.back(content.stored_offset + begin)
            return True
        position += 1
    return False


def _is_member(content: Content, position: int) -> bool:
    """Whether a member begins there in the bytes ahead, and a record in it."""
    kind = kind_of(content.data[position : position + 4])
    if not kind:
        end = head_end(content.data, position, position + HEAD)
        return end is not None and not CONTROLS.search(content.data, position, end[0])
    probe = memoryview(content.data)[position : position + _PROBE]
    try:
        piece = decoder(kind, content.dictionary).decompress(probe, LINE)
    except DAMAGE:
        return False
    # a block of lz4 may be larger than what is looked at here
    return begins_record(piece) or (not piece and kind == "lz4" and len(probe) == _PROBE)


# How often a file may be wound back over more than a payload: so damage planted everywhere costs no more than this.
REWINDS = 64


class RecordBuffer:
    """A file's content around the place where it is read, `data[position:]`, which is at `base` in the content.

    A *segment* is a member, or several where records run over members' ends; it begins at `start` in the file and at
    `start_base` in the content. `end`: where in the file the one before it ended. `garbage`: where bytes began that are
    no member, if some lay between the two, else None. `members`: of how many the segment consists so far; `plain`: it
    is not compressed. `ahead`: the first piece of the next segment, if it was read already. `used`: a record of the
    segment was read. `warc`: a WARC record was met. `rewinds`: how often it may still be wound back. Holds what was
    asked for by `need`, and 1 MiB.
    """

    def __init__(self, content: Content) -> None:
        self.content = content
        self.data, self.position, self.base = b"", 0, 0
        self.start, self.start_base = content.stored.position, 0
        self.end = content.stored.position
        self.garbage: int | None = None
        self.members, self.plain = 0, False
        self.ahead: bytes | None = None
        self.used = False
        self.warc = False
        self.rewinds = REWINDS

    @property
    def offset(self) -> int:
        """The offset of the place in the file's content."""
        return self.base + self.position

    @property
    def segment_end(self) -> int:
        """Where in the file this segment ends, once all of it is in the buffer."""
        return self.content.stored_offset if self.ahead is None else self.end

    @property
    def whole(self) -> bool:
        """Whether the rest of the segment is in the buffer."""
        return self.content.ended or self.ahead is not None

    @property
    def alone(self) -> bool:
        """Whether the buffer is a whole and sound compressed member, of which nothing is used yet."""
        content = self.content
        whole = content.ended and not self.used and self.ahead is None and content.fault is None and self.members == 1
        return whole and not self.plain

    @property
    def broken(self) -> str | None:
        """Why the segment ends too early, known once all of it is in the buffer."""
        return self.content.fault if self.ahead is None else None

    def fill(self, size: int) -> int:
        """Bytes of the segment at the place, at least `size` if it has so many."""
        have = len(self.data) - self.position
        if have >= size or self.whole:
            return have
        pieces = [self.data[self.position :]] if have else []
        while have < size and (piece := self.content.pull()):
            pieces.append(piece)
            have += len(piece)
        self.base += self.position
        self.position = 0
        self.data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        return have

    def need(self, size: int) -> int:
        """The same as `fill`, but past the ends of members whose successor does not begin with a record."""
        have = self.fill(size)
        if have >= size:
            return have
        pieces = [self.data[self.position :]]
        while have < size and (joined := self._join()) is not None:
            piece = joined
            while piece:
                pieces.append(piece)
                have += len(piece)
                piece = self.content.pull() if have < size else b""
        if len(pieces) > 1:
            self.base += self.position
            self.position = 0
            self.data = b"".join(pieces)
        return have

    def skip(self, size: int) -> int:
        """Skip `size` bytes of content without holding them; returns how many there were."""
        skipped = 0
        while skipped < size and (have := self.need(1)):
            step = min(size - skipped, have)
            self.position += step
            skipped += step
        return skipped

    def skip_blanks(self) -> bool:
        """Skip empty lines; whether something follows in this segment."""
        if self.position < len(self.data) and self.data[self.position] not in LINE_ENDS:
            return True
        while True:
            self.position = blanks_end(self.data, self.position)
            if self.position < len(self.data):
                return True
            if not self.fill(1):
                return False

    def next(self) -> bool:
        """Go to the next segment; False at the end of the file.

        After a fault the file is looked through, from the damaged member's second byte on, for a member in which
        a record begins; so it is from where a member should begin and does not.
        """
        content = self.content
        self.base += len(self.data)
        self.data, self.position = b"", 0
        self.garbage = None
        if self.ahead is not None:
            self.data, self.ahead, has_segment = self.ahead, None, True
        elif content.fault:
            has_segment = find_member(content, content.member + 1)
            self.end = content.stored_offset
            has_segment = has_segment and content.open()
        else:
            self.end = content.stored_offset
            has_segment = content.open()
            if not has_segment and content.peek(1):
                self.garbage = content.stored_offset
                has_segment = find_member(content, self.garbage + 1) and content.open()
        self.start = content.member if has_segment else content.stored_offset
        self.start_base, self.members, self.used = self.base, 1, False
        self.plain = has_segment and content.kind == "plain"
        if has_segment:
            self.fill(1)
        else:
            content.ended, content.fault = True, None
        return has_segment

    def scan(self) -> bool:
        """Go to the next line in this segment that a record begins with; False if there is none."""
        lines = WARC_FOUND if self.warc else RECORD_FOUND
        while True:
            position, line_end = self.position, 0
            while match := lines.search(self.data, position):
                begin, position = match.start(), match.end()
                if match.lastgroup:
                    # a line with many signs is taken apart once
                    if position <= line_end:
                        continue
                    line_end = self.data.find(b"\n", position)
                    if line_end < 0:
                        break
                    begin = find_arc_line(self.data, self.position, line_end)
                if begin >= 0:
                    self.position = begin
                    return True
            if self.whole:
                self.position = len(self.data)
                return False
            self.position = max(self.position, len(self.data) - LINE)
            self.fill(len(self.data) - self.position + 1)

    def rewind(self, start: int, start_base: int, offset: int) -> bool:
        """Go back to a place in the content, in the segment at `start`; False once that was done too often."""
        if self.rewinds == 0:
            return False
        self.rewinds -= 1
        self.ahead = None
        if self.plain:
            self.content.resume_plain(start + offset - start_base)
            self.data, self.position, self.base = b"", 0, offset
            return True
        self.content.back(start)
        self.content.open()
        self.data, self.position, self.base = b"", 0, start_base
        self.start, self.start_base, self.members = start, start_base, 1
        self.skip(offset - start_base)
        return True

    def begins(self, size: int = 0) -> bool:
        """Whether a record begins after `size` bytes at the place."""
        self.fill(size + 16)
        if self.data.startswith(b"WARC/", self.position + size):
            self.warc |= bool(match := WARC_LINE.match(self.data, self.position + size))
            return match is not None
        self.fill(size + LINE)
        position = self.position + size
        return (size == 0 or self.data[position - 1] in LINE_ENDS) and arc_line(self.data, position) is not None

    def following(self, size: int) -> tuple[int, bool]:
        """How many bytes of empty lines follow `size` bytes at the place; whether more follows in the segment."""
        while True:
            start = self.position + size
            end = blanks_end(self.data, start)
            if end < len(self.data) or end - start > HEAD:
                return end - start, True
            if self.fill(end - self.position + 1) <= end - self.position:
                return end - start, False

    def _join(self) -> bytes | None:
        """The next member's first piece, now part of this segment; None if a record begins there, or no member."""
        content = self.content
        if content.fault or self.ahead is not None or not content.ended or self.plain:
            return None
        self.end = content.stored_offset
        if not content.open():
            return None
        piece = content.pull()
        while len(piece) < LINE and (more := content.pull()):
            piece += more
        if (not piece and content.fault) or begins_record(piece):
            self.ahead = piece
            return None
        self.members += 1
        return piece
