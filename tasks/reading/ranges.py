"""Ranges of a file: where the reading of a range begins and ends, in archives and in files of lines.

In an archive a range begins with a record that is recognized by its first bytes. A file of lines is compressed in
members, or not at all, and is divided where lines begin.

A line's number counts the lines before it, and members do not record how many they have. So the lines of all ranges are
counted first, each range by its own job. From these counts `divide` computes where each range begins, with which line,
and how much of the content it has. A range has the lines that begin in its content, the last one to its end.

What looks like the beginning of a member may be inside another. So each count says where it began and where the next
one has to: from the first range on that does not fit, one job reads all that is left of the file.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from gristmill.storage.remote import streams
from gristmill.storage.remote.config import RemoteIOConfig
from gristmill.tasks.engine.options import current
from gristmill.tasks.reading.headers import CONTROLS, HEAD, LINE, WARC_FOUND, arc_line, begins_record, head_end
from gristmill.tasks.reading.listing import Shard
from gristmill.tasks.reading.members import (
    MAGIC,
    PIECE,
    SALVAGE,
    SKIPPABLE,
    Content,
    Stored,
    kind_of,
    open_at,
    open_content,
)
from gristmill.tasks.reading.range_plan import EMPTY, LineStart, Range, RangeRead, Resume
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
    """Whether the place is the beginning of a record after the range that ends there, which another job also finds.

    Otherwise the record, or the damage, belongs to this range, and the search for the next record continues from there.
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
    """Whether a record that is not compressed begins here, as `find_member` detects it."""
    buffer.fill(HEAD)
    data, position = buffer.data, buffer.position
    if not WARC_FOUND.match(data, position) and arc_line(data, position) is None:
        return False
    end = head_end(data, position, position + HEAD)
    return end is not None and not CONTROLS.search(data, position, end[0])


# Small, as what it holds is lost where a file is damaged.
_BLOCK = 1 << 13
_MAGIC_BYTES = 4


@dataclass(frozen=True)
class LineCount:
    """The contents of a range. `first`: where in the file its first member begins, or the range itself if the file is
    not compressed; None if no member does. `next`: where the next range must begin; None at the end. `bytes`, `lines`:
    of its content, and ends of lines in it; `within`: it ends within a line. `whole`: it was not counted to its end,
    since its last member is as long as many ranges, so one job must read the rest of the file."""

    first: int | None = None
    next: int | None = None
    bytes: int = 0
    lines: int = 0
    within: bool = False
    whole: bool = False


def count_lines(folder: str, number: int, source: str, source_files: tuple[Shard, ...]) -> dict[str, Any]:
    """The LineCount of the range of a job's one file. Holds two pieces of 1 MiB."""
    (file,) = source_files
    assert file.part is not None, "files that are read whole are not counted"
    return asdict(count(file.path, file.part, current().remote_io))


def count(path: str, part: Range, remote_io: RemoteIOConfig) -> LineCount:
    """See `LineCount`. Raises FileNotFoundError, RemoteIOError."""
    head = streams.fetch(path, 0, _MAGIC_BYTES, remote_io)
    compressed, dictionary = known_of(path, remote_io)
    if not compressed:
        # frames without content before lines: nobody writes them, and Content handles them
        return LineCount(0, whole=True) if SKIPPABLE.match(head) else _count_plain(path, part, remote_io)
    for offset in _candidates(path, part, remote_io):
        with open_content(path, remote_io, offset) as content:
            set_dictionary(path, remote_io, content, dictionary)
            if (line_count := _count_members(content, part)) is not None:
                return line_count
    return LineCount()


def divide(line_counts: Sequence[tuple[Range, LineCount]]) -> list[Range]:
    """What is read in the place of each range of a file, in order: ranges whose first line is known. Where they do not
    fit, all that is left of the file by one, and nothing by those after it."""
    ranges: list[Range] = []
    offset: int | None = 0
    start = LineStart()
    for part, count in line_counts:
        if offset is None or (part.end is not None and offset >= part.end):
            ranges.append(EMPTY)
            continue
        if count.first != offset or count.whole:
            ranges.append(Range(offset, None, lines=start))
            offset = None
            continue
        stop = start.base + count.bytes
        ranges.append(Range(offset, count.next, lines=LineStart(start.base, start.number, start.within, stop)))
        # a range without content leaves things as they are
        within = count.within if count.bytes else start.within
        start, offset = LineStart(stop, start.number + count.lines, within), count.next
    return ranges


def _count_plain(path: str, part: Range, remote_io: RemoteIOConfig) -> LineCount:
    size = lines = 0
    last = b""
    with closing(open_at(path, remote_io, part.begin)) as stream:
        while part.end is None or part.begin + size < part.end:
            most = PIECE if part.end is None else min(PIECE, part.end - part.begin - size)
            if not (piece := stream.read(most)):
                break
            size, lines, last = size + len(piece), lines + piece.count(b"\n"), piece[-1:]
    if not size:
        return LineCount()
    return LineCount(part.begin, part.end, size, lines, last != b"\n")


def _candidates(path: str, part: Range, remote_io: RemoteIOConfig) -> Iterator[int]:
    """Where in the range something looks like the beginning of a member, in order."""
    if part.begin == 0:
        yield 0
    offset, tail = max(1, part.begin), b""
    with closing(open_at(path, remote_io, offset)) as stream:
        while piece := stream.read(PIECE):
            data, base = tail + piece, offset - len(tail)
            for match in MAGIC.finditer(data):
                if part.end is not None and base + match.start() >= part.end:
                    return
                yield base + match.start()
            # a beginning that is split between two pieces is found with the second
            offset, tail = offset + len(piece), data[-_MAGIC_BYTES + 1 :]


def _count_members(content: Content, part: Range) -> LineCount | None:
    """What the members hold that begin at the content's place and in the range; None if the first is none."""
    begin = content.stored_offset
    far = None if part.end is None else part.end + (part.end - part.begin)
    size = lines = 0
    last = b""
    try:
        for piece in content.pieces(part.end):
            size, lines, last = size + len(piece), lines + piece.count(b"\n"), piece[-1:]
            if far is not None and content.stored_offset > far:
                return LineCount(begin, whole=True)
    except OSError:
        # damage ends the file, wherever its first member is one for sure
        if begin and content.member == begin:
            return None
        return LineCount(begin, whole=True)
    following = None if content.ended else content.member
    return LineCount(begin, following, size, lines, last not in (b"", b"\n"))


@contextmanager
def open_lines(path: str, remote_io: RemoteIOConfig, part: Range | None) -> Iterator[tuple[Stored, Iterator[bytes]]]:
    """The file as it is stored, and the pieces of its content, from where a range begins: at one that `divide` gave,
    or of the whole file."""
    begin = part.begin if part else 0
    with closing(Stored(partial(open_at, path, remote_io), begin, block=_BLOCK)) as stored:
        compressed, dictionary = known_of(path, remote_io) if begin else (True, None)
        if not compressed:
            yield stored, iter(stored.read, b"")
            return
        content = Content(stored)
        set_dictionary(path, remote_io, content, dictionary)
        yield stored, content.pieces()
