"""From a page's bytes to its text, in the order of the HTML standard: byte order mark, HTTP header, meta, detection."""

import codecs
import re

from resiliparse.parse.encoding import detect_encoding, map_encoding_to_html5

_MARKS = (
    (b"\xef\xbb\xbf", "utf-8"),
    # not of the standard, which knows no UTF-32: no text in UTF-16 begins with U+0000
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xfe\xff", "utf-16-be"),
    (b"\xff\xfe", "utf-16-le"),
)
_PRESCAN = 1024
_SAMPLE = 1 << 16

# Labels that resiliparse does not map: some of the standard (encoding.spec.whatwg.org), and names that its own detector
# gives. Where the standard refuses to decode (iso-2022-kr) a browser is in danger, a reader of text is not.
_LABELS = {
    "x-user-defined": "cp1252",
    "x-mac-cyrillic": "mac-cyrillic",
    "x-mac-ukrainian": "mac-cyrillic",
    "mac-cyrillic": "mac-cyrillic",
    "iso-2022-kr": "iso2022_kr",
    "iso2022_kr": "iso2022_kr",
    "uhc": "cp949",
    "cp949": "cp949",
    "cp855": "cp855",
    "utf-32": "utf-32",
}
# The standard's decoder of an encoding is that of its superset.
_SUPERSETS = {
    "ascii": "cp1252",
    "big5": "big5hkscs",
    "euc_kr": "cp949",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "shift_jis": "cp932",
    "tis-620": "cp874",
}

_SPACE = rb"[\t\n\x0c\r ]"
_TOKEN = re.compile(
    rb"<!--(?:>|.*?-->)|(?P<meta><meta(?=[\t\n\x0c\r /]))|(?P<tag></?[a-z][^\t\n\x0c\r >]*)|<[!/?][^>]*>",
    re.IGNORECASE | re.DOTALL,
)
_ATTRIBUTE = re.compile(
    rb"[\t\n\x0c\r /]*(?P<name>[^\t\n\x0c\r />][^\t\n\x0c\r />=]*)"
    rb"(?:"
    + _SPACE
    + rb"*="
    + _SPACE
    + rb"*(?:\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)'|(?P<bare>[^\t\n\x0c\r >]*)))?"
)
_CHARSET = re.compile(
    rb"charset" + _SPACE + rb"*=" + _SPACE + rb"*(?:\"([^\"]*)\"|'([^']*)'|([^\t\n\x0c\r ;\"'][^\t\n\x0c\r ;]*))",
    re.IGNORECASE,
)
_XML = re.compile(rb"<\?xml[^>]*?encoding[\x00-\x20]*=[\x00-\x20]*(?:\"([^\">]*)\"|'([^'>]*)')")


def detect(payload: bytes, header_charset: str | None, is_html: bool) -> str:
    """Python's codec for a page's encoding (HTML standard, 13.2.3.2).

    `header_charset`: as the HTTP header names it. `is_html`: whether a meta element counts.
    """
    for mark, name in _MARKS:
        if payload.startswith(mark):
            return name
    if header_charset and (encoding := _named(header_charset)):
        return encoding
    if is_html and (encoding := prescan(payload)):
        return encoding
    return guess(payload)


def decode(payload: bytes, charset: str) -> str:
    """The text of a payload without its byte order mark; bytes that the encoding does not have become U+FFFD.

    Never raises: an unknown `charset` is taken for UTF-8.
    """
    for mark, name in _MARKS:
        if name == charset and payload.startswith(mark):
            payload = payload[len(mark) :]
            break
    try:
        codec = _codec(charset)
        text = payload.decode(codec, "html" if codec.startswith(("cp125", "gb18030")) else "replace")
    except (LookupError, ValueError):
        text = payload.decode("utf-8", "replace")
    # some of Python's decoders pass lone surrogates on, that of UTF-8 does not
    if charset == "utf-8" or text.isascii() or not _SURROGATES.search(text):
        return text
    return text.encode("utf-8", "replace").decode("utf-8")


def prescan(payload: bytes) -> str | None:
    """What a meta element, else an XML declaration, in the first 1024 bytes names (HTML standard, prescan).

    None if nothing there names an encoding that is known.
    """
    head = payload[:_PRESCAN]
    if head.startswith(b"<\x00?\x00x\x00"):
        return "utf-16-le"
    if head.startswith(b"\x00<\x00?\x00x"):
        return "utf-16-be"
    position = 0
    while token := _TOKEN.search(head, position):
        position = token.end()
        if token["meta"] or token["tag"]:
            attributes, position = _attributes(head, position)
            if token["meta"] and (encoding := _of_meta(attributes)):
                return encoding
    declared = _XML.match(head)
    return _in_page(declared[1] or declared[2] or b"") if declared else None


def _attributes(head: bytes, position: int) -> tuple[dict[bytes, bytes], int]:
    """A tag's attributes, the first of each name, and where the tag ends."""
    attributes: dict[bytes, bytes] = {}
    while attribute := _ATTRIBUTE.match(head, position):
        value = attribute["double"] or attribute["single"] or attribute["bare"] or b""
        attributes.setdefault(attribute["name"].lower(), value.lower())
        position = attribute.end()
    return attributes, position


def _of_meta(attributes: dict[bytes, bytes]) -> str | None:
    if b"charset" in attributes:
        return _in_page(attributes[b"charset"])
    if attributes.get(b"http-equiv") == b"content-type" and (match := _CHARSET.search(attributes.get(b"content", b""))):
        return _in_page(match[1] or match[2] or match[3] or b"")
    return None


def _in_page(label: bytes) -> str | None:
    """As a page names its own encoding: one that could be read so far is not UTF-16."""
    encoding = _named(label.decode("latin-1"))
    return "utf-8" if encoding and encoding.startswith("utf-16") else encoding


def _named(label: str) -> str | None:
    label = label.strip("\t\n\x0c\r ").lower()
    name = _LABELS.get(label) or map_encoding_to_html5(label, fallback_utf8=False)
    return _codec(name) if name else None


def _codec(name: str) -> str:
    """Python's codec for an encoding as the standard decodes it. Raises LookupError."""
    name = codecs.lookup(name).name
    if name.endswith("unicode-escape"):
        raise LookupError(f"{name} is how Python writes strings, and no encoding of pages")
    return _SUPERSETS.get(name, name)


def guess(payload: bytes) -> str:
    """By the bytes alone: zeros tell UTF-16 and UTF-32, validity UTF-8, uchardet the others, by the first 64 KiB.

    What uchardet cannot tell, or takes for an encoding that the web does not use, is windows-1252.
    """
    sample = payload[:_SAMPLE]
    if wide := _wide(sample):
        return wide
    if b"\x1b$" not in sample:
        try:
            codecs.getincrementaldecoder("utf-8")().decode(sample)
            return "utf-8"
        except UnicodeDecodeError:
            pass
    return _named(detect_encoding(sample, max_len=0, html5_compatible=False) or "") or "cp1252"


def _wide(sample: bytes) -> str | None:
    """UTF-16 or UTF-32 by where zeros are: most characters of markup, in whatever language, are below U+0100."""
    sample = sample[: len(sample) // 4 * 4]
    if len(sample) < 8 or b"\0" not in sample:
        return None
    zeros = [sample[i::4].count(0) * 4 / len(sample) for i in range(4)]
    for name, high, low in (
        ("utf-32-le", (2, 3), (0,)),
        ("utf-32-be", (0, 1), (3,)),
        ("utf-16-le", (1, 3), (0, 2)),
        ("utf-16-be", (0, 2), (1, 3)),
    ):
        if min(zeros[i] for i in high) > 0.3 and max(zeros[i] for i in low) < 0.1:
            return name
    return None


def _undefined(error: UnicodeError) -> tuple[str, int]:
    """What the standard's decoders have where Python's have nothing.

    In the windows encodings a byte below 0xA0 without a character is the control of its number; in GBK 0x80 is the
    euro sign.
    """
    assert isinstance(error, UnicodeDecodeError), "only decoders are given this handler"
    byte = error.object[error.start]
    if error.encoding == "gb18030":
        return ("€", error.start + 1) if byte == 0x80 else ("\ufffd", error.end)
    return chr(byte) if byte < 0xA0 else "\ufffd", error.start + 1


_SURROGATES = re.compile("[\ud800-\udfff]")
codecs.register_error("html", _undefined)
