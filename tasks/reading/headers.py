"""Lines that records and answers begin with: WARC and ARC record lines, header fields, the head of an HTTP message."""

import re

# A longer head is taken for damage.
HEAD = 1 << 16

# Where a record is expected, its first line is enough; to find one again after damage, a named field must follow it.
WARC_LINE = re.compile(rb"WARC/\d{1,2}\.\d{1,2}[ \t]*\r{0,2}\n")
WARC_FOUND = re.compile(rb"WARC/[01]\.\d{1,2}[ \t]*\r{0,2}\n(?=(?i:WARC-[a-z]|Content-(?:Type|Length)[ \t]*:))")

# ARC 1: URL, address, date, type, length; ARC 2 has result code, checksum, location, offset and file name before the
# length (archive.org/web/researcher/ArcFileFormat.php). Some URLs and types have spaces.
_ARC = (
    rb"(?P<url>[a-z][a-z0-9+.-]{1,30}:[^\n]{0,7000}) "
    rb"(?P<ip>[0-9]{1,3}(?:\.[0-9]{1,3}){3}|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*) "
    rb"(?P<date>[0-9]{8,20}) (?P<type>[^\n]{0,300}?)"
    rb"(?: [0-9]{3} [^ \n]{1,99} [^ \n]{1,2000} [0-9]{1,20} [^ \n]{1,300})? (?P<length>[^ \n]{1,20})\r?\n"
)
ARC_LINE = re.compile(_ARC, re.I)
ARC_FOUND = re.compile(_ARC.replace(b"[a-z][a-z0-9+.-]{1,30}", b"(?:filedesc|https?|ftp|dns|whois)"))

_EMPTY_LINE = re.compile(rb"\n\r*\n")
_FOLD = re.compile(rb"\r?\n[ \t]")
_CHARSET = re.compile(r"charset\s*=\s*[\"']?\s*([^\s\"';,]+)", re.I)


def head_end(data: bytes, start: int, limit: int) -> tuple[int, int] | None:
    """Where a head ends and what follows it begins: at the first empty line, whatever the line ends are."""
    usual = data.find(b"\r\n\r\n", start, limit)
    bare = data.find(b"\n\n", start, limit if usual < 0 else usual + 1)
    if bare < 0 <= usual:
        return usual, usual + 4
    found = _EMPTY_LINE.search(data, start, limit)
    return found.span() if found else None


def fields(head: bytes) -> dict[bytes, bytes]:
    """The header fields below a first line, by lower-case name; their values with the white space around them.

    Folded lines are unfolded, the values of repeated fields joined by commas.
    """
    lines = head.split(b"\n")[1:]
    found = {name.lower(): value for name, _, value in [line.partition(b":") for line in lines]}
    if len(found) == len(lines) and b"\n " not in head and b"\n\t" not in head:
        return found
    values: dict[bytes, list[bytes]] = {}
    for line in _FOLD.sub(b" ", head).split(b"\n")[1:]:
        name, _, value = line.partition(b":")
        values.setdefault(name.lower(), []).append(value.strip())
    return {name: b", ".join(joined) for name, joined in values.items()}


def media_type(value: bytes) -> tuple[str, str | None]:
    """Essence, lower case, and charset of a Content-Type; of several joined ones the last counts (Fetch, 3.7)."""
    text = value.decode("latin-1")
    if "," in text:
        text = ([part for part in text.split(",") if "/" in part.split(";")[0]] or [text])[-1]
    essence, _, parameters = text.partition(";")
    named = _CHARSET.search(parameters) if parameters else None
    return essence.strip().lower(), named[1] if named else None
