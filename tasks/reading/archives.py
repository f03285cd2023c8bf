"""Records of WARC, ARC and WET files, whatever their compression and their damage, one at a time.

Formats are told apart by content. Each record's end is held against what follows it, so that a wrong length, bytes
between records or a member cut short are noticed where they are, and the next record is found again.
"""

import io
import re
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

from storage.remote import streams
from storage.remote.config import RemoteIOConfig
from tasks.reading.digests import differs
from tasks.reading.headers import HEAD, WARC_FOUND, arc_line, fields, head_end, media_type
from tasks.reading.members import Content, Stored, dictionary, open_at, wants_dictionary
from tasks.reading.payload import dechunk, decode
from tasks.reading.record import Record

_TRANSFER = RemoteIOConfig()
_Fields = dict[bytes, bytes]

_DETAIL = 200
_REASON = 120
_KINDS = frozenset({"warcinfo", "response", "resource", "request", "metadata", "revisit", "conversion", "continuation"})
_WITH_PAYLOAD = frozenset({"response", "resource", "conversion"})
_STATUS = re.compile(rb"HTTP/\d(?:\.\d)?[ \t]+(\d{3})(?!\d)")
_DATE = "{}{}{}{}-{}{}-{}{}T{}{}:{}{}:{}{}Z"
_REFERS = (b"warc-refers-to-target-uri", b"warc-refers-to-date", b"warc-refers-to")
_CONTROLS = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_WARC_END = re.compile(rb"\r?\n\r?\n")
_ARC_END = re.compile(rb"\r?\n")


def records(
    path: str, max_bytes: int, remote_io: RemoteIOConfig = _TRANSFER, verify_digests: bool = False
) -> Iterator[Record]:
    """Every record of an archive, in its order; a record's payload is there for responses, resources and conversions.

    Where a compressed member holds more than one record, `offset` is that in the file's uncompressed content, and
    `length` is None. A payload over `max_bytes`, raw or decoded (`too_large`), one that its encoding does not fit
    (`undecodable_payload`), a response that is not HTTP (`not_http`) and a revisit (`revisit`) are yielded with this
    problem and no payload. So is what cannot be read (`damaged_record`), with the headers that could be, its kind
    `unknown` if there were none; its detail says how much was passed over to the next record that could be found.
    A file that is no archive is one such record; an empty one holds none.
    A type that the standard does not have is `unknown_type`.
    `verify_digests`: a record unlike its own block or payload digest has the problem `digest_mismatch`. Off, because
    files that were converted after the crawl (ClueWeb09, changed line ends) have wrong digests and right pages.
    Holds `max_bytes` of content and the 8 MiB of the file read last. Raises FileNotFoundError, RemoteIOError.
    """
    stored = Stored(partial(open_at, path, remote_io))
    try:
        yield from _walk(Content(stored), max_bytes, verify_digests)
    finally:
        stored.close()


def read_at(
    path: str,
    offset: int,
    length: int | None,
    max_bytes: int,
    remote_io: RemoteIOConfig = _TRANSFER,
    verify_digests: bool = False,
) -> Record:
    """The record that `records` gives at this place, or a columnar index names; only its bytes are fetched.

    With `length` None the file is read from its beginning to this record. Raises LookupError if none is there.
    """
    if length is None:
        found = records(path, max_bytes, remote_io, verify_digests)
        for record in found:
            if record.offset == offset and record.length is None:
                found.close()
                return record
        raise LookupError(f"{path}: no record that shares its compressed member begins at byte {offset} of the content")
    data = streams.fetch(path, offset, offset + length, remote_io)
    return parse(data, path, offset, max_bytes, remote_io, verify_digests)


def parse(
    data: bytes,
    path: str,
    offset: int,
    max_bytes: int,
    remote_io: RemoteIOConfig = _TRANSFER,
    verify_digests: bool = False,
) -> Record:
    """The record in bytes that were fetched from this place of a file. Raises LookupError if there is none."""
    content = Content(Stored(lambda at: io.BytesIO(data[at - offset :]), offset))
    if wants_dictionary(data):
        with closing(Stored(partial(open_at, path, remote_io))) as beginning:
            content.dictionary = dictionary(beginning)
    for record in _walk(content, max_bytes, verify_digests):
        return record
    raise LookupError(f"{path}: bytes {offset} to {offset + len(data)} hold no record")


class _Place(NamedTuple):
    """Where a record begins: its segment in the file and in the content, itself in the content.

    `first`: nothing lies before it in the segment.
    """

    start: int
    base: int
    offset: int
    first: bool
    plain: bool

    @property
    def stored(self) -> int:
        """Offset in the file, where this can be said."""
        return self.start + self.offset - self.base if self.plain else self.start


class _Damaged(Exception):
    """A record that cannot be read. `sound`: so many bytes at the place hold no other record."""

    def __init__(self, reason: str, sound: int, known: dict[str, Any] | None = None):
        super().__init__(reason)
        self.sound, self.known = sound, known or {"kind": "unknown"}


def _walk(content: Content, max_bytes: int, verify: bool) -> Iterator[Record]:
    while True:
        if content.garbage is not None:
            size = content.start - content.garbage
            problem = ("damaged_record", f"{size} bytes that begin no record")
            yield Record("unknown", content.garbage, size, problem=problem)
            content.garbage = None
        if content.alone and (record := _undisturbed(content, max_bytes, verify)):
            yield record
        elif content.blanks():
            place = _place(content)
            content.used = True
            try:
                record = _record(content, place, max_bytes, verify)
            except _Damaged as damage:
                record = _damaged(content, place, damage)
            yield record
        elif content.broken:
            yield _damaged(content, _place(content), _Damaged(content.broken, 0))
        elif not content.next() and content.garbage is None:
            return


def _undisturbed(content: Content, max_bytes: int, verify: bool) -> Record | None:
    """The record that fills a member from end to end, as nearly all do: known with less ado than others."""
    buffer = content.buffer
    end = buffer.find(b"\r\n\r\n")
    if end < 0 or not buffer.startswith(b"WARC/") or not buffer.endswith(b"\r\n\r\n"):
        return None
    found = fields(buffer[:end])
    stop = len(buffer) - 4
    if found.get(b"content-length", b"").strip() != b"%d" % (stop - end - 4):
        return None
    known = _known(found)
    known |= _read(buffer, end + 4, stop, known["kind"], found, max_bytes, verify)
    content.position, content.used, content.warc = len(buffer), True, True
    return Record(**known, offset=content.start, length=content.stored_offset - content.start)


def _place(content: Content) -> _Place:
    return _Place(content.start, content.start_base, content.offset, not content.used, content.kind == "plain")


def _damaged(content: Content, place: _Place, damage: _Damaged) -> Record:
    """The record at the place, as far as it is known; then the content is at the next record that can be found."""
    content.position += damage.sound
    same = content.scan() or not content.next() and content.start == place.start
    offset, length = place.offset, None
    if place.plain:
        end = content.start + content.offset - content.start_base if same else content.end
        offset, length = place.stored, end - place.stored
    elif place.first and not same:
        offset, length = place.start, content.end - place.start
    passed = f"{length} bytes" if length is not None else f"{content.offset - place.offset} bytes of content"
    if length is None and not same:
        passed += f", and the file up to byte {content.end}"
    detail = f"{str(damage)[:_REASON]}; passed over: {passed}"
    return Record(**damage.known, offset=offset, length=length, problem=("damaged_record", detail))


def _record(content: Content, place: _Place, max_bytes: int, verify: bool) -> Record:
    """The record at the place; then the content is behind it. Raises _Damaged with the content still at it."""
    if not content.begins():
        raise _Damaged("no record begins here", 1)
    arc = not content.buffer.startswith(b"WARC/", content.position)
    known, found, size, length = _arc_head(content) if arc else _warc_head(content)
    if length > max_bytes + HEAD:
        said = _too_large(content, known["kind"], found, size, max_bytes)
        alone = _pass_over(content, place, known, size, length)
        known |= said
    else:
        length = _length(content, known, size, length, _ARC_END if arc else _WARC_END)
        blanks, more = content.following(size + length)
        alone = place.first and not more
        if content.broken and alone:
            raise _Damaged(content.broken, size + length, known)
        start = content.position + size
        known |= _read(content.buffer, start, start + length, known["kind"], found, max_bytes, verify)
        content.position = start + length + blanks
    if place.plain:
        return Record(**known, offset=place.stored, length=content.offset - place.offset)
    if alone and content.members == 1:
        return Record(**known, offset=place.start, length=content.segment_end - place.start)
    return Record(**known, offset=place.offset, length=None)


def _length(content: Content, known: dict[str, Any], size: int, length: int, end: re.Pattern[bytes]) -> int:
    """The length of the block after a head of `size` bytes, which is in the buffer then. Raises _Damaged.

    `length`, which the head says, is right if after so many bytes the segment ends, or a record begins, or `end`
    lies there, what a record should end with.
    """
    have = content.need(size + length)
    if have >= size + length:
        blanks, more = content.following(size + length)
        if not more or end.match(content.buffer, content.position + size + length):
            return length
        if content.begins(size + length + blanks):
            return length
        reason = f"it does not end where its length of {length} bytes says"
    else:
        reason = f"{max(0, have - size)} of {length} bytes"
    if content.broken:
        raise _Damaged(f"{content.broken}: {reason}", min(size, have), known)
    if (shorter := _converted(content, size, length)) is not None:
        return shorter
    raise _Damaged(reason, min(size, have), known)


def _converted(content: Content, size: int, length: int) -> int | None:
    """The length of a block in a file whose line ends were turned from CRLF into LF: at most a byte a line is gone."""
    start = content.position + size
    if b"\r" in content.buffer[content.position : start]:
        return None
    following = WARC_FOUND.search(content.buffer, start)
    block = content.buffer[start : following.start() if following else len(content.buffer)]
    text = block.rstrip(b"\n")
    return len(text) if len(text) <= length <= len(block) + block.count(b"\n") else None


def _too_large(content: Content, kind: str, found: _Fields, size: int, max_bytes: int) -> dict[str, Any]:
    if kind not in _WITH_PAYLOAD:
        return {}
    end = content.position + min(content.need(size + HEAD), size + HEAD)
    said = _read(content.buffer, content.position + size, end, kind, found, max_bytes, False)
    return {"problem": ("too_large", f"more than {max_bytes} bytes")} | said | {"payload": b""}


def _pass_over(content: Content, place: _Place, known: dict[str, Any], size: int, length: int) -> bool:
    """Pass over a record that is not held; whether it has its segment to itself."""
    passed = content.skip(size + length)
    more = content.blanks()
    if passed < size + length or (more and not content.begins()):
        reason = content.broken or f"its length of {length} bytes is wrong"
        content.rewind(place.start, place.base, place.offset + size)
        raise _Damaged(reason, 0, known)
    if content.broken and not more and place.first:
        raise _Damaged(content.broken, 0, known)
    return place.first and not more


def _warc_head(content: Content) -> tuple[dict[str, Any], _Fields, int, int]:
    """What the headers say, the headers, and the sizes of head and block."""
    start = content.position
    end = head_end(content.buffer, start, start + HEAD)
    if end is None:
        have = content.need(HEAD)
        start = content.position
        end = head_end(content.buffer, start, start + HEAD)
    if end is None:
        other = WARC_FOUND.search(content.buffer, start + 5, start + HEAD)
        known = _known(fields(content.buffer[start : other.start() if other else start + HEAD]))
        raise _Damaged(content.broken or "its headers do not end", min(5, have), known)
    head = content.buffer[start : end[0]]
    found, size = fields(head), end[1] - start
    if content.buffer.find(b"WARC/", start + 5, end[0]) > 0:
        if other := WARC_FOUND.search(content.buffer, start + 5, end[1]):
            known = _known(fields(content.buffer[start : other.start()]))
            raise _Damaged("another record begins in its headers", other.start() - start, known)
    known = _known(found)
    if not head.isascii() and _CONTROLS.search(head):
        raise _Damaged("its headers hold control characters", size, known)
    length = found.get(b"content-length", b"").strip()
    if b"," in length and len(set(length.replace(b" ", b"").split(b","))) == 1:
        length = length.partition(b",")[0]
    if not length.isdigit() or len(length) > 15:
        said = f"a Content-Length of {_text(length)!r}" if length else "no Content-Length"
        raise _Damaged(f"the record has {said}", size, known)
    return known, found, size, int(length)


def _known(found: _Fields) -> dict[str, Any]:
    get = found.get
    kind = _text(get(b"warc-type", b"")).lower()
    return {
        "kind": kind if kind in _KINDS else "unknown",
        "record_id": _text(get(b"warc-record-id", b"")),
        "url": _text(get(b"warc-target-uri", b"")).strip("<>"),
        "date": _text(get(b"warc-date", b"")),
        "ip": _text(get(b"warc-ip-address", b"")) or None,
        "digest": _text(get(b"warc-payload-digest", b"")) or None,
        "truncated": _text(get(b"warc-truncated", b"")) or None,
    }


def _arc_head(content: Content) -> tuple[dict[str, Any], _Fields, int, int]:
    line = arc_line(content.buffer, content.position)
    url, ip = _text(line.url), line.ip.decode()
    known = {
        "kind": "warcinfo" if url.lower().startswith("filedesc:") else "response",
        "url": url,
        "date": _DATE.format(*line.date[:14].ljust(14, b"0").decode()),
        "ip": None if ip == "0.0.0.0" else ip,
    }
    if not line.length.isdigit():
        raise _Damaged(f"the record has a length of {_text(line.length)!r}", line.size, known)
    return known, {b"content-type": line.type}, line.size, int(line.length)


def _read(
    buffer: bytes, start: int, end: int, kind: str, found: _Fields, max_bytes: int, verify: bool
) -> dict[str, Any]:
    """What the block `buffer[start:end]` of a record says: columns of Record."""
    if kind == "unknown":
        return _wrong("unknown_type", _text(found.get(b"warc-type", b"")))
    if verify and (wrong := differs(found.get(b"warc-block-digest", b""), [buffer[start:end]])):
        return _wrong("digest_mismatch", f"block: {wrong}")
    said: dict[str, Any] = {}
    http: _Fields = {}
    if kind in ("response", "revisit"):
        said, http, start = _answer(buffer, start, end, found)
    elif kind in ("resource", "conversion"):
        essence, charset = media_type(found.get(b"content-type", b""))
        if kind == "conversion":
            essence, charset = essence or "text/plain", charset or "utf-8"
        said = {"content_type": essence, "charset": charset}
    if kind == "revisit":
        refers = [_text(value).strip("<>") for name in _REFERS if (value := found.get(name))]
        said |= _wrong("revisit", " ".join(refers))
    if kind not in _WITH_PAYLOAD or "problem" in said:
        return said
    if end - start > max_bytes:
        return said | _wrong("too_large", f"more than {max_bytes} bytes")
    raw = payload = buffer[start:end]
    try:
        if http:
            payload = decode(raw, http, max_bytes)
    except (OSError, ValueError) as error:
        return said | _wrong("undecodable_payload", str(error))
    if verify and (wrong := differs(found.get(b"warc-payload-digest", b""), _bodies(raw, payload))):
        return said | _wrong("digest_mismatch", f"payload: {wrong}")
    if len(payload) > max_bytes:
        return said | _wrong("too_large", f"more than {max_bytes} bytes")
    said["payload"] = payload
    return said


def _answer(buffer: bytes, start: int, end: int, found: _Fields) -> tuple[dict[str, Any], _Fields, int]:
    """What an HTTP answer's head says, its fields, and where its body begins."""
    if not buffer.startswith(b"HTTP/", start, end):
        return _wrong("not_http", _text(found.get(b"content-type", b""))), {}, start
    head = head_end(buffer, start, min(end, start + HEAD))
    if head is None:
        if end - start >= HEAD:
            return _wrong("damaged_record", f"its HTTP headers do not end within {HEAD} bytes"), {}, start
        head = (end, end)
    http = fields(buffer[start : head[0]])
    status = _STATUS.match(buffer, start, head[1])
    essence, charset = media_type(http.get(b"content-type", b""))
    return {"status": int(status[1]) if status else None, "content_type": essence, "charset": charset}, http, head[1]


def _bodies(raw: bytes, decoded: bytes) -> Iterator[bytes]:
    """What crawlers take a payload's digest of: the body as sent, without its chunks, without any encoding."""
    yield raw
    yield decoded
    try:
        yield dechunk(raw, len(raw))
    except ValueError:
        return


def _wrong(rule: str, detail: str) -> dict[str, Any]:
    return {"problem": (rule, detail[:_DETAIL])}


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace").strip()
