"""Lines that records and answers begin with: WARC and ARC record lines, header fields, the head of an HTTP message."""

import re
from typing import NamedTuple

# A longer head is taken for damage.
HEAD = 1 << 16

# Where a record is expected, its first line is enough; to find one again after damage, a named field must follow it.
WARC_LINE = re.compile(rb"WARC/\d{1,2}\.\d{1,2}[ \t]*\r{0,2}\n")
WARC_FOUND = re.compile(rb"WARC/[01]\.\d{1,2}[ \t]*\r{0,2}\n(?=(?i:WARC-[a-z]|Content-(?:Type|Length)[ \t]*:))")

# An ARC line of more bytes, its end included, is none.
LINE = 1 << 13

# What follows the URL in an ARC line, and marks a possible ARC line: address and date. Every part is bounded,
# so that the search for it takes time linear in what is searched.
ARC_SIGN = re.compile(
    rb" (?P<ip>[0-9]{1,3}(?:\.[0-9]{1,3}){3}|(?=[0-9A-Fa-f.]{0,45}:)[0-9A-Fa-f:.]{1,45}"
    rb"|-(?= [0-9]{14} )) (?P<date>[0-9]{8,20})(?= )"
)
# Where a record of either format may begin.
RECORD_FOUND = re.compile(b"|".join((WARC_FOUND.pattern, ARC_SIGN.pattern)))
# No head of a sound record holds them.
CONTROLS = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
LINE_ENDS = b"\r\n"
_BLANKS = re.compile(rb"[\r\n]+")
_ARC_2 = re.compile(rb"[0-9]{3} [^ ]{1,99} [^ ]{1,2000} [0-9]{1,20} [^ ]{1,300}")
_SCHEME = re.compile(rb"[a-z][a-z0-9+.-]{1,30}:", re.I)
_SCHEME_FOUND = re.compile(rb"(?:filedesc|https?|ftp|dns|whois):")
_MAX_URL, _MAX_TYPE, _MAX_LENGTH = 7000, 300, 20
_MAX_SIGN = 68

_EMPTY_LINE = re.compile(rb"\n\r*\n")
FOLD = re.compile(rb"\r?\n[ \t]")
_CHARSET = re.compile(r"charset\s*=\s*[\"']?\s*([^\s\"';,]+)", re.I)


def blanks_end(data: bytes, start: int) -> int:
    """Where empty lines that begin at `start` end; `start` if there are none."""
    match = _BLANKS.match(data, start)
    return match.end() if match else start


def begins_record(data: bytes) -> bool:
    """Whether content begins with a record, empty lines aside."""
    position = blanks_end(data, 0)
    return bool(WARC_LINE.match(data, position) or arc_line(data, position))


class ArcLine(NamedTuple):
    """The line before an ARC record's block; `size` with its end."""

    url: bytes
    ip: bytes
    date: bytes
    type: bytes
    length: bytes
    size: int


def arc_line(data: bytes, start: int) -> ArcLine | None:
    """The ARC line that begins at `start`, or None.

    ARC 1: URL, address, date, type, length; ARC 2 has result code, checksum, location, offset and file name before
    the length (archive.org/web/researcher/ArcFileFormat.php). Some URLs and types have spaces, so a line is taken
    apart from its right end.
    """
    if not _SCHEME.match(data, start):
        return None
    end = data.find(b"\n", start, start + LINE)
    line_fields = _behind_url(data[start:end]) if end >= 0 else None
    if not line_fields or line_fields[0] > _MAX_URL:
        return None
    return ArcLine(data[start : start + line_fields[0]], *line_fields[1:], end + 1 - start)


def find_arc_line(data: bytes, start: int, end: int) -> int:
    """Where in the line that ends with the line feed at `end` an ARC line begins, not before `start`; -1 if none does.

    That is at the first URL of a scheme that crawls have: damage may have taken the end of the line before.
    """
    start = max(start, end + 1 - LINE, data.rfind(b"\n", max(0, end - LINE), end) + 1)
    line_fields = _behind_url(data[start:end])
    if not line_fields:
        return -1
    stop = start + line_fields[0]
    match = _SCHEME_FOUND.search(data, max(start, stop - _MAX_URL), stop)
    return match.start() if match else -1


def _behind_url(line: bytes) -> tuple[int, bytes, bytes, bytes, bytes] | None:
    """How long the URL of an ARC line is, then address, date, type and length; None for another line."""
    before, _, length = line.removesuffix(b"\r").rpartition(b" ")
    if not 0 < len(length) <= _MAX_LENGTH:
        return None
    ends = [len(before)]
    parts = before.rsplit(b" ", 5)
    if len(parts) == 6 and _ARC_2.fullmatch(before, len(parts[0]) + 1):
        ends.insert(0, len(parts[0]))
    for end in ends:
        # the last sign there is: what looks like one further left is part of the URL
        for sign in reversed([*ARC_SIGN.finditer(before, max(0, end - _MAX_TYPE - _MAX_SIGN), end + 1)]):
            if sign.end() < end <= sign.end() + 1 + _MAX_TYPE:
                return sign.start(), sign["ip"], sign["date"], before[sign.end() + 1 : end], length
    return None


def head_end(data: bytes, start: int, limit: int) -> tuple[int, int] | None:
    """Where a head ends and what follows it begins: at the first empty line, with any kind of line ends."""
    usual = data.find(b"\r\n\r\n", start, limit)
    bare = data.find(b"\n\n", start, limit if usual < 0 else usual + 1)
    if bare < 0 <= usual:
        return usual, usual + 4
    match = _EMPTY_LINE.search(data, start, limit)
    return match.span() if match else None


def fields(head: bytes) -> dict[bytes, bytes]:
    """The header fields below a first line, by lower-case name; their values with the white space around them.

    Folded lines are unfolded, the values of repeated fields joined by commas.
    """
    lines = head.split(b"\n")[1:]
    # a blank before the colon is taken off, as RFC 9112, 5.1 asks
    values_by_name = {name.rstrip().lower(): value for name, _, value in [line.partition(b":") for line in lines]}
    if len(values_by_name) == len(lines) and b"\n " not in head and b"\n\t" not in head:
        return values_by_name
    values: dict[bytes, list[bytes]] = {}
    for line in FOLD.sub(b" ", head).split(b"\n")[1:]:
        name, _, value = line.partition(b":")
        values.setdefault(name.rstrip().lower(), []).append(value.strip())
    return {name: b", ".join(joined) for name, joined in values.items()}


def media_type(value: bytes) -> tuple[str, str | None]:
    """Essence, lower case, and charset of a Content-Type; of several joined ones the last counts (Fetch, 3.7)."""
    text = value.decode("latin-1")
    if "," in text:
        text = ([part for part in text.split(",") if "/" in part.split(";")[0]] or [text])[-1]
    essence, _, parameters = text.partition(";")
    match = _CHARSET.search(parameters) if parameters else None
    return essence.strip().lower(), match[1] if match else None
