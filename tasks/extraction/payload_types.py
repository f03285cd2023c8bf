"""What a payload is by its bytes, whatever a server calls it: servers send anything as HTML or text.

Beginnings of formats are those of WHATWG MIME Sniffing (sections 6 and 7) and of the formats' own documents, as the
registry of IANA names them. Scripts, style sheets and tables of text have no beginning of their own: what is sent as
text is a text.
"""

import re
from collections import Counter
from collections.abc import Iterable

import orjson

from gristmill.tasks.reading import charset

PDF = "application/pdf"
# Types that say nothing.
OCTETS = ("application/octet-stream", "binary/octet-stream")
_SPACES = b"\0\t\n\f\r "
# A reader of PDF looks for its mark in so many bytes (ISO 32000-2, annex I.3.4); here white space alone stands before.
_HEAD = 1024
_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"\0\0\1\0", "image/vnd.microsoft.icon"),
    (b"8BPS", "image/vnd.adobe.photoshop"),
    (b"ID3", "audio/mpeg"),
    (b"OggS\0", "application/ogg"),
    (b"fLaC", "audio/flac"),
    (b"MThd\0\0\0\6", "audio/midi"),
    (b"\x1a\x45\xdf\xa3", "video/webm"),
    (b"FLV\1", "video/x-flv"),
    (b"\0\0\1\xba", "video/mpeg"),
    (b"wOFF", "font/woff"),
    (b"wOF2", "font/woff2"),
    (b"OTTO\0", "font/otf"),
    (b"\0\1\0\0\0", "font/ttf"),
    (b"\x1f\x8b\x08", "application/gzip"),
    (b"BZh", "application/x-bzip2"),
    (b"\xfd7zXZ\0", "application/x-xz"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"Rar!\x1a\x07", "application/vnd.rar"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"),
    (b"CWS", "application/vnd.adobe.flash.movie"),
    (b"FWS", "application/vnd.adobe.flash.movie"),
    (b"\x7fELF", "application/x-elf"),
    (b"MZ\x90\0", "application/vnd.microsoft.portable-executable"),
    (b"\xca\xfe\xba\xbe", "application/java-vm"),
    (b"\0asm", "application/wasm"),
    (b"SQLite format 3\0", "application/vnd.sqlite3"),
    (b"PAR1", "application/vnd.apache.parquet"),
    (b"%!PS", "application/postscript"),
    (b"{\\rtf", "application/rtf"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "application/x-ole-storage"),
    (b"BEGIN:VCARD", "text/vcard"),
    (b"BEGIN:VCALENDAR", "text/calendar"),
    (b"-----BEGIN PGP ", "application/pgp-encrypted"),
)
_MARKS = tuple(beginning for beginning, _ in _BEGINNINGS)
# Those that a text could begin with, too, are taken for these where a byte that no text has is near.
_ALSO_TEXT = frozenset({b"BZh", b"CWS", b"FWS", b"ID3", b"PAR1", b"8BPS", b"FLV\1", b"wOFF", b"wOF2", b"fLaC"})
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav", b"AVI ": "video/avi"}
_BRANDS = {
    b"avif": "image/avif",
    b"avis": "image/avif",
    b"heic": "image/heic",
    b"M4A ": "audio/mp4",
    b"qt  ": "video/quicktime",
}
_OFFICE = "application/vnd.openxmlformats-officedocument."
_IN_ZIP = (
    (b"word/", _OFFICE + "wordprocessingml.document"),
    (b"xl/", _OFFICE + "spreadsheetml.sheet"),
    (b"ppt/", _OFFICE + "presentationml.presentation"),
)
_ZIP_TYPE = re.compile(rb"mimetype(application/[a-z0-9.+-]{1,100})")
# What stands before the first element of an XML document.
_PROLOG = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:\s++|<\?.{0,4000}?\?>|<!--.{0,4000}?-->|<![A-Za-z][^>]{0,4000}>){0,50}", re.DOTALL
)
_ROOTS = (
    (re.compile(rb"<rss[\s>]"), "application/rss+xml"),
    (re.compile(rb"<feed[\s>]"), "application/atom+xml"),
    (re.compile(rb"<rdf:RDF[\s>]"), "application/rdf+xml"),
    (re.compile(rb"<(?:urlset|sitemapindex|opml|gpx|kml|OpenSearchDescription)[\s>]"), "application/xml"),
)
_SVG = re.compile(rb"<svg[\s>]")
# Binary data bytes of MIME Sniffing, section 3; a payload with more of them among its first bytes than this share, and
# this number, is no text.
_BINARY_BYTES = bytes({*range(0x20)} - {*b"\t\n\f\r\x1b"})
_LOOKED_AT, _SHARE, _FEW = 4096, 0.05, 8
# How a page of no declared type begins: a comment, or an element of HTML. WHATWG MIME Sniffing, section 7.1, has some
# of the elements; pages of crawls begin with others, too, and what is no page begins with none of them.
_ELEMENTS = (
    b"!doctype html|html|head|script|iframe|h[1-6]|div|font|table|a|style|title|b|body|br|p|article|aside|base"
    b"|blockquote|center|dd|dl|dt|em|fieldset|footer|form|frameset|header|hr|i|img|input|li|link|main|meta|nav|noscript|ol|pre"
    b"|section|span|strong|tbody|td|th|tr|u|ul"
)
_HTML_BEGINS = re.compile(
    rb"(?:\xef\xbb\xbf)?[\t\n\f\r ]*<(?:!--|(?:" + _ELEMENTS + rb")[\s/>])",
    re.IGNORECASE,
)
_JSON_BEGINS = re.compile(rb"[\xef\xbb\xbf\s]{0,1000}[\[{]")


def is_pdf(payload: bytes) -> bool:
    return payload[:_HEAD].lstrip(_SPACES).startswith(b"%PDF-")


def is_html(payload: bytes) -> bool:
    """Whether it begins as a page."""
    return bool(_HTML_BEGINS.match(payload))


def is_binary(payload: bytes) -> bool:
    """Whether there is a byte that no text has among the first."""
    return _binary_count(payload[:_LOOKED_AT]) > 0


def _binary_count(head: bytes) -> int:
    return len(head) - len(head.translate(None, _BINARY_BYTES))


def payload_type(payload: bytes, declared: str, header_charset: str | None = None, given: bool = False) -> str | None:
    """The type of a payload that is no page and no text, by its bytes; None for what may be one. Raises nothing.

    declared: its essence in lower case, "" for none. header_charset: as the HTTP header names it. given: a text by the
    user's word, of which binary formats alone are told. A drawing (SVG) by itself counts where it is not declared as a
    page; JSON counts if it is whole.
    """
    if is_pdf(payload):
        return PDF
    head = payload[:_LOOKED_AT]
    binary = _binary_count(head)
    for beginning, name in _BEGINNINGS if payload.startswith(_MARKS) else ():
        if payload.startswith(beginning) and (binary or not given and beginning not in _ALSO_TEXT):
            return name
    if payload.startswith(b"PK\x03\x04"):
        return _of_zip(head)
    if payload.startswith(b"RIFF") and payload[8:12] in _RIFF:
        return _RIFF[payload[8:12]]
    if payload[4:8] == b"ftyp" and binary:
        return _BRANDS.get(payload[8:12], "video/mp4")
    if payload[257:262] == b"ustar":
        return "application/x-tar"
    if binary > max(_FEW, _SHARE * len(head)) and not is_html(payload) and not _is_wide(payload, header_charset):
        return "image/bmp" if payload.startswith(b"BM") else "application/octet-stream"
    return None if given else _of_text(payload, declared)


def _is_wide(payload: bytes, header_charset: str | None) -> bool:
    """Whether bytes that no text has are halves of characters."""
    return charset.detect(payload, header_charset, False).startswith(("utf-16", "utf-32"))


def _of_zip(head: bytes) -> str:
    if match := _ZIP_TYPE.match(head, 30):  # the first file of EPUB and OpenDocument, behind its header
        return match[1].decode("ascii")
    if b"[Content_Types].xml" in head or b"_rels/" in head:
        return next((name for folder, name in _IN_ZIP if folder in head), "application/zip")
    return "application/zip"


def _of_text(payload: bytes, declared: str) -> str | None:
    prolog = _PROLOG.match(payload)
    begin = prolog.end() if prolog else 0
    for root, name in _ROOTS:
        if root.match(payload, begin):
            return name
    if _SVG.match(payload, begin) and (b"<?xml" in payload[:begin] or declared in ("", "text/plain")):
        return "image/svg+xml"
    if _JSON_BEGINS.match(payload):
        try:
            orjson.loads(payload.removeprefix(b"\xef\xbb\xbf"))
        except orjson.JSONDecodeError:
            return None
        return "application/json"
    return None


# A type by RFC 6838, 4.2; a server may send anything.
_TYPE = re.compile(r"[a-z]+/[a-z0-9][-a-z0-9!#$&^_.+]{0,100}")
_MAX_TYPES = 30  # of a shard that are told apart


def type_counts(type_names: Iterable[str]) -> dict[str, int]:
    """How many records have each type, the most frequent types first; rare types and what is no type are `other`."""
    counts = Counter(name if _TYPE.fullmatch(name) else "other" for name in type_names)
    most = dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_MAX_TYPES])
    if rest := counts.total() - sum(most.values()):
        most["other"] = most.get("other", 0) + rest
    return most
