"""Ranges of a file of lines, which is compressed in members, or not at all, and is divided where lines begin.

A line's number counts those before it, and members do not say how many they hold. So the lines of all ranges are
counted first, each range by a job of its own, and `divide` says from these counts where each range begins, with which
line, and how much of the content it has. A range has the lines that begin in its content, the last one to its end.

What looks like the beginning of a member may lie within another. So each count says where it began and where the next
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
from gristmill.tasks.reading.decoders import MAGIC, SKIPPABLE
from gristmill.tasks.reading.listing import Shard
from gristmill.tasks.reading.members import PIECE, Content, Stored, open_at, open_content
from gristmill.tasks.reading.ranges.archive_start import known_of, set_dictionary
from gristmill.tasks.reading.ranges.plan import EMPTY, LineStart, Range

# Small, as what it holds is lost where a file is damaged.
_BLOCK = 1 << 13
_MAGIC_BYTES = 4


@dataclass(frozen=True)
class LineCount:
    """What a range holds. `first`: where its first member begins in the file, or it itself where the file is not
    compressed; None if none does. `next`: where that of what follows has to; None where nothing does. `bytes`, `lines`:
    of its content, and ends of lines in it; `within`: it ends within a line. `whole`: it was not counted to its end,
    since its last member is as long as many ranges: what is left of the file is to be read by one job."""

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
        # frames without content ahead of lines: nobody writes them, and Content knows what becomes of them
        return LineCount(0, whole=True) if SKIPPABLE.match(head) else _count_plain(path, part, remote_io)
    for offset in _candidates(path, part, remote_io):
        with open_content(path, remote_io, offset) as content:
            set_dictionary(path, remote_io, content, dictionary)
            if (line_count := _count_members(content, part)) is not None:
                return line_count
    return LineCount()


def divide(line_counts: Sequence[tuple[Range, LineCount]]) -> list[Range]:
    """What is read in the place of each range of a file, in order: ranges whose first line is known. Where they do not
    fit, all that is left of the file by one, and nothing by those behind it."""
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
            # a beginning that lies across two pieces is found with the second
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
