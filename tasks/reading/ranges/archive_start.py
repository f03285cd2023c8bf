"""Where the reading of a range of an archive begins and ends: at records that a look at their beginning finds for
sure."""

from collections.abc import Iterator
from contextlib import contextmanager

from gristmill.storage.remote import streams
from gristmill.storage.remote.config import RemoteIOConfig
from gristmill.tasks.reading.decoders import SKIPPABLE, kind_of
from gristmill.tasks.reading.headers import CONTROLS, HEAD, LINE, WARC_FOUND, arc_line, begins_record, head_end
from gristmill.tasks.reading.members import SALVAGE, Content, open_content
from gristmill.tasks.reading.ranges.plan import EMPTY, Range, RangeRead, Resume
from gristmill.tasks.reading.record_buffer import REWINDS, RecordBuffer, find_member

_FIRST = Resume(0, 0, False, None, REWINDS, SALVAGE)


@contextmanager
def open_range(path: str, remote_io: RemoteIOConfig, part: Range) -> Iterator[tuple[RecordBuffer, Resume] | None]:
    """The content of a file from the first record on that begins in a range, and how the reading begins; None if no
    record begins there.

    Of a remote file the range is fetched, up to the end of its last record, two blocks and 512 KiB, and the first 8
    KiB.
    """
    if part == EMPTY:
        yield None
    elif resume := part.resume or (None if part.begin else _FIRST):
        with open_content(path, remote_io, resume.at) as content:
            set_dictionary(path, remote_io, content, resume.dictionary)
            buffer = RecordBuffer(content)
            content.salvage, buffer.rewinds = resume.salvage, resume.rewinds
            buffer.base, buffer.warc = resume.base, resume.warc
            yield buffer, resume
    else:
        compressed, dictionary = known_of(path, remote_io)
        # an ARC line is found by its end
        with open_content(path, remote_io, part.begin if compressed else max(0, part.begin - LINE)) as content:
            content.compressed = compressed
            set_dictionary(path, remote_io, content, dictionary)
            if not _find(content, part):
                yield None
                return
            buffer = RecordBuffer(content)
            buffer.next()
            yield buffer, _resume(buffer)


def knows_content(part: Range) -> bool:
    """Whether the place of the range in the file's content is known."""
    return part.begin == 0 or part.resume is not None


def ended(buffer: RecordBuffer, part: Range, first: Resume, complete: bool) -> RangeRead:
    """How a range was read, of which the last record was read, or that was left before."""
    is_past_end = complete and part.end is not None and is_behind(buffer, part.end)
    used = first.rewinds - buffer.rewinds, first.salvage - buffer.content.salvage
    return RangeRead(first, _resume(buffer) if is_past_end else None, complete, *used)


def known_of(path: str, remote_io: RemoteIOConfig) -> tuple[bool, int | None]:
    """Whether the file begins with a compressed member, and where the dictionary of its members is."""
    head = streams.fetch(path, 0, LINE, remote_io)
    if not SKIPPABLE.match(head):
        return bool(kind_of(head)), None
    with open_content(path, remote_io) as content:
        content.open()
        return content.compressed, content.dictionary_at


def set_dictionary(path: str, remote_io: RemoteIOConfig, content: Content, offset: int | None) -> None:
    """Have the content's zstd members decoded by the dictionary in the frame that begins at this place of the file."""
    if offset is not None:
        with open_content(path, remote_io, offset) as whole:
            whole.open()
            content.dictionary, content.dictionary_at = whole.dictionary, offset


def _find(content: Content, part: Range) -> bool:
    """Go to the first member in the range that holds a record; False if there is none."""
    offset = content.stored_offset
    while find_member(content, offset, part.end):
        offset = content.stored_offset
        if offset >= part.begin:
            return part.end is None or offset < part.end
        offset += 1
    return False


def _resume(buffer: RecordBuffer) -> Resume:
    """How to go on at a segment of which nothing is used yet, or, in one that is not compressed, at a record's
    beginning."""
    content = buffer.content
    buffer.skip_blanks()
    warc = buffer.warc or buffer.data.startswith(b"WARC/", buffer.position)
    offset, base = (_stored(buffer), buffer.offset) if buffer.plain else (buffer.start, buffer.start_base)
    return Resume(offset, base, warc, content.dictionary_at, buffer.rewinds, content.salvage)


def is_behind(buffer: RecordBuffer, end: int) -> bool:
    """Whether the place is a record's beginning behind the range that ends there, where another job finds it too.

    Else the record, or what is damaged, belongs to the range that is read: what comes next is looked for from there.
    """
    if buffer.plain:
        return _stored(buffer) >= end and buffer.skip_blanks() and _begins_for_sure(buffer)
    if buffer.start < end or buffer.used:
        return False
    if buffer.fill(LINE) < LINE and buffer.broken:
        return False
    return begins_record(buffer.data[buffer.position : buffer.position + LINE])


def _stored(buffer: RecordBuffer) -> int:
    return buffer.start + buffer.offset - buffer.start_base


def _begins_for_sure(buffer: RecordBuffer) -> bool:
    """As `find_member` finds a record that is not compressed."""
    buffer.fill(HEAD)
    data, position = buffer.data, buffer.position
    if not WARC_FOUND.match(data, position) and arc_line(data, position) is None:
        return False
    end = head_end(data, position, position + HEAD)
    return end is not None and not CONTROLS.search(data, position, end[0])
