"""Crawls as files: WARC with records of every kind, charset and damage; ARC; WET; tables; lines of JSON."""

import hashlib
import io
import json
import struct
import zlib
from base64 import b32encode
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.golden.made.pages import article, few_pages, pages
from tests.golden.made.papers import papers
from tests.golden.made.unrendered import unrendered_pages
from tests.golden.made.words import SENTENCES, paragraph, prose

CHARSETS = (
    ("utf-8", "utf-8", "de"),
    ("iso-8859-1", "latin-1", "fr"),
    ("windows-1252", "cp1252", "fr"),
    ("windows-1251", "cp1251", "ru"),
    ("koi8-r", "koi8-r", "ru"),
    ("shift_jis", "shift_jis", "ja"),
    ("euc-jp", "euc_jp", "ja"),
    ("gb18030", "gb18030", "zh"),
    ("big5", "big5", "zh"),
    ("euc-kr", "euc_kr", "ko"),
    ("utf-16", "utf-16", "el"),
    ("utf-16le", "utf-16-le", "el"),
    ("iso-8859-7", "iso8859_7", "el"),
    ("windows-1255", "cp1255", "he"),
    ("windows-1256", "cp1256", "ar"),
    ("iso-8859-2", "iso8859_2", "pl"),
    ("tis-620", "tis_620", "th"),
)


def record(url: str, payload: bytes, number: int, **given: str) -> bytes:
    """A record of a WARC file. `given`: kind, status, content_type, date, block_type, digest."""
    kind = given.get("kind", "response")
    body = payload
    if kind == "response":
        head = f"HTTP/1.1 {given.get('status', '200 OK')}\r\nContent-Type: {given.get('content_type', 'text/html')}\r\n"
        body = f"{head}{given.get('more', '')}\r\n".encode("latin-1") + payload
    own = given.get("block_type", "application/http; msgtype=response" if kind == "response" else "text/plain")
    digest = given.get("digest", "")
    head = (
        f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Record-ID: <urn:uuid:{number:032x}>\r\n"
        f"WARC-Date: {given.get('date', f'2024-01-{1 + number % 28:02}T00:00:00Z')}\r\n"
        f"{f'WARC-Target-URI: {url}' + chr(13) + chr(10) if url else ''}"
        f"{f'WARC-Payload-Digest: {digest}' + chr(13) + chr(10) if digest else ''}"
        f"Content-Type: {own}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body + b"\r\n\r\n"


def _sha1(payload: bytes) -> str:
    return "sha1:" + b32encode(hashlib.sha1(payload).digest()).decode()


def stored(data: bytes) -> bytes:
    """A gzip member that compresses nothing, so that it is the same bytes by any release of zlib."""
    blocks = [data[at : at + 65535] for at in range(0, len(data), 65535)] or [b""]
    body = b"".join(
        struct.pack("<BHH", block is blocks[-1], len(block), len(block) ^ 0xFFFF) + block for block in blocks
    )
    ends = struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + body + ends


def packed(records: Sequence[bytes]) -> bytes:
    return b"".join(map(stored, records))


def write_archives(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    whole = [
        record(
            f"https://page{at % 9}.example/{at}",
            page.encode("utf-8", "replace"),
            at,
            content_type="text/html; charset=utf-8",
        )
        for at, page in enumerate(pages())
    ]
    (folder / "pages-0.warc.gz").write_bytes(packed(whole[::2]))
    (folder / "pages-1.warc.gz").write_bytes(packed(whole[1::2]))
    few = [
        record(f"https://few.example/{at}", page.encode("utf-8", "replace"), 5000 + at)
        for at, page in enumerate(few_pages())
    ]
    (folder / "few.warc.gz").write_bytes(packed(few))
    unrendered = [
        record(f"https://data.example/{at}", page.encode(), 7000 + at) for at, page in enumerate(unrendered_pages())
    ]
    (folder / "unrendered.warc.gz").write_bytes(packed(unrendered))
    odd = [*_charsets(), *_responses(), *_kinds()]
    (folder / "odd.warc.gz").write_bytes(packed(odd) + stored(b"no record at all"))
    (folder / "odd-plain.warc").write_bytes(b"".join(odd[::3])[:-40])
    (folder / "empty.warc.gz").write_bytes(b"")
    (folder / "pdf.warc.gz").write_bytes(packed(_papers()))
    (folder / "old.arc.gz").write_bytes(packed([*_arc()]))
    (folder / "text.warc.wet.gz").write_bytes(packed([*_wet()]))
    ranged = [record(f"https://range.example/{at}", article("", f"range {at}").encode(), 9000 + at) for at in range(24)]
    (folder / "ranged.warc.gz").write_bytes(packed(ranged))
    (folder / "ranged.warc").write_bytes(b"".join(ranged))


def _charsets() -> Iterator[bytes]:
    for at, (label, codec, code) in enumerate(CHARSETS):
        text = f"{SENTENCES[code]} " * 4
        plain = f"<html><head><title>t</title></head><body><p>{text}</p><p>{text}</p></body></html>"
        coded = plain.encode(codec, "ignore")
        meta = plain.replace("<title>", f"<meta charset={label}><title>").encode(codec, "ignore")
        yield record(
            f"https://cs.example/header/{label}", coded, 1000 + at, content_type=f'text/html; charset="{label.upper()}"'
        )
        yield record(f"https://cs.example/meta/{label}", meta, 1100 + at)
        yield record(f"https://cs.example/none/{label}", coded, 1200 + at)
        yield record(f"https://cs.example/wrong/{label}", coded, 1300 + at, content_type="text/html; charset=utf-8")
        yield record(f"https://cs.example/odd/{label}", meta, 1400 + at, content_type="text/html; charset=x-unknown")
    text = "caf\u00e9 \u2014 \u201cquoted\u201d na\u00efve " * 30
    yield record("https://cs.example/mojibake", f"<p>{text.encode().decode('cp1252', 'ignore')}</p>".encode(), 1500)
    yield record(
        "https://cs.example/c1",
        b"<p>" + b"words \x93quoted\x94 \x85 and \x80 5 " * 20,
        1501,
        content_type="text/html; charset=iso-8859-1",
    )
    yield record(
        "https://cs.example/bom",
        b"\xef\xbb\xbf<p>" + text.encode() * 3,
        1502,
        content_type="text/html; charset=latin-1",
    )
    yield record("https://cs.example/broken", text.encode()[:-1] * 5 + b"\xff\xfe<p>", 1503)


def _responses() -> Iterator[bytes]:
    body = article("", "response").encode()
    statuses = (
        "200 OK",
        "200",
        "404 Not Found",
        "301 Moved",
        "206 Partial",
        "500 Error",
        "203 Other",
        "299 X",
        "abc",
        "",
    )
    for at, status in enumerate(statuses):
        yield record(f"https://st.example/{at}", body, 2000 + at, status=status)
    types = (
        ("text/html", body),
        ("application/xhtml+xml", body),
        ("TEXT/HTML;charset=UTF-8", body),
        ("text/plain", prose("plain").encode()),
        ("text/plain; charset=utf-16", prose("p16").encode("utf-16")),
        ("application/json", b'{"a": [1, 2]}'),
        ("application/rss+xml", b"<rss><item>x</item></rss>"),
        ("image/png", b"\x89PNG\r\n\x1a\n" + bytes(50)),
        ("application/octet-stream", body),
        ("", body),
        ("text/html", b"%PDF-1.4 nothing"),
        ("text/html", b"\x1f\x8b\x08 no page"),
        ("application/pdf", body),
        ("text/css", b"p { x: y }"),
        ("text/xml", b"<?xml version='1.0'?><a>b</a>"),
        ("application/javascript", b"var x = 1;"),
        ("text/markdown", b"# Head\n\nwords " * 10),
        ("text/plain", b"\x00\x01\x02\x03" * 40),
        ("video/mp4", bytes(9)),
    )
    for at, (kind, payload) in enumerate(types):
        yield record(f"https://ty.example/{at}", payload, 2100 + at, content_type=kind)
    zipped = stored(body)
    codings = (
        ("gzip", zipped),
        ("gzip", body),
        ("gzip", zipped[:-9]),
        ("br", body),
        ("identity", body),
        ("deflate", body),
        ("x-gzip", zipped),
    )
    for at, (coding, payload) in enumerate(codings):
        yield record(f"https://co.example/{at}", payload, 2200 + at, more=f"Content-Encoding: {coding}\r\n")
    chunks = (
        b"".join(b"%x\r\n%s\r\n" % (len(body[n : n + 700]), body[n : n + 700]) for n in range(0, len(body), 700))
        + b"0\r\n\r\n"
    )
    yield record("https://co.example/chunked", chunks, 2300, more="Transfer-Encoding: chunked\r\n")
    yield record("https://co.example/unchunked", body, 2301, more="Transfer-Encoding: chunked\r\n")
    yield record("https://co.example/digest", body, 2302, digest=_sha1(body))
    yield record("https://co.example/wrong", body, 2303, digest=_sha1(b"other"))
    yield record("https://co.example/md5", body, 2304, digest="md5:" + hashlib.md5(body).hexdigest())
    yield record("https://co.example/big", b"<p>" + b"words of a long page " * 2000, 2305)


def _kinds() -> Iterator[bytes]:
    for at, kind in enumerate(
        ("warcinfo", "request", "metadata", "revisit", "resource", "conversion", "continuation", "strange")
    ):
        yield record(f"https://kind.example/{at}", prose(f"kind {at}").encode(), 3000 + at, kind=kind)
    yield record(
        "https://kind.example/resource",
        article("", "resource").encode(),
        3100,
        kind="resource",
        block_type="text/html; charset=utf-8",
    )
    yield record("", article("", "no address").encode(), 3101)
    yield record("https://kind.example/date", article("", "no date").encode(), 3102, date="yesterday")
    yield record("https://kind.example/no-http", b"no head at all", 3103, block_type="text/html")


def _papers() -> list[bytes]:
    found = [
        record(f"https://pdf.example/{at}", data, 4000 + at, content_type="application/pdf")
        for at, data in enumerate(papers())
    ]
    found.append(record("https://pdf.example/html", article("", "beside pdf").encode(), 4100))
    found.append(record("https://pdf.example/untyped", papers()[0], 4101, content_type=""))
    return found


def _arc() -> Iterator[bytes]:
    info = b"1 0 Mill\nURL IP-address Archive-date Content-type Archive-length\n"
    yield b"filedesc://old.arc 0.0.0.0 20010203040506 text/plain %d\n%s\n" % (len(info), info)
    for at in range(5):
        body = b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n" + article("", f"arc {at}").encode()
        yield b"http://old.example/%d 10.0.0.1 2001020304050%d text/html %d\n%s\n" % (at, at, len(body), body)


def _wet() -> Iterator[bytes]:
    yield record("", b"Software-Info: mill", 6000, kind="warcinfo", block_type="application/warc-fields")
    for at, (code, line) in enumerate(SENTENCES.items()):
        yield record(
            f"https://wet.example/{code}",
            f"{line}\n{line} {line}\r\n\r\n{paragraph(at)}".encode(),
            6001 + at,
            kind="conversion",
        )
    yield record("https://wet.example/empty", b"", 6100, kind="conversion")
    yield record("https://wet.example/broken", b"\xff\xfe broken \xc3", 6101, kind="conversion")


def write_lines(path: Path, rows: Sequence[dict]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def write_table(path: Path, rows: Sequence[dict], groups: int = 3) -> None:
    pq.write_table(pa.Table.from_pylist(list(rows)), path, row_group_size=max(1, len(rows) // groups))


def write_texts(folder: Path) -> None:
    """Text files, plain and packed; lines that are no rows; a table of pages."""
    folder.mkdir(parents=True, exist_ok=True)
    for at, (code, line) in enumerate(SENTENCES.items()):
        data = f"{line}\r\n\r\n\r\n{line}\t {line}  \n\u200b\ufeffend \u00a0 {'  ' * at}x\x07".encode()
        (folder / f"{code}.txt").write_bytes(data)
    (folder / "packed.txt.gz").write_bytes(stored(prose("packed").encode()))
    (folder / "empty.txt").write_bytes(b"")
    (folder / "latin.txt").write_bytes("caf\u00e9 na\u00efve \u2026".encode("cp1252") * 20)
    (folder / "mojibake.txt").write_text("cafÃ© â€œquotedâ€\x9d naÃ¯ve lâ€™eau " * 5, encoding="utf-8")
    odd = [
        *(
            '{"text": "one", "url": "https://a.example/1", "date": "2024-01-01"}',
            '{"text": null}',
            '{"text": ""}',
            '{"text": "   "}',
        ),
        *(
            '{"text": 12}',
            '{"no": "text"}',
            "[1, 2]",
            "",
            "not json",
            '{"text": "twice", "text": "later"}',
            '{"text": "sur\\ud800rogate"}',
            '{"text": "no number", "score": NaN, "far": [-Infinity, 1], "quoted": "NaN"}',
        ),
        *(
            '{"text": "nested", "url": ["x"], "extra": {"a": {"b": [1, null]}}}',
            '{"text": "tab\\there\\u0000nul"}',
            '{"text": "uni \\u00e9 \\ud83d\\ude00"}',
        ),
        '{"text": "long ' + "word " * 5000 + '"}',
    ]
    (folder / "odd.jsonl").write_text("\n".join(odd), encoding="utf-8")
    html = io.BytesIO()
    rows = [
        {"body": page.encode("utf-8", "replace"), "where": f"https://table.example/{at}", "lang": "en"}
        for at, page in enumerate(few_pages()[:6])
    ]
    pq.write_table(pa.Table.from_pylist(rows), html)
    (folder / "pages.parquet").write_bytes(html.getvalue())
