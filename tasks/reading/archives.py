"""Records of WARC, ARC and WET files, whatever their compression and their damage, one at a time.

Formats are recognized by content. Each record's end is compared with what follows it, so that a wrong length, bytes
between records or a member cut short are noticed where they are, and the next record is found again.
"""

import io
import re
from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

from gristmill.storage.remote import streams
from gristmill.storage.remote.config import RemoteIOConfig
from gristmill.tasks.reading.block import WITH_PAYLOAD, read_block, text_of
from gristmill.tasks.reading.headers import (
    CONTROLS,
    HEAD,
    RECORD_FOUND,
    WARC_FOUND,
    ArcLine,
    arc_line,
    fields,
    head_end,
)
from gristmill.tasks.reading.members import Content, Stored, open_content, wants_dictionary
from gristmill.tasks.reading.range_plan import Range, RangeRead, Reading
from gristmill.tasks.reading.ranges import ended, is_behind, knows_content, open_range
from gristmill.tasks.reading.record import Record
from gristmill.tasks.reading.record_buffer import RecordBuffer

_REMOTE_IO = RemoteIOConfig()
_Fields = dict[bytes, bytes]

_REASON = 120
# A block may be shorter than its length by this part or by this many bytes, or longer by as many: writers' errors.
_SHORT = 100
_WRONG = 1 << 10
_BEGINS = 64
_LINE_ENDS = 4
_KINDS = frozenset({"warcinfo", "response", "resource", "request", "metadata", "revisit", "conversion", "continuation"})
_DATE = "{}{}{}{}-{}{}-{}{}T{}{}:{}{}:{}{}Z"
_WARC_END = re.compile(rb"\r?\n\r?\n")
_ARC_END = re.compile(rb"\r?\n")


def records(
    path: str,
    max_bytes: int,
    remote_io: RemoteIOConfig = _REMOTE_IO,
    verify_digests: bool = False,
    part: Range | None = None,
    reading: Reading | None = None,
) -> Generator[Record, None, None]:
    """Every record of an archive, in its order; a record's payload is there for responses, resources and conversions.

    `part`: only the records that begin in this range. `reading` is updated with the progress, and with how a range was
    read: only if `range_plan.corrected` finds nothing to correct do the ranges together have the records of the file.

    Where a compressed member holds more than one record, `offset` is that in the file's uncompressed content, and
    `length` is None. A payload over `max_bytes`, raw or decoded (`too_large`), one that its encoding does not fit
    (`undecodable_payload`), a response of another protocol (`not_http`) and a revisit (`revisit`) are yielded with this
    problem and no payload. So is what cannot be read (`damaged_record`), with the headers that could be, its kind
    `unknown` if there were none; its detail is how much was skipped up to the next record that could be found.
    A file that is not an archive is one such record; an empty file has none.
    A type that the standard does not have is `unknown_type`. A response that is a bare body, of an address of the web,
    is read with a note; so is a record whose end shows that its length is a little wrong (by 1 KiB or 1%, or by 64 KiB
    in a compressed member of its own); one that is shorter counts as truncated.
    `verify_digests`: a record unlike its own block or payload digest has the problem `digest_mismatch`. Off, because
    files that were converted after the crawl (ClueWeb09, changed line ends) have wrong digests and right pages.
    Holds `max_bytes` of content and the 8 MiB of the file read last. Raises FileNotFoundError, RemoteIOError.
    """
    reading = reading or Reading()
    if part is None:
        with open_content(path, remote_io) as content:
            for record in _walk(RecordBuffer(content), max_bytes, verify_digests):
                reading.bytes = content.stored.position
                yield record
        return
    with open_range(path, remote_io, part) as begun:
        if begun is None:
            reading.range = RangeRead()
            return
        buffer, first = begun
        complete = True
        for record in _walk(buffer, max_bytes, verify_digests, part.end):
            complete = record.length is not None or knows_content(part)
            if not complete:
                break
            reading.bytes = buffer.content.stored.position - first.at
            yield record
        reading.range = ended(buffer, part, first, complete)


def read_at(
    path: str,
    offset: int,
    length: int | None,
    max_bytes: int,
    remote_io: RemoteIOConfig = _REMOTE_IO,
    verify_digests: bool = False,
) -> Record:
    """The record that `records` gives at this place, or a columnar index names; only its bytes are fetched.

    With `length` None the file is read from its beginning to this record. Raises LookupError if none is there.
    """
    if length is None:
        archive_records = records(path, max_bytes, remote_io, verify_digests)
        for record in archive_records:
            if record.offset == offset and record.length is None:
                archive_records.close()
                return record
        raise LookupError(f"{path}: no record that shares its compressed member begins at byte {offset} of the content")
    data = streams.fetch(path, offset, offset + length, remote_io)
    return parse(data, path, offset, max_bytes, remote_io, verify_digests)


def parse(
    data: bytes,
    path: str,
    offset: int,
    max_bytes: int,
    remote_io: RemoteIOConfig = _REMOTE_IO,
    verify_digests: bool = False,
) -> Record:
    """The record in bytes that were fetched from this place of a file. Raises LookupError if there is none."""
    content = Content(Stored(lambda position: io.BytesIO(data[position - offset :]), offset))
    if wants_dictionary(data):
        with open_content(path, remote_io) as whole:
            whole.open()
            content.dictionary = whole.dictionary
    for record in _walk(RecordBuffer(content), max_bytes, verify_digests):
        return record
    raise LookupError(f"{path}: bytes {offset} to {offset + len(data)} hold no record")


class _Place(NamedTuple):
    """Where a record begins: its segment in the file and in the content, itself in the content.

    `first`: nothing comes before it in the segment. `plain`: the segment is not compressed.
    """

    start: int
    base: int
    offset: int
    first: bool
    plain: bool

    @property
    def stored(self) -> int:
        """Offset in the file; of a compressed file, the offset of the segment."""
        return self.start + self.offset - self.base if self.plain else self.start


class _Damaged(Exception):
    """A record that cannot be read. `sound`: the number of bytes at the place that hold no other record."""

    def __init__(self, reason: str, sound: int, columns: dict[str, Any] | None = None) -> None:
        super().__init__(reason)
        self.sound, self.columns = sound, columns or {"kind": "unknown"}


def _walk(buffer: RecordBuffer, max_bytes: int, verify: bool, end: int | None = None) -> Iterator[Record]:
    """The records from the place on, up to the first one after the byte `end` of the file."""
    while True:
        if buffer.garbage is not None:
            size = buffer.start - buffer.garbage
            problem = ("damaged_record", f"{size} bytes that begin no record")
            yield Record("unknown", buffer.garbage, size, problem=problem)
            buffer.garbage = None
        if end is not None and is_behind(buffer, end):
            return
        if buffer.alone and (record := _undisturbed(buffer, max_bytes, verify)):
            yield record
        elif buffer.skip_blanks():
            place = _place(buffer)
            buffer.used = True
            try:
                record = _record(buffer, place, max_bytes, verify)
            except _Damaged as damage:
                record = _damaged(buffer, place, damage)
            yield record
        elif buffer.broken:
            yield _damaged(buffer, _place(buffer), _Damaged(buffer.broken, 0))
        elif not buffer.next() and buffer.garbage is None:
            return


def _undisturbed(buffer: RecordBuffer, max_bytes: int, verify: bool) -> Record | None:
    """The record that fills a member from end to end, as nearly all do: read by a shorter way than others."""
    data = buffer.data
    end = data.find(b"\r\n\r\n")
    if end < 0 or not data.startswith(b"WARC/") or not data.endswith(b"\r\n\r\n"):
        return None
    headers = fields(data[:end])
    stop = len(data) - 4
    if headers.get(b"content-length", b"").strip() != b"%d" % (stop - end - 4):
        return None
    columns = _warc_columns(headers)
    columns |= read_block(data, end + 4, stop, columns, headers, max_bytes, verify)
    buffer.position, buffer.used, buffer.warc = len(data), True, True
    return Record(**columns, offset=buffer.start, length=buffer.segment_end - buffer.start)


def _place(buffer: RecordBuffer) -> _Place:
    return _Place(buffer.start, buffer.start_base, buffer.offset, not buffer.used, buffer.plain)


def _damaged(buffer: RecordBuffer, place: _Place, damage: _Damaged) -> Record:
    """The record at the place, as far as it is known; then the content is at the next record that can be found."""
    buffer.position += damage.sound
    same = buffer.scan() or not buffer.next() and buffer.start == place.start
    offset, length = place.offset, None
    if place.plain:
        end = buffer.start + buffer.offset - buffer.start_base if same else buffer.end
        offset, length = place.stored, end - place.stored
    elif place.first and not same:
        offset, length = place.start, buffer.end - place.start
    skipped = f"{length} bytes" if length is not None else f"{buffer.offset - place.offset} bytes of content"
    if length is None and not same:
        skipped += f", and the file up to byte {buffer.end}"
    detail = f"{str(damage)[:_REASON]}; passed over: {skipped}"
    return Record(**damage.columns, offset=offset, length=length, problem=("damaged_record", detail))


def _record(buffer: RecordBuffer, place: _Place, max_bytes: int, verify: bool) -> Record:
    """The record at the place; then the content is after it. Raises _Damaged with the content still at the record."""
    if not buffer.begins():
        raise _Damaged("no record begins here", 1)
    line = None if buffer.data.startswith(b"WARC/", buffer.position) else arc_line(buffer.data, buffer.position)
    header_columns, headers, size, length = _arc_head(line) if line else _warc_head(buffer)
    if length > max_bytes + HEAD:
        columns = _too_large(buffer, header_columns, headers, size, max_bytes)
        alone = _skip_block(buffer, place, header_columns, size, length)
        header_columns |= columns
    else:
        length = _length(buffer, header_columns, size, length, _ARC_END if line else _WARC_END)
        blanks, more = buffer.following(size + length)
        alone = place.first and not more
        if buffer.broken and alone:
            raise _Damaged(buffer.broken, size + length, header_columns)
        start = buffer.position + size
        columns = read_block(buffer.data, start, start + length, header_columns, headers, max_bytes, verify)
        header_columns |= columns | {
            "note": "; ".join(note for side in (header_columns, columns) if (note := side.get("note"))) or None
        }
        buffer.position = start + length + blanks
    if place.plain:
        return Record(**header_columns, offset=place.stored, length=buffer.offset - place.offset)
    if alone and buffer.members == 1:
        return Record(**header_columns, offset=place.start, length=buffer.segment_end - place.start)
    return Record(**header_columns, offset=place.offset, length=None)


def _length(buffer: RecordBuffer, columns: dict[str, Any], size: int, length: int, end: re.Pattern[bytes]) -> int:
    """The length of the block after a head of `size` bytes, which is in the buffer then. Raises _Damaged.

    `length`, of the head, is right if after so many bytes the segment ends, or a record begins, or `end` matches, what
    a record should end with.
    """
    have = buffer.need(size + length)
    if have >= size + length:
        blanks, more = buffer.following(size + length)
        if not more or end.match(buffer.data, buffer.position + size + length):
            return length
        if buffer.begins(size + length + blanks):
            return length
        reason = f"it does not end where its length of {length} bytes says"
    else:
        reason = f"{max(0, have - size)} of {length} bytes"
    if buffer.broken:
        raise _Damaged(f"{buffer.broken}: {reason}", min(size, have), columns)
    if (shorter := _converted(buffer, size, length)) is not None:
        return shorter
    if (shorter := _short(buffer, size, length, end)) is not None:
        columns["note"] = f"{length - shorter} bytes short of its length of {length}"
        columns["truncated"] = columns.get("truncated") or "unspecified"
        return shorter
    if (longer := _longer(buffer, size, length, end)) is not None:
        columns["note"] = f"{longer - length} bytes more than its length of {length}"
        return longer
    raise _Damaged(reason, min(size, have), columns)


def _converted(buffer: RecordBuffer, size: int, length: int) -> int | None:
    """The length of a block in a file whose line ends were turned from CRLF into LF: at most a byte a line is gone."""
    start = buffer.position + size
    if b"\r" in buffer.data[buffer.position : start]:
        return None
    following = WARC_FOUND.search(buffer.data, start)
    block = buffer.data[start : following.start() if following else len(buffer.data)]
    text = block.rstrip(b"\n")
    return len(text) if len(text) <= length <= len(block) + block.count(b"\n") else None


def _short(buffer: RecordBuffer, size: int, length: int, end: re.Pattern[bytes]) -> int | None:
    """The length of a block that its segment, or the next WARC record, cuts a little shorter than its head says.

    That is a hundredth, or what `_wrong` says where it ends as a record should.
    """
    # after the block comes at least the beginning of the record that cuts it
    buffer.fill(size + length + _BEGINS)
    start = buffer.position + size
    following = WARC_FOUND.search(buffer.data, max(start, start + length - HEAD), start + length + _BEGINS)
    stop = following.start() if following else len(buffer.data)
    if stop >= start + length + _LINE_ENDS:
        return None
    block_end, ends = _block_end(buffer, start, stop, end)
    missing = start + length - block_end
    most = max(length // _SHORT, _wrong(buffer, following is not None) if ends and end is _WARC_END else 0)
    return block_end - start if 0 < missing <= most else None


def _longer(buffer: RecordBuffer, size: int, length: int, end: re.Pattern[bytes]) -> int | None:
    """The length of a block that goes on a little after what its head says, up to the next record or the end of its
    segment, and ends there as a record should."""
    buffer.fill(size + length + HEAD + _BEGINS)
    start = buffer.position + size
    begin = start + length
    if end is not _WARC_END:
        mark = RECORD_FOUND.search(buffer.data, max(start, begin - HEAD), begin + _BEGINS)
        if mark and buffer.data.rfind(b"\n", start, mark.start()) + 1 < begin:
            return None  # its length reaches into another record of ARC
    following = RECORD_FOUND.search(buffer.data, begin, begin + HEAD + _BEGINS)
    stop = following.start() if following else len(buffer.data)
    if following and not following[0].startswith(b"WARC/"):
        # the mark of a line of ARC comes after the URL
        stop = buffer.data.rfind(b"\n", begin, following.start()) + 1
        if not arc_line(buffer.data, stop):
            return None
    block_end, ends = _block_end(buffer, start, stop, end)
    extra = block_end - begin
    return block_end - start if ends and 0 < extra <= _wrong(buffer, following is not None) else None


def _wrong(buffer: RecordBuffer, is_followed: bool) -> int:
    """Bytes that a length may be wrong by where the record is whole: whatever else is in the rest of a compressed
    member, whose end is sound, can only be of it."""
    return _WRONG if is_followed or buffer.plain else HEAD


def _block_end(buffer: RecordBuffer, start: int, stop: int, end: re.Pattern[bytes]) -> tuple[int, bool]:
    """Where a block ends whose record ends at `stop`, and whether it ends as a record should."""
    tail = [match.start() for match in end.finditer(buffer.data, max(start, stop - 4), stop) if match.end() == stop]
    return min(tail, default=stop), bool(tail)


def _too_large(
    buffer: RecordBuffer, header_columns: dict[str, Any], headers: _Fields, size: int, max_bytes: int
) -> dict[str, Any]:
    if header_columns["kind"] not in WITH_PAYLOAD:
        return {}
    end = buffer.position + min(buffer.need(size + HEAD), size + HEAD)
    columns = read_block(buffer.data, buffer.position + size, end, header_columns, headers, max_bytes, False)
    return {"problem": ("too_large", f"more than {max_bytes} bytes")} | columns | {"payload": b""}


def _skip_block(buffer: RecordBuffer, place: _Place, columns: dict[str, Any], size: int, length: int) -> bool:
    """Skip a record that is not held; whether it has its segment to itself."""
    skipped = buffer.skip(size + length)
    more = buffer.skip_blanks()
    if skipped < size + length or (more and not buffer.begins()):
        reason = buffer.broken or f"its length of {length} bytes is wrong"
        buffer.rewind(place.start, place.base, place.offset + size)
        raise _Damaged(reason, 0, columns)
    if buffer.broken and not more and place.first:
        raise _Damaged(buffer.broken, 0, columns)
    return place.first and not more


def _warc_head(buffer: RecordBuffer) -> tuple[dict[str, Any], _Fields, int, int]:
    """Columns of Record from the headers, the headers, and the sizes of head and block."""
    start = buffer.position
    end = head_end(buffer.data, start, start + HEAD)
    if end is None:
        have = buffer.need(HEAD)
        start = buffer.position
        end = head_end(buffer.data, start, start + HEAD)
    if end is None:
        other = WARC_FOUND.search(buffer.data, start + 5, start + HEAD)
        columns = _columns_of_damaged(buffer.data[start : other.start() if other else start + HEAD])
        raise _Damaged(buffer.broken or "its headers do not end", min(5, have), columns)
    head = buffer.data[start : end[0]]
    headers, size = fields(head), end[1] - start
    if buffer.data.find(b"WARC/", start + 5, end[0]) > 0:
        if other := WARC_FOUND.search(buffer.data, start + 5, end[1]):
            columns = _columns_of_damaged(buffer.data[start : other.start()])
            raise _Damaged("another record begins in its headers", other.start() - start, columns)
    if not head.isascii() and CONTROLS.search(head):
        raise _Damaged("its headers hold control characters", size, _columns_of_damaged(head))
    length = headers.get(b"content-length", b"").strip()
    if b"," in length and len(set(length.replace(b" ", b"").split(b","))) == 1:
        length = length.partition(b",")[0]
    if not length.isdigit() or len(length) > 15:
        wrong = f"a Content-Length of {text_of(length)!r}" if length else "no Content-Length"
        raise _Damaged(f"the record has {wrong}", size, _columns_of_damaged(head))
    return _warc_columns(headers), headers, size, int(length)


def _columns_of_damaged(head: bytes) -> dict[str, Any]:
    """The columns, with the first of repeated fields: a decoder that runs into damage copies earlier lines until it
    notices."""
    lines = [line.partition(b":") for line in head.split(b"\n")[1:]]
    return _warc_columns({name.rstrip().lower(): value for name, _, value in reversed(lines)})


def _warc_columns(headers: _Fields) -> dict[str, Any]:
    get = headers.get
    kind = text_of(get(b"warc-type", b"")).lower()
    return {
        "kind": kind if kind in _KINDS else "unknown",
        "record_id": text_of(get(b"warc-record-id", b"")),
        "url": text_of(get(b"warc-target-uri", b"")).strip("<>"),
        "date": text_of(get(b"warc-date", b"")),
        "ip": text_of(get(b"warc-ip-address", b"")) or None,
        "digest": text_of(get(b"warc-payload-digest", b"")) or None,
        "truncated": text_of(get(b"warc-truncated", b"")) or None,
    }


def _arc_head(line: ArcLine) -> tuple[dict[str, Any], _Fields, int, int]:
    url, ip = text_of(line.url), line.ip.decode()
    columns = {
        "kind": "warcinfo" if url.lower().startswith("filedesc:") else "response",
        "url": url,
        "date": _DATE.format(*line.date[:14].ljust(14, b"0").decode()),
        "ip": None if ip in ("0.0.0.0", "-") else ip,
    }
    if not line.length.isdigit():
        raise _Damaged(f"the record has a length of {text_of(line.length)!r}", line.size, columns)
    return columns, {b"content-type": line.type}, line.size, int(line.length)
