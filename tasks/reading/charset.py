"""From a page's bytes to its text: byte order mark, HTTP header and meta propose an encoding, the bytes decide.

Browsers believe the header. A crawl is read better by its bytes: servers send one label for files of all encodings.
"""

import codecs
import re
from typing import NamedTuple

from resiliparse.parse.encoding import detect_encoding, map_encoding_to_html5

from gristmill.tasks.reading import legibility

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
    "hz-gb-2312": "hz",
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
# Encodings of text that the standard does not know, or not by all names that Python knows (`utf-16-le`, `cp936`).
_OTHERS = frozenset(
    (
        *(
            "utf-8",
            "utf-16-le",
            "utf-16-be",
            "utf-32-le",
            "utf-32-be",
            "gb18030",
            "big5hkscs",
            "cp932",
            "euc_jp",
            "cp949",
        ),
        *("cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "cp874", "cp866"),
        *("cp437", "cp737", "cp775", "cp850", "cp852", "cp855", "cp857", "cp858", "cp860", "cp861", "cp862", "cp863"),
        *("cp864", "cp865", "cp869", "koi8-r", "koi8-u", "koi8-t", "kz1048", "ptcp154", "johab", "hz", "iso2022_jp"),
        *(f"iso8859-{number}" for number in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)),
        *("mac-roman", "mac-latin2", "mac-greek", "mac-turkish", "mac-cyrillic", "mac-iceland", "mac-croatian"),
    )
)
_LABEL = re.compile(r"[a-z0-9][a-z0-9._:-]*")
_WINDOWS = re.compile(r"^(?:x-)?(?:windows|win|cp|ms)?[-_ ]?(125[0-8])$")
# The standard decodes some encodings as their superset.
_SUPERSETS = {
    "ascii": "cp1252",
    "big5": "big5hkscs",
    "cp950": "big5hkscs",
    "utf-16": "utf-16-le",
    "utf-32": "utf-32-le",
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


class Encoding(NamedTuple):
    """`name`: Python's codec that a payload is read in. `declared`: the codec named by the byte order mark, else by
    the HTTP header, else by the page; None without a known name."""

    name: str
    declared: str | None


# This many valid characters of UTF-8 are not a coincidence, regardless of the label.
_NO_ACCIDENT = 8
# A label is wrong if another encoding has fewer faults by so much: that many, and that share of all characters.
_FAULTS, _SHARE = 2.0, 0.1
# ... or by so much if uchardet thinks so, too.
_FAULTS_BY_TWO, _SHARE_BY_TWO = 1.0, 0.03
# ... and if the label has this many times its faults.
_TIMES = 3
# Where no label says UTF-8, this many characters of it for each byte that is none.
_FOR_EACH = 4
# Of fewer characters outside ASCII uchardet can say little.
_FEW = 3
# What bytes that no label describes are taken for is wrong if another encoding has fewer faults by this share.
_GUESS_SHARE = 0.02
# Encodings of more than a thousandth of the web's pages in their time; others must be more legible than windows-1252.
_USUAL = frozenset(
    (
        *("cp1252", "cp1250", "iso8859-2", "cp1254", "cp1257", "cp1251", "koi8-r", "cp1253", "iso8859-7", "cp1255"),
        *("cp1256", "cp874", "cp1258", "gb18030", "big5hkscs", "cp932", "euc_jp", "cp949"),
    )
)
# With this many characters uchardet recognizes an alphabet, where letters of two make words.
_ENOUGH = 20
_ESCAPES = (
    (re.compile(rb"\x1b\$[@B]|\x1b\([JI]"), "iso2022_jp"),
    (re.compile(rb"\x1b\$\)C"), "iso2022_kr"),
)
_WIDE = ("utf-16", "utf-32")
_SEVEN_BITS = ("iso2022_jp", "iso2022_kr", "hz", "utf-7")


def detect(payload: bytes, header_charset: str | None, is_html: bool) -> str:
    """Python's codec for a page's encoding; arguments as of `encoding_of`."""
    return encoding_of(payload, header_charset, is_html).name


def encoding_of(payload: bytes, header_charset: str | None, is_html: bool) -> Encoding:
    """The encoding of a page, and which one it declares.

    `header_charset`: as the HTTP header names it. `is_html`: whether a meta element counts. A label is used unless
    the bytes contradict it: valid UTF-8 is read as UTF-8, and bytes that are not valid in the label's encoding, or not
    legible in it (`gristmill.tasks.reading.legibility`), are read in the encoding in which they are legible. Raises
    nothing.
    """
    for mark, name in _MARKS:
        if payload.startswith(mark) and name != "utf-8":
            return Encoding(name, name)
    header = _named(header_charset) if header_charset else None
    if payload.startswith(codecs.BOM_UTF8):
        header = "utf-8"
    if header == "utf-8" and b"\0" not in payload and b"\x1b" not in payload and _is_utf8(payload):
        return Encoding("utf-8", "utf-8")
    in_page = prescan(payload) if is_html else None
    declared = header or in_page
    labels = [label for label in dict.fromkeys((header, in_page)) if label]
    return Encoding(_decided(payload, labels), declared)


def _decided(payload: bytes, labels: list[str]) -> str:
    """The codec of a payload without a byte order mark of UTF-16 or UTF-32; `labels`: the declared codecs, the most
    reliable first."""
    wide_labels = [label for label in labels if label.startswith(_WIDE)]
    if wide := _wide(payload[:_SAMPLE], bool(wide_labels)):
        return wide
    labels = [label for label in labels if not label.startswith(_WIDE)]
    if payload.isascii():
        return _seven_bits(payload, labels)
    if _is_utf8(payload):
        return _utf8_or(payload, labels)
    if wide_labels and (wide := _legible_wide(payload[:_SAMPLE], wide_labels[0])):
        return wide
    if _is_mostly_utf8(payload, labels):
        return "utf-8"
    # it is not in seven bits either
    return _most_legible(payload, [label for label in labels if label not in ("utf-8", *_SEVEN_BITS)])


def _is_utf8(payload: bytes) -> bool:
    """Whether all of it is UTF-8, but for a character that its end cuts."""
    try:
        return payload.isascii() or bool(payload.decode())
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data" and error.end == len(payload)


def _seven_bits(payload: bytes, labels: list[str]) -> str:
    """ASCII is what it is in nearly all encodings: the first label that reads it."""
    if b"\x1b" in payload:
        for escape, name in _ESCAPES:
            if escape.search(payload) and _is_valid(payload, name):
                return name
    for label in labels:
        if label not in _SEVEN_BITS or _is_valid(payload, label):
            return label
    return "utf-8"


def _is_valid(payload: bytes, codec: str) -> bool:
    try:
        payload.decode(codec)
    except UnicodeError:
        return False
    return True


def _utf8_or(payload: bytes, labels: list[str]) -> str:
    """UTF-8 that is valid, or a label in which few characters are as legible."""
    if labels[:1] in ([], ["utf-8"]) or len(_NOT_CONTINUING.findall(payload)) >= _NO_ACCIDENT:
        return "utf-8"
    text = legibility.excerpt(payload)
    of_utf8, _ = legibility.faults(text.decode("utf-8", "replace"), "utf-8")
    of_label, _ = legibility.faults(decode(text, labels[0]), labels[0])
    return labels[0] if labels[0] not in _SEVEN_BITS and of_label < of_utf8 else "utf-8"


_NOT_CONTINUING = re.compile(rb"[\xc2-\xf4]")


def _is_mostly_utf8(payload: bytes, labels: list[str]) -> bool:
    """Whether most of what is not ASCII is valid UTF-8: nearly all, where no label says so."""
    text = payload.decode("utf-8", "html")
    wrong = text.count("\ufffd")
    right = len(text) - len(text.encode("ascii", "ignore")) - wrong
    if not wrong or "utf-8" in labels:
        return right >= wrong or 0 < right and wrong < _FEW
    return right >= _FOR_EACH * wrong


def _most_legible(payload: bytes, labels: list[str]) -> str:
    """The encoding of bytes that are not UTF-8: the first label that is legible, else the most legible one."""
    text = legibility.excerpt(payload)
    if labels and not legibility.script(labels[0]) and not legibility.faults(decode(text, labels[0]), labels[0])[0]:
        return labels[0]
    guessed = _guessed(text)
    if guessed in ("utf-8", *_SEVEN_BITS):
        proposed = [*labels, "cp1252", *legibility.KNOWN]
    else:
        proposed = [*labels, guessed, *legibility.kin((*labels, guessed)), "cp1252", "mac-roman"]
    scores = {name: legibility.faults(decode(text, name), name) for name in dict.fromkeys(proposed)}
    least, characters = min(scores.values())
    for name in labels:
        wrong = scores[name][0]
        if characters >= _ENOUGH and guessed in scores and _is_other(name, guessed) and scores[guessed][0] <= wrong:
            continue
        by_two = scores.get(guessed, (wrong, 0))[0] == least
        faults, share = (_FAULTS_BY_TWO, _SHARE_BY_TWO) if by_two else (_FAULTS, _SHARE)
        if wrong - least < max(faults, share * characters) or wrong < _TIMES * least:
            return name
    if guessed in scores:
        own = scores[guessed][0]
        if guessed not in _USUAL or characters < _FEW:
            usual = ("cp1252", *(name for name in legibility.kin([guessed]) if name in _USUAL))
            guessed = min((*usual, guessed), key=lambda name: scores[name][0])
            own = scores[guessed][0]
        if own == 0 or own - least < _GUESS_SHARE * characters:
            return guessed
    scores |= {name: legibility.faults(decode(text, name), name) for name in legibility.KNOWN if name not in scores}
    return min(scores, key=lambda name: scores[name][0])


_CYRILLIC = ("cp1251", "koi8-r", "koi8-u", "iso8859-5", "mac-cyrillic", "cp866")
_JAPANESE = legibility.script("cp932")


def _is_other(label: str, guessed: str) -> bool:
    """Whether two encodings give letters of other alphabets, or other letters of a word throughout."""
    script, other = legibility.script(label), legibility.script(guessed)
    alike = script == other and label not in _CYRILLIC and script != _JAPANESE
    return label != guessed and script > 0 and other > 0 and not alike


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
        text = payload.decode(codec, "html" if codec.startswith(("cp125", "gb18030", "utf-8")) else "replace")
    except (LookupError, ValueError):
        text = payload.decode("utf-8", "html")
    # some of Python's decoders pass lone surrogates on; the UTF-8 decoder does not
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
    position = 0 if b"charset" in head.lower() else len(head)  # no meta element names one without this word
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
    """The encoding that a page names itself: a page that could be read so far is not UTF-16."""
    encoding = _named(label.decode("latin-1"))
    return "utf-8" if encoding and encoding.startswith("utf-16") else encoding


def _named(label: str) -> str | None:
    label = label.strip("\t\n\x0c\r ").lower()
    if name := _LABELS.get(label) or map_encoding_to_html5(label, fallback_utf8=False):
        return _codec(name)
    if not _LABEL.fullmatch(label):
        return None
    label = _WINDOWS.sub(r"cp\1", label)
    try:
        name = _codec(label)
    except (LookupError, ValueError):
        return None
    return name if name in _OTHERS else None


def _codec(name: str) -> str:
    """Python's codec for an encoding as the standard decodes it. Raises LookupError."""
    name = codecs.lookup(name).name
    if name.endswith("unicode-escape"):
        raise LookupError(f"{name} is a Python string format, not an encoding of pages")
    return _SUPERSETS.get(name, name)


def guess(payload: bytes) -> str:
    """Python's codec for bytes without a declared encoding; windows-1252 if the bytes do not show it."""
    for mark, name in _MARKS:
        if payload.startswith(mark):
            return name
    return _decided(payload, [])


def _guessed(text: bytes) -> str:
    """What uchardet takes bytes for; windows-1252 for what it cannot tell, or what the web does not use."""
    return _named(detect_encoding(text, max_len=0, html5_compatible=False) or "") or "cp1252"


def _wide(sample: bytes, declared: bool) -> str | None:
    """UTF-16 or UTF-32 by where zeros are: most characters of markup, in whatever language, are below U+0100.

    `declared`: a label says so; then blanks and line ends between characters of other scripts are enough.
    """
    sample = sample[: len(sample) // 4 * 4]
    if len(sample) < 8 or b"\0" not in sample:
        return None
    zeros = [sample[i::4].count(0) * 4 / len(sample) for i in range(4)]
    many, few = (0.02, 0.005) if declared else (0.3, 0.1)
    for name, high, low in (
        ("utf-32-le", (2, 3), (0,)),
        ("utf-32-be", (0, 1), (3,)),
        ("utf-16-le", (1, 3), (0, 2)),
        ("utf-16-be", (0, 2), (1, 3)),
    ):
        if min(zeros[i] for i in high) > (0.3 if "32" in name else many) and max(zeros[i] for i in low) < few:
            return name
    return None


_HALVES = re.compile(rb"\xed[\xa0-\xaf][\x80-\xbf]\xed[\xb0-\xbf][\x80-\xbf]")


def _legible_wide(sample: bytes, label: str) -> str | None:
    """The declared UTF-16, or UTF-16 of the other byte order, if a text without any ASCII is legible in it."""
    for name in (label, *{"utf-16-le": ("utf-16-be",), "utf-16-be": ("utf-16-le",)}.get(label, ())):
        wrong, characters = legibility.faults(decode(sample[: len(sample) // 4 * 4], name), name)
        if wrong < _SHARE * characters:
            return name
    return None


def _undefined(error: UnicodeError) -> tuple[str, int]:
    """What the standard's decoders have where Python's have nothing.

    In the windows encodings a byte below 0xA0 without a character is the control of its number; in GBK 0x80 is the
    euro sign. In UTF-8 the two halves of a character of UTF-16 are that character (CESU-8, Unicode TR 26).
    """
    assert isinstance(error, UnicodeDecodeError), "only decoders are given this handler"
    if error.encoding == "utf-8":
        halves = _HALVES.match(error.object, error.start)
        if not halves:
            return "\ufffd", error.end
        return halves[0].decode("utf-8", "surrogatepass").encode("utf-16", "surrogatepass").decode(
            "utf-16"
        ), halves.end()
    byte = error.object[error.start]
    if error.encoding == "gb18030":
        return ("€", error.start + 1) if byte == 0x80 else ("\ufffd", error.end)
    return chr(byte) if byte < 0xA0 else "\ufffd", error.start + 1


_SURROGATES = re.compile("[\ud800-\udfff]")
codecs.register_error("html", _undefined)
