"""The next member of a damaged file: the first place where one begins, and in it a record."""

import re

from gristmill.tasks.reading.decoders import DAMAGE, MAGIC, decoder, kind_of
from gristmill.tasks.reading.headers import CONTROLS, HEAD, LINE, RECORD_FOUND, begins_record, find_arc_line, head_end
from gristmill.tasks.reading.members import PIECE, Content

# What must be known of a member to see whether a record begins in it: a block of zstd is at most 128 KiB.
_PROBE = 1 << 18
_MAGIC_OR_RECORD = re.compile(b"|".join((MAGIC.pattern, RECORD_FOUND.pattern)))


def find_member(content: Content, offset: int) -> bool:
    """Go to the first place in the file, from `offset` on, where a member begins, and in it a record.

    A record that is not compressed is looked for only where no compressed one was met. False, at the file's end, if
    there is none.
    """
    content.back(offset)
    signs = MAGIC if content.compressed else _MAGIC_OR_RECORD
    # what must be kept before a sign: an ARC line begins with its URL
    before = 8 if content.compressed else LINE
    at = seen = 0
    while True:
        sign = signs.search(content.data, at)
        if not sign:
            cut = max(0, len(content.data) - before)
            content.data, at = content.data[cut:], max(0, at - cut)
            if not (block := content.stored.read()):
                content.data = b""
                return False
            content.data += block
            continue
        if sign.start() > PIECE:
            cut = sign.start() - before
            content.data, at = content.data[cut:], before
            continue
        at = begin = sign.start()
        content.peek(at + _PROBE)
        if sign.lastgroup:
            line_end = content.data.find(b"\n", at, at + LINE)
            # a line with many signs is taken apart once
            new = content.stored_offset + line_end > seen
            begin = find_arc_line(content.data, 0, line_end) if line_end >= 0 and new else -1
            seen = max(seen, content.stored_offset + line_end)
        if begin >= 0 and _is_member(content, begin):
            content.back(content.stored_offset + begin)
            return True
        at += 1


def _is_member(content: Content, at: int) -> bool:
    """Whether a member begins there in the bytes ahead, and a record in it."""
    kind = kind_of(content.data[at : at + 4])
    if not kind:
        end = head_end(content.data, at, at + HEAD)
        return end is not None and not CONTROLS.search(content.data, at, end[0])
    probe = memoryview(content.data)[at : at + _PROBE]
    try:
        piece = decoder(kind, content.dictionary).decompress(probe, LINE)
    except DAMAGE:
        return False
    # a block of lz4 may be larger than what is looked at here
    return begins_record(piece) or (not piece and kind == "lz4" and len(probe) == _PROBE)
