"""What payloads are by their bytes, made by the libraries that write such files or by the formats' documents."""

import bz2
import gzip
import io
import json
import lzma
import sqlite3
import tarfile
import wave
import zipfile

import pytest

from gristmill.tasks.extraction.page import extract_page
from gristmill.tasks.extraction.payload_types import payload_type

OFFICE = "application/vnd.openxmlformats-officedocument."
TEXT = "The mill stands where the river leaves the forest, and its wheel is never still."


def packed(*files: tuple[str, str]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in files:
            archive.writestr(name, content)
    return made.getvalue()


def tar() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        entry = tarfile.TarInfo("mill.txt")
        entry.size = len(TEXT)
        archive.addfile(entry, io.BytesIO(TEXT.encode()))
    return made.getvalue()


def sound() -> bytes:
    made = io.BytesIO()
    with wave.open(made, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(bytes(400))
    return made.getvalue()


def database() -> bytes:
    with sqlite3.connect(":memory:") as connection:
        connection.execute("create table mill (name text)")
        return connection.serialize()


FEED = f'<rss version="2.0"><channel><title>Mill</title><item><description>{TEXT}</description></item></channel></rss>'
PAYLOADS = [
    ("application/rss+xml", f'<?xml version="1.0"?>\n<!-- made -->\n{FEED}'.encode()),
    ("application/rss+xml", b"\xef\xbb\xbf" + FEED.encode()),
    (
        "application/atom+xml",
        b'<?xml version="1.0"?><?xml-stylesheet href="a"?><feed xmlns="a"><title>Mill</title></feed>',
    ),
    ("application/rdf+xml", b"<rdf:RDF xmlns:rdf='a'><item/></rdf:RDF>"),
    ("application/xml", b'<?xml version="1.0"?>\n<urlset><url><loc>https://mill.example/</loc></url></urlset>'),
    ("image/svg+xml", f'<?xml version="1.0"?><svg><text>{TEXT}</text></svg>'.encode()),
    ("application/json", json.dumps({"mill": [TEXT, {"wheel": 1}]}).encode()),
    ("application/json", b"[1, 2]"),
    ("application/rtf", rb"{\rtf1\ansi{\fonttbl{\f0 Times;}}\f0 The mill stands.\par}"),
    ("application/postscript", b"%!PS-Adobe-3.0\n/Times findfont\n"),
    ("application/pdf", b"%PDF-1.7\n"),
    ("application/pdf", b"\r\n  %PDF-1.4\n"),
    ("text/calendar", b"BEGIN:VCALENDAR\r\nVERSION:2.0\r\nEND:VCALENDAR\r\n"),
    ("text/vcard", b"BEGIN:VCARD\r\nFN:Miller\r\nEND:VCARD\r\n"),
    ("application/x-ole-storage", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(504)),
    (OFFICE + "wordprocessingml.document", packed(("[Content_Types].xml", "<a/>"), ("word/document.xml", TEXT))),
    (OFFICE + "spreadsheetml.sheet", packed(("[Content_Types].xml", "<a/>"), ("xl/workbook.xml", TEXT))),
    (OFFICE + "presentationml.presentation", packed(("_rels/.rels", "<a/>"), ("ppt/presentation.xml", TEXT))),
    ("application/epub+zip", packed(("mimetype", "application/epub+zip"), ("a.xhtml", TEXT))),
    ("application/vnd.oasis.opendocument.text", packed(("mimetype", "application/vnd.oasis.opendocument.text"))),
    ("application/zip", packed(("mill.txt", TEXT))),
    ("application/gzip", gzip.compress(TEXT.encode())),
    ("application/x-bzip2", bz2.compress(TEXT.encode())),
    ("application/x-xz", lzma.compress(TEXT.encode())),
    ("application/x-tar", tar()),
    ("application/vnd.sqlite3", database()),
    ("audio/wav", sound()),
    ("image/gif", b"GIF89a" + bytes(20)),
    ("image/webp", b"RIFF\x24\0\0\0WEBPVP8 " + bytes(20)),
    ("image/avif", b"\0\0\0\x20ftypavif" + bytes(20)),
    ("video/mp4", b"\0\0\0\x20ftypisom" + bytes(20)),
    ("image/vnd.microsoft.icon", b"\0\0\1\0\1\0\x10\x10" + bytes(20)),
    ("image/bmp", b"BM\x46" + bytes(50)),
    ("font/woff2", b"wOF2\0\1\0\0" + bytes(40)),
    ("application/octet-stream", bytes(range(32)) * 9),
]


@pytest.mark.parametrize("declared", ["", "text/html", "text/plain", "application/xhtml+xml"])
@pytest.mark.parametrize(("kind", "payload"), PAYLOADS, ids=[f"{k} {kind}" for k, (kind, _) in enumerate(PAYLOADS)])
def test_a_payload_is_what_its_bytes_say(kind, payload, declared):
    assert payload_type(payload, declared) == kind
    found = extract_page(payload, declared, None, "https://mill.example/", "blocks", "plain")
    assert (found["rule"], found["detail"]) == ("content_type", kind)


def test_a_text_that_a_user_names_may_be_of_any_format_that_is_text():
    """A row of JSON lines, or a file of code."""
    texts = ("xml", "svg", "json", "rtf", "postscript", "text/")
    for kind, payload in PAYLOADS:
        found = payload_type(payload, "text/plain", given=True)
        assert found == (None if any(name in kind for name in texts) and b"\0" not in payload[:99] else kind), kind


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32", "iso-2022-jp", "shift_jis"]
)
def test_texts_and_pages_are_none_of_them(encoding):
    text = TEXT * 5 if encoding in ("utf-8", "utf-32") else "水車は川のほとりに立ち、" * 20
    for declared, given in (
        ("text/plain", text),
        ("text/html", f"<html><body><p>{text}</p></body></html>"),
        ("text/html", f"<!-- a --><p>[1] {{x}} {text}</p>"),
        ("text/plain", f"[1] {text}"),
        ("text/plain", f"{{not json}} {text}"),
        ("text/plain", f"BZh is how bzip2 begins. {text}"),
        ("text/html", f'<?xml version="1.0"?><!DOCTYPE html><html><body><p>{text}</p></body></html>'),
        ("text/html", f"<svg><path/></svg><p>{text}</p>"),
    ):
        payload = given.encode(encoding)
        assert payload_type(payload, declared, encoding.removesuffix("-sig")) is None
        kept = extract_page(payload, declared, encoding.removesuffix("-sig"), "https://mill.example/", "plain", "plain")
        assert text[:40] in kept["text"]


def test_a_text_that_nobody_names_is_one():
    for text in ("a,b,c\n1,2,3\n", TEXT):
        assert extract_page(text.encode(), "", None, "https://mill.example/", "blocks", "plain")["engine"] == "text"


def test_a_control_character_here_and_there_makes_no_binary_file():
    page = f"<html><body><p>{TEXT}\x00 {TEXT}\x0b</p></body></html>".encode()
    assert payload_type(page, "text/html") is None
    assert payload_type(b"<html>" + bytes(range(32)) * 9, "text/html") is None, "it begins as a page"
