"""Ranges of a large file, each read by its own job, and whether the ranges of an archive were read like the whole file.

A range of an archive has the records that begin in it, including the whole last one. A job searches for the first
record, and what looks like a member may be inside another. So each job reports where it began and where the next range
must begin. Only if all of these fit do the ranges, one after the other, have the records of the whole file.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Resume:
    """What a reader must know to go on at a record as if it had read all that comes before it.

    `at`: where in the file the record's member begins, or the record where it is not compressed; `base`: where that is
    in the file's content. `warc`: a WARC record was met, this one included. `dictionary`: where in the file the frame
    begins that holds the dictionary of its zstd members. `rewinds`, `salvage`: how often, and how many bytes, may still
    be read a second time for damage.
    """

    at: int
    base: int
    warc: bool
    dictionary: int | None
    rewinds: int
    salvage: int


@dataclass(frozen=True)
class LineStart:
    """Where the lines of a range begin in the file's content: `base`, bytes before it, and `number`, ends of lines in
    these; `within`: it begins within a line, which is another range's; `stop`: lines that begin from this byte of the
    content on are not the range's, None if all that follow are."""

    base: int = 0
    number: int = 0
    within: bool = False
    stop: int | None = None


@dataclass(frozen=True)
class Range:
    """A part of a file: the records that begin in it. `begin`, `end`: bytes of the file as it is stored; `end` is None
    for all that follows. `resume`: how the reading of an archive's begins where that is known; else the first record is
    looked for. `lines`: of a file of lines, where the first one begins."""

    begin: int
    end: int | None
    resume: Resume | None = None
    lines: LineStart | None = None


# A range without a byte has no record.
EMPTY = Range(0, 0)


@dataclass(frozen=True)
class RangeRead:
    """How a range was read. `first`: how its reading began, with a `base` of 0 if that is unknown; None if no record
    begins in it. `next`: how the reading of the next range must begin; None at the file's end. `complete`: False if
    reading stopped at a record whose offset counts the content before the range. `rewinds`, `salvage`: what was read a
    second time."""

    first: Resume | None = None
    next: Resume | None = None
    complete: bool = True
    rewinds: int = 0
    salvage: int = 0


@dataclass
class Reading:
    """The progress of reading a file, or a range of it. `bytes`: bytes that were read, as stored; `range`: how the
    range was read, once it is."""

    bytes: int = 0
    range: RangeRead | None = None


def ranges_of(size: int | None, range_bytes: int) -> list[Range | None]:
    """The ranges of a file of so many bytes: as few as are at most `range_bytes` long, of one size. One None for a file
    that is read whole: it is not larger, or its size is not known."""
    count = -(-(size or 0) // range_bytes)
    if size is None or count < 2:
        return [None]
    ends = [size * (i + 1) // count for i in range(count - 1)]
    return [Range(begin, end) for begin, end in zip([0, *ends], [*ends, None], strict=True)]


def corrected(read: Sequence[tuple[Range, RangeRead]]) -> list[Range | None]:
    """For each range of a file, in order, None if it was read as the whole file would be, else what is to be read in
    its place: from the first such range on, all that is left of the file by this one, and nothing by the ranges
    after it."""
    resume = read[0][1].first
    for index, (part, range_read) in enumerate(read):
        if _is_inside(resume, part) != (range_read.first is not None) or (
            range_read.first and not _fits(range_read, resume)
        ):
            rest = EMPTY if resume is None else Range(resume.at, None, resume)
            return [None] * index + [rest] + [EMPTY] * (len(read) - index - 1)
        if resume and range_read.first:
            resume = _next_resume(range_read, resume)
    return [None] * len(read)


def _is_inside(resume: Resume | None, part: Range) -> bool:
    return resume is not None and (part.end is None or resume.at < part.end)


def _fits(range_read: RangeRead, resume: Resume | None) -> bool:
    first = range_read.first
    if first is None or resume is None or not range_read.complete:
        return False
    same = (first.at, first.warc, first.dictionary) == (resume.at, resume.warc, resume.dictionary)
    return same and range_read.rewinds <= resume.rewinds and range_read.salvage <= resume.salvage


def _next_resume(range_read: RangeRead, resume: Resume) -> Resume | None:
    """How reading continues after a range that began with `resume`, whatever `base` it assumed."""
    if range_read.next is None or range_read.first is None:
        return None
    return replace(
        range_read.next,
        base=resume.base + range_read.next.base - range_read.first.base,
        rewinds=resume.rewinds - range_read.rewinds,
        salvage=resume.salvage - range_read.salvage,
    )
