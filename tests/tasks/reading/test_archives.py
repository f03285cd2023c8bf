"""What an archive holds, whatever its format, its encodings, its damage and the place it is read from."""

import base64
import bz2
import gzip
import hashlib
import io
import random
import struct
import threading
import zlib
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import fsspec
import lz4.frame
import pytest
from warcio.archiveiterator import ArchiveIterator

from gristmill.tasks.reading.archives import read_at, records
from gristmill.tasks.reading.members import zstd

BODY = ("<html><body><p>" + "The mill turns as long as there is water. " * 200 + "</p></body></html>").encode()
MEGABYTE = 1 << 20
REQUEST = b"POST / HTTP/1.1\r\nHost: mill.example\r\n\r\n"
COMPRESSIONS = {"plain": bytes, "gzip": gzip.compress, "zstd": zstd.compress, "lz4": lz4.frame.compress}


def noise(size: int) -> bytes:
    """Bytes that no compression makes smaller."""
    return random.Random(size).randbytes(size)


def read(path, max_bytes: int = MEGABYTE, **settings) -> list:
    return list(records(str(path), max_bytes, **settings))


def problems(path, **settings) -> list:
    return [record.problem and record.problem[0] for record in read(path, **settings)]


def cut(path, write_warc, pages) -> list[bytes]:
    """The records as bytes."""
    offsets = write_warc(path, pages, gzip=False)
    data = path.read_bytes()
    return [data[a:b] for a, b in zip(offsets, [*offsets[1:], len(data)], strict=True)]


def join(path, members: list[bytes]) -> list[int]:
    """Write members one after the other; where each begins, and the end."""
    path.write_bytes(b"".join(members))
    return [sum(map(len, members[:i])) for i in range(len(members) + 1)]


@pytest.fixture(params=COMPRESSIONS)
def compress(request):
    return COMPRESSIONS[request.param]


@pytest.fixture
def pages(page) -> list:
    kinds = ["warcinfo", "request", "response", "metadata", "resource", "conversion"]
    own = {"request": "application/http; msgtype=request", "response": "", "conversion": "text/plain"}
    return [
        page(
            BODY if kind == "response" else REQUEST, kind=kind, content_type=own.get(kind, "Text/HTML; charset=koi8-r")
        )
        for kind in kinds
    ]


def test_every_record_in_its_order_and_every_offset_its_record(tmp_path, write_warc, pages, compress):
    members = [compress(record) for record in cut(tmp_path / "plain", write_warc, pages)]
    offsets = join(tmp_path / "a", members)
    found = read(tmp_path / "a")
    assert [r.kind for r in found] == [p.kind for p in pages]
    assert [r.offset for r in found] == offsets[:-1]
    assert [r.length for r in found] == [len(m) for m in members]
    assert [r.record_id for r in found] == [f"<urn:uuid:{i:032x}>" for i in range(len(pages))]
    assert {(r.url, r.date, r.problem) for r in found} == {("https://mill.example/", "2024-01-01T00:00:00Z", None)}
    assert [(r.kind, r.status, r.content_type, r.charset, r.payload) for r in found if r.payload] == [
        ("response", 200, "text/html", None, BODY),
        ("resource", None, "text/html", "koi8-r", REQUEST),
        ("conversion", None, "text/plain", "utf-8", REQUEST),
    ]
    for record in found:
        assert read_at(str(tmp_path / "a"), record.offset, record.length, MEGABYTE) == record


@pytest.mark.parametrize("name", ["gzip", "zstd", "lz4"])
@pytest.mark.parametrize("together", [2, 99])
def test_members_with_several_records(tmp_path, write_warc, pages, name, together):
    written = cut(tmp_path / "plain", write_warc, pages)
    groups = [written[i : i + together] for i in range(0, len(written), together)]
    join(tmp_path / "a", [COMPRESSIONS[name](b"".join(group)) for group in groups])
    found, plain = read(tmp_path / "a"), read(tmp_path / "plain")
    assert [r.payload for r in found] == [r.payload for r in plain]
    # offsets in the content, which is that of the plain file
    assert [(r.offset, r.length) for r in found] == [(r.offset, None) for r in plain]
    for record in found:
        assert read_at(str(tmp_path / "a"), record.offset, record.length, MEGABYTE) == record


def test_records_across_members(tmp_path, write_warc, pages):
    written = b"".join(cut(tmp_path / "plain", write_warc, [*pages, *pages]))
    join(tmp_path / "a", [gzip.compress(written[i : i + 1000]) for i in range(0, len(written), 1000)])
    assert [r.payload for r in read(tmp_path / "a")] == [r.payload for r in read(tmp_path / "plain")]
    assert set(problems(tmp_path / "a")) == {None}


@pytest.mark.parametrize("packed", [True, False])
def test_a_zstd_dictionary_at_the_beginning(tmp_path, write_warc, page, packed):
    written = cut(tmp_path / "plain", write_warc, [page(BODY + b"%d" % i) for i in range(40)])
    dictionary = zstd.train_dict(written, 4096)
    content = zstd.compress(dictionary.dict_content) if packed else dictionary.dict_content
    skippable = b"\x5d\x2a\x4d\x18" + len(content).to_bytes(4, "little") + content
    frames = [zstd.compress(record, zstd_dict=dictionary) for record in written]
    join(tmp_path / "a", [skippable, *frames])
    found = read(tmp_path / "a")
    assert [r.payload for r in found] == [BODY + b"%d" % i for i in range(40)]
    assert read_at(str(tmp_path / "a"), found[7].offset, found[7].length, MEGABYTE) == found[7]
    join(tmp_path / "a", frames)
    assert all(r.problem[0] == "damaged_record" and "dictionary" in r.problem[1] for r in read(tmp_path / "a"))


def test_empty_members_and_empty_lines_are_nothing(tmp_path, write_warc, page):
    first, second = (gzip.compress(r, mtime=0) for r in cut(tmp_path / "plain", write_warc, [page(BODY), page()]))
    empty, lines = gzip.compress(b""), gzip.compress(b"\r\n\r\n\r\n")
    offsets = join(tmp_path / "a", [empty, first, empty, lines, second, empty])
    assert [(r.offset, r.problem) for r in read(tmp_path / "a")] == [(offsets[1], None), (offsets[4], None)]


ARC = b"http://mill.example/a b 192.0.2.1 20080430204825 text/html %d\n"
ARC_2 = b"http://mill.example/ 192.0.2.1 20080430204825 text/html 200 checksum - 1234 file.arc %d\n"


@pytest.mark.parametrize("line", [ARC, ARC_2], ids=["1", "2"])
@pytest.mark.parametrize("name", ["plain", "gzip"])
def test_arc(tmp_path, line, name):
    about = b"1 0 Mill\nURL IP-address Archive-date Content-type Archive-length\n"
    block = b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n" + BODY
    written = [
        b"filedesc://a.arc 0.0.0.0 20080430204825 text/plain %d\n" % len(about) + about + b"\n",
        line % len(block) + block + b"\n",
        b"dns:mill.example 192.0.2.2 20080430204825 text/dns 3\nabc\n",
    ]
    offsets = join(tmp_path / "a", [COMPRESSIONS[name](record) for record in written])
    about, page, dns = read(tmp_path / "a")
    assert (about.kind, page.kind, dns.kind) == ("warcinfo", "response", "response")
    assert [about.offset, page.offset, dns.offset] == offsets[:-1]
    assert page.url == ("http://mill.example/a b" if line == ARC else "http://mill.example/")
    assert (page.date, page.ip, page.status, page.content_type) == (
        "2008-04-30T20:48:25Z",
        "192.0.2.1",
        200,
        "text/html",
    )
    assert page.payload == BODY and dns.problem == ("not_http", "text/dns") and about.ip is None


def test_headers_of_crawler_and_server(tmp_path, write_warc, page):
    given = (("Content-Type", "Text/HTML; Charset=Windows-1252"),)
    warc = {"WARC-IP-Address": "192.0.2.1", "WARC-Truncated": "length"}
    doubled = (("Content-Type", "text/plain"), ("Content-Type", 'text/html; charset="utf-8"'))
    write_warc(
        tmp_path / "a",
        [
            page(http=given, status="404 Not Found", url="https://mill.example/gone?a=b", warc=warc),
            page(http=(), url="<https://mill.example/in-brackets>"),
            page(http=doubled, status="200"),
        ],
    )
    first, second, third = read(tmp_path / "a")
    assert (first.status, first.content_type, first.charset) == (404, "text/html", "Windows-1252")
    assert (first.ip, first.truncated, first.problem) == ("192.0.2.1", "length", None)
    assert first.digest == "sha1:" + base64.b32encode(hashlib.sha1(first.payload).digest()).decode()
    assert (second.ip, second.truncated, second.charset) == (None, None, None)
    assert (first.url, second.url) == ("https://mill.example/gone?a=b", "https://mill.example/in-brackets")
    assert (second.content_type, third.content_type, third.charset, third.status) == ("", "text/html", "utf-8", 200)


@pytest.mark.parametrize("ends", [b"\n", b"\r\n", b"\r\r\n"])
def test_header_fields_as_they_are_met(tmp_path, ends):
    block = ends.join([b"HTTP/1.1 200", b"CONTENT-type:text/html;", b"\tcharset=koi8-r", b"", b"<p>"])
    lines = [
        b"WARC/0.18",
        b"warc-TYPE:  Response ",
        b"WARC-Target-URI:",
        b" https://mill.example/",
        b"no field",
        b"content-length: %d" % len(block),
        b"Content-Length: %d" % len(block),
    ]
    (tmp_path / "a").write_bytes((ends.join(lines) + ends * 2 + block + ends * 2) * 2)
    for record in read(tmp_path / "a"):
        assert (record.kind, record.url, record.problem) == ("response", "https://mill.example/", None)
        assert (record.status, record.content_type, record.charset) == (200, "text/html", "koi8-r")
        assert record.payload == b"<p>"


@pytest.mark.parametrize(
    "before",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n",
        b"\r\n",
    ],
)
def test_what_a_server_sends_before_its_response_is_no_part_of_it(tmp_path, before):
    block = before + b"HTTP/1.1 200 OK\r\nContent-Type : text/html\r\n\r\n" + BODY
    head = b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: https://mill.example/\r\nContent-Length: %d\r\n\r\n"
    (tmp_path / "a").write_bytes(head % len(block) + block + b"\r\n\r\n")
    (record,) = read(tmp_path / "a")
    assert (record.status, record.content_type, record.payload) == (200, "text/html", BODY)


def test_a_file_whose_line_ends_were_converted(tmp_path, write_warc, page):
    bodies = [b"<p>%d</p>\r\n" % i * 30 for i in range(4)]
    write_warc(tmp_path / "a", [page(body) for body in bodies], gzip=False)
    (tmp_path / "a").write_bytes((tmp_path / "a").read_bytes().replace(b"\r\n", b"\n"))
    found = read(tmp_path / "a")
    assert [(r.problem, r.payload.strip()) for r in found] == [
        (None, body.replace(b"\r\n", b"\n").strip()) for body in bodies
    ]


def test_revisits_and_responses_that_are_not_http(tmp_path, write_warc, page):
    refers = {"WARC-Refers-To-Target-URI": "https://mill.example/first", "WARC-Refers-To-Date": "2023-01-01T00:00:00Z"}
    dns = page(b"mill.example. 300 IN A 192.0.2.1", url="dns:mill.example", content_type="text/dns")
    write_warc(tmp_path / "a", [page(b"", kind="revisit", warc=refers), dns, page()])
    revisit, dns, last = read(tmp_path / "a")
    assert revisit.problem == ("revisit", "https://mill.example/first 2023-01-01T00:00:00Z")
    assert (revisit.status, dns.problem, last.problem) == (200, ("not_http", "text/dns"), None)


def test_responses_with_a_bare_body_are_read_with_a_note(tmp_path):
    headless = b"HTUP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + BODY
    http = "application/http; msgtype=response"
    written = [
        ("https://mill.example/", "Text/HTML; charset=koi8-r", BODY),
        ("https://mill.example/", http, BODY),
        ("https://mill.example/", http, headless),
        ("https://mill.example/", "text/html", headless[17:]),
        ("whois:mill.example", "text/html", BODY),
        ("https://mill.example/", "text/html", b""),
        ("https://mill.example/", http, b"HTTP/1.1 200 OK\r\n\r\n" + BODY),
    ]
    record = "WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n\r\n"
    join(tmp_path / "a", [record.format(u, t, len(b)).encode() + b + b"\r\n\r\n" for u, t, b in written])
    found = read(tmp_path / "a")
    said, unsaid, headless, fields, whois, empty, last = found
    assert (said.content_type, said.charset, unsaid.content_type, unsaid.charset) == ("text/html", "koi8-r", "", None)
    assert [r.payload for r in (said, unsaid, last)] == [BODY] * 3
    assert [r.note for r in found] == ["no HTTP headers"] * 2 + [None] * 3 + ["no HTTP headers", None]
    assert {r.status for r in found[:-1]} == {None} and (empty.payload, empty.problem) == (b"", None)
    assert [r.problem and r.problem[0] for r in found] == [None] * 2 + ["not_http"] * 3 + [None] * 2


@pytest.mark.parametrize("line", [ARC, ARC_2], ids=["1", "2"])
def test_bare_bodies_in_arc_files(tmp_path, line):
    join(tmp_path / "a", [line % len(BODY) + BODY + b"\n"] * 2)
    for record in read(tmp_path / "a"):
        assert (record.payload, record.content_type, record.note) == (BODY, "text/html", "no HTTP headers")
        assert (record.status, record.problem) == (None, None)


@pytest.mark.parametrize("name", COMPRESSIONS)
@pytest.mark.parametrize("missing", [5, 60])
def test_a_record_a_little_short_of_its_length_is_truncated(tmp_path, write_warc, page, name, missing):
    bodies = [BODY + b"%d" % i for i in range(3)]
    marked = page(bodies[2], warc={"WARC-Truncated": "time"})
    members = cut(tmp_path / "plain", write_warc, [page(bodies[0]), page(bodies[1]), marked])
    short = [record.replace(body, body[:-missing]) for record, body in zip(members, bodies, strict=True)]
    offsets = join(tmp_path / "a", [COMPRESSIONS[name](record) for record in short])
    found = read(tmp_path / "a")
    assert [r.payload for r in found] == [body[:-missing] for body in bodies]
    assert [(r.offset, r.length) for r in found] == [(a, b - a) for a, b in zip(offsets, offsets[1:], strict=False)]
    assert [(r.problem, r.truncated) for r in found] == [(None, "unspecified")] * 2 + [(None, "time")]
    for record, member in zip(found, members, strict=True):
        length = int(member.split(b"Content-Length: ")[1].split(b"\r\n")[0])
        assert record.note == f"{missing} bytes short of its length of {length}"
        again = read_at(str(tmp_path / "a"), record.offset, record.length, MEGABYTE)
        assert again == record


def test_a_type_that_no_standard_has(tmp_path, write_warc, page):
    write_warc(tmp_path / "a", [page(kind="respoose", content_type="text/plain"), page()])
    assert [(r.kind, r.problem) for r in read(tmp_path / "a")] == [
        ("unknown", ("unknown_type", "respoose")),
        ("response", None),
    ]


def test_payloads_over_the_limit_cost_only_themselves(tmp_path, write_warc, page, compress):
    large = [
        page(noise(200_000)),
        page(gzip.compress(b"0" * 8 * MEGABYTE, 1), (("Content-Encoding", "gzip"),)),
        page(noise(300_000), kind="metadata", content_type="text/plain"),
        page(noise(250_000), kind="resource", content_type="text/plain"),
    ]
    written = cut(tmp_path / "plain", write_warc, [page(), *large, page()])
    offsets = join(tmp_path / "a", [compress(record) for record in written])
    found = read(tmp_path / "a", 50_000)
    too_large = ("too_large", "more than 50000 bytes")
    assert [r.problem for r in found] == [None, too_large, too_large, None, too_large, None]
    assert [r.offset for r in found] == offsets[:-1] and found[1].status == 200
    assert found[5].payload == found[0].payload != b"" and not any(r.payload for r in found[1:5])
    assert read(tmp_path / "a", 200_000)[1].payload == noise(200_000)


def test_encodings_are_taken_off_and_a_wrong_one_costs_one_record(tmp_path, write_warc, page):
    encoded = (("Content-Encoding", "gzip"), ("Transfer-Encoding", "chunked"))
    squeezed = gzip.compress(BODY)
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(squeezed), squeezed)
    broken = squeezed[:20] + bytes(50) + squeezed[70:]
    write_warc(tmp_path / "a", [page(chunks, encoded), page(broken, encoded), page(BODY, encoded)])
    first, second, third = read(tmp_path / "a")
    assert first.payload == third.payload == BODY
    assert second.problem[0] == "undecodable_payload" and second.payload == b""


def test_digests(tmp_path, write_warc, page):
    path = tmp_path / "a"
    write_warc(path, [page(BODY), page(BODY[:100] + b"x")], gzip=False)
    assert problems(path, verify_digests=True) == [None, None]
    path.write_bytes(path.read_bytes().replace(b"turns as", b"turnt as"))
    assert problems(path) == [None, None]
    found = read(path, verify_digests=True)
    assert [r.problem[0] for r in found] == ["digest_mismatch"] * 2 and found[0].payload == b""


@pytest.mark.parametrize("compressed", [True, False], ids=["gzip", "plain"])
def test_a_truncated_file_gives_no_half_page(tmp_path, write_warc, page, compressed):
    bodies = [noise(3000), noise(200_000), noise(9000)]
    path = tmp_path / "a"
    offsets = write_warc(path, [page(body) for body in bodies], gzip=compressed)
    data = path.read_bytes()
    # in the header of a gzip member, in the WARC header, in the HTTP header or near it, in the body
    for index, start in enumerate(offsets):
        end = [*offsets, len(data)][index + 1]
        for at in (start + 5, start + 40, start + 150, start + 300, start + 420, start + (end - start) * 3 // 4):
            path.write_bytes(data[:at])
            *whole, last = read(path)
            assert [r.payload for r in whole] == bodies[:index], at
            assert last.problem[0] == "damaged_record", at
            assert (last.payload, last.offset, last.length) == (b"", start, at - start)
    for at in offsets[1:]:
        path.write_bytes(data[:at])
        assert problems(path) == [None] * offsets.index(at)


def damage(kind: str, member: bytes, compress) -> bytes:
    if kind == "cut":
        return member[: len(member) // 2]
    if kind == "zeros":
        return member[: len(member) // 2] + bytes(50) + member[len(member) // 2 + 50 :]
    if kind == "checksum":
        return member[:-8] + bytes([member[-8] ^ 1]) + member[-7:]
    if kind == "magic":
        return b"??" + member[2:]
    record = {"gzip": gzip.decompress, "plain": bytes}[kind.split()[1]](member)
    length = int(record.split(b"Content-Length: ")[1].split(b"\r\n")[0])
    written = {
        "long": b": %d" % (length + 100_000),
        "endless": b": 999999999",
        "short": b": %d" % (length // 4),
        "no": b"",
    }
    written |= {"bad": b": abc", "negative": b": -5"}
    return compress(record.replace(b"Content-Length: %d" % length, b"Content-Length" + written[kind.split()[0]]))


@pytest.mark.parametrize(
    "kind",
    ["cut", "zeros", "checksum", "magic"]
    + [
        f"{length} {name}"
        for name in ("gzip", "plain")
        for length in ("long", "endless", "short", "no", "bad", "negative")
        if (length, name) != ("short", "gzip")
    ]
    + ["cut plain"],
)
def test_the_record_after_a_damaged_one_is_found_again(tmp_path, write_warc, page, kind):
    compress = bytes if kind.endswith("plain") else gzip.compress
    bodies = [BODY + b"%d" % i for i in range(5)]
    members = [compress(r) for r in cut(tmp_path / "plain", write_warc, [page(body) for body in bodies])]
    for i in range(5):
        hurt = list(members)
        hurt[i] = damage(kind.removesuffix(" plain") if kind == "cut plain" else kind, members[i], compress)
        offsets = join(tmp_path / "a", hurt)
        found = read(tmp_path / "a")
        assert [(r.offset, r.length) for r in found] == [(a, b - a) for a, b in zip(offsets, offsets[1:], strict=False)]
        assert [r.payload for r in found] == [b"" if j == i else body for j, body in enumerate(bodies)]
        assert [r.problem and r.problem[0] for r in found] == ["damaged_record" if j == i else None for j in range(5)]
        assert f"{offsets[i + 1] - offsets[i]} bytes" in found[i].problem[1]
        if kind != "magic":
            assert (found[i].kind, found[i].record_id) == ("response", f"<urn:uuid:{i:032x}>")


@pytest.mark.parametrize("compressed", [True, False], ids=["gzip", "plain"])
@pytest.mark.parametrize("wrong", [-300, -50, -2, -1, 50, 300])
def test_a_record_whose_end_shows_that_its_length_is_wrong_is_read(tmp_path, write_warc, page, compressed, wrong):
    compress = gzip.compress if compressed else bytes
    bodies = [BODY + b"%d" % i for i in range(4)]
    members = list(cut(tmp_path / "plain", write_warc, [page(body) for body in bodies]))
    lengths = [int(record.split(b"Content-Length: ")[1].split(b"\r\n")[0]) for record in members]
    for hurt in ({1}, {3}, {0, 1, 2, 3}):
        written = [
            record.replace(b"Content-Length: %d" % length, b"Content-Length: %d" % (length + wrong * (i in hurt)), 1)
            for i, (record, length) in enumerate(zip(members, lengths, strict=True))
        ]
        join(tmp_path / "a", [compress(record) for record in written])
        found = read(tmp_path / "a")
        assert [(r.problem, r.payload) for r in found] == [(None, body) for body in bodies]
        assert [bool(r.note) for r in found] == [i in hurt for i in range(4)]
        assert [r.truncated for r in found] == ["unspecified" if wrong > 0 and i in hurt else None for i in range(4)]


def test_a_length_that_takes_a_part_of_the_next_record_of_arc_costs_no_neighbor(tmp_path):
    records_of_arc = [
        b"http://mill.example/%d - 20080430204825 no-type %d\n%s\n" % (i, len(BODY) + (100 if i == 1 else 0), BODY)
        for i in range(4)
    ]
    (tmp_path / "a").write_bytes(b"".join(records_of_arc))
    found = read(tmp_path / "a")
    assert [r.payload for r in found if r.problem is None] == [BODY] * 3
    assert {r.problem and r.problem[0] for r in found} == {None, "damaged_record"}
    assert (found[0].content_type, found[0].ip, found[0].note) == ("", None, "no HTTP headers")


@pytest.mark.parametrize("short", [1, 2, 40])
def test_a_length_of_arc_that_is_too_small_is_that_to_the_next_record(tmp_path, short):
    records_of_arc = [
        b"http://mill.example/%d - 20080430204825 no-type %d\n%s\n" % (i, len(BODY) - (short if i == 1 else 0), BODY)
        for i in range(3)
    ]
    (tmp_path / "a").write_bytes(b"".join(records_of_arc))
    found = read(tmp_path / "a")
    assert [(r.payload, r.problem) for r in found] == [(BODY, None)] * 3
    assert found[1].note.startswith(f"{short} bytes more than its length of {len(BODY) - short}")


def test_a_word_for_a_type_is_none_and_frames_without_content_come_before_a_coded_body(tmp_path, write_warc, page):
    coded = struct.pack("<II", 0x184D2A50, 4) + b"note" + zstd.compress(BODY)
    headers = (("Content-Type", "html"),), (("Content-Type", "text/html"), ("Content-Encoding", "zstd"))
    write_warc(tmp_path / "a", [page(BODY, headers[0]), page(coded, headers[1])])
    word, frames = read(tmp_path / "a")
    assert (word.content_type, word.payload, frames.payload) == ("", BODY, BODY)


def test_what_a_decoder_copies_after_damage_changes_no_header_before_it(tmp_path, write_warc, page):
    whole = cut(tmp_path / "plain", write_warc, [page(BODY), page(BODY)])
    # what follows the cut is read as deflate: 40 such continuations, several of which copy header lines
    for time in range(0x3C_F0_00_BC, 0x3C_F0_00_BC + (40 << 16), 1 << 16):
        members = [gzip.compress(record, mtime=time) for record in whole]
        join(tmp_path / "a", [members[0][: len(members[0]) // 2], members[1]])
        first, second = read(tmp_path / "a")
        assert (first.kind, first.url, first.payload) == ("response", second.url, b"")
        assert first.record_id == "<urn:uuid:00000000000000000000000000000000>"


@pytest.mark.parametrize(
    "garbage",
    [
        b"this is not a record\r\n" * 9,
        bytes(512),
        gzip.compress(b"nor is this\r\n\r\n" * 9, mtime=0),
        b"\x1f\x8b\x08\x00" * 9,
    ],
)
def test_garbage_between_records_is_one_damaged_record(tmp_path, write_warc, page, compress, garbage):
    members = [compress(r) for r in cut(tmp_path / "plain", write_warc, [page(), page(BODY), page()])]
    offsets = join(tmp_path / "a", [members[0], members[1], garbage, members[2], garbage])
    found = read(tmp_path / "a")
    assert [r.offset for r in found if r.problem is None] == [offsets[0], offsets[1], offsets[3]]
    assert [r.payload for r in found if r.problem is None][1] == BODY
    lost = [r for r in found if r.problem]
    assert {(r.kind, r.problem[0]) for r in lost} == {("unknown", "damaged_record")}
    # members of garbage with something between them are counted one by one
    assert sum(r.length for r in lost) == 2 * len(garbage) and lost[0].offset == offsets[2]


def test_a_large_record_with_a_wrong_length_hides_no_other(tmp_path, write_warc, page, compress):
    written = cut(tmp_path / "plain", write_warc, [page(BODY + b"%d" % i) for i in range(60)])
    length = b"Content-Length: %d" % (len(written[9]) - written[9].index(b"\r\n\r\n") - 8)
    written[9] = written[9].replace(length, b"Content-Length: 200000", 1)
    (tmp_path / "a").write_bytes(compress(b"".join(written)))
    found = read(tmp_path / "a", 20_000)
    assert [r.problem and r.problem[0] for r in found] == [None] * 9 + ["damaged_record"] + [None] * 50
    assert [r.payload for r in found if not r.problem] == [BODY + b"%d" % i for i in range(60) if i != 9]


@pytest.mark.parametrize(
    "magic", [b"\x1f\x8b\x08\x00", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"WARC/1.0\r\nWARC-Type: "]
)
def test_beginnings_of_members_everywhere(tmp_path, write_warc, page, magic):
    (member,) = (gzip.compress(r, mtime=0) for r in cut(tmp_path / "plain", write_warc, [page(BODY)]))
    offsets = join(tmp_path / "a", [member, b"?" + magic * 20_000, member])
    found = read(tmp_path / "a")
    assert [r.offset for r in found if not r.problem] == [offsets[0], offsets[2]]
    assert sum(r.length for r in found if r.problem) == offsets[2] - offsets[1]


def test_two_damaged_members_one_after_the_other_are_two(tmp_path, write_warc, page):
    members = [gzip.compress(r, mtime=0) for r in cut(tmp_path / "plain", write_warc, [page(noise(3000))] * 4)]
    short = gzip.compress(gzip.decompress(members[1])[:-1000])
    hurt = members[2][:2000] + bytes(100) + members[2][2100:]
    offsets = join(tmp_path / "a", [members[0], short, hurt, members[3]])
    found = read(tmp_path / "a")
    assert [r.offset for r in found] == offsets[:-1]
    assert [r.problem and r.problem[0] for r in found] == [None, "damaged_record", "damaged_record", None]
    assert [r.length for r in found] == [b - a for a, b in zip(offsets, offsets[1:], strict=False)]


def test_overlong_http_headers_cost_one_record(tmp_path, write_warc, page):
    write_warc(tmp_path / "a", [page(), page(http=(("X-Long", "a" * 100_000),)), page()])
    first, long, last = read(tmp_path / "a")
    assert long.problem[0] == "damaged_record" and long.url == "https://mill.example/"
    assert (first.problem, last.problem) == (None, None)


@pytest.mark.parametrize(
    "data",
    [
        b"<html>not an archive</html>",
        gzip.compress(b"hello\n", mtime=0),
        bz2.compress(BODY),
        noise(3 * MEGABYTE),
        b"W",
        b"\x1f",
    ],
)
def test_what_is_no_archive_is_one_damaged_record(tmp_path, data):
    (tmp_path / "a.warc.gz").write_bytes(data)
    (only,) = read(tmp_path / "a.warc.gz")
    assert (only.kind, only.offset, only.length, only.problem[0]) == ("unknown", 0, len(data), "damaged_record")
    assert str(len(data)) in only.problem[1]


def test_an_empty_file_holds_nothing_and_a_missing_one_is_an_error(tmp_path):
    (tmp_path / "a").touch()
    assert read(tmp_path / "a") == []
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "b")


def test_no_record_at_a_place_is_an_error(tmp_path, write_warc, page):
    write_warc(tmp_path / "a", [page()])
    with pytest.raises(LookupError, match="hold no record"):
        read_at(str(tmp_path / "a"), 10**9, 100, MEGABYTE)
    with pytest.raises(LookupError, match="byte 5"):
        read_at(str(tmp_path / "a"), 5, None, MEGABYTE)
    assert read_at(str(tmp_path / "a"), 5, 100, MEGABYTE).problem[0] == "damaged_record"


def test_members_that_warcio_reads(tmp_path, write_warc, pages):
    write_warc(tmp_path / "a", pages)
    data = (tmp_path / "a").read_bytes()
    for found in read(tmp_path / "a"):
        record = next(iter(ArchiveIterator(io.BytesIO(data[found.offset : found.offset + found.length]))))
        assert record.rec_headers.get_header("WARC-Record-ID") == found.record_id
        if found.payload:
            assert record.content_stream().read() == found.payload


class Ranged(SimpleHTTPRequestHandler):
    """Python's own handler, with single ranges; it stands for an object store, and notes what was asked for."""

    asked: list[str]

    def log_message(self, *_):
        pass

    def do_GET(self):
        asked = self.headers.get("Range")
        self.asked.append(asked)
        if not asked:
            return super().do_GET()
        with open(self.translate_path(self.path), "rb") as f:
            data = f.read()
        first, _, last = asked.removeprefix("bytes=").partition("-")
        if int(first) >= len(data):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(data)}")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        piece = data[int(first) : int(last) + 1 if last else len(data)]
        self.send_response(206)
        self.send_header("Content-Length", str(len(piece)))
        self.send_header("Content-Range", f"bytes {first}-{int(first) + len(piece) - 1}/{len(data)}")
        self.end_headers()
        self.wfile.write(piece)

    def end_headers(self):
        self.send_header("Accept-Ranges", "bytes")
        super().end_headers()


@pytest.fixture
def server(tmp_path):
    handler = type("Handler", (Ranged,), {"asked": []})
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(tmp_path)))
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_port}", handler.asked
    httpd.shutdown()
    thread.join()
    httpd.server_close()


def test_the_same_records_over_http_and_from_memory(tmp_path, write_warc, page, server, compress):
    address, asked = server
    bodies = [noise(9_000_000), *(BODY + b"%d" % i for i in range(9)), noise(500_000)]
    members = [compress(r) for r in cut(tmp_path / "plain", write_warc, [page(body) for body in bodies])]
    # the damage is known only 9 MB after it: further back than what is kept
    members[0] = members[0][: len(members[0]) - 20] + zlib.compress(BODY)
    members[5] = members[5][: len(members[5]) // 2]
    offsets = join(tmp_path / "a", members)
    local = read(tmp_path / "a", 10 * MEGABYTE)
    assert [r.offset for r in local if r.problem is None] == [offsets[i] for i in (1, 2, 3, 4, 6, 7, 8, 9, 10)]
    assert read(f"{address}/a", 10 * MEGABYTE) == local
    asked.clear()
    assert read_at(f"{address}/a", offsets[7], offsets[8] - offsets[7], MEGABYTE).payload == bodies[7]
    assert set(asked) <= {f"bytes={offsets[7]}-{offsets[8] - 1}"}
    memory = fsspec.filesystem("memory")
    memory.pipe("/gristmill-test/a", (tmp_path / "a").read_bytes())
    try:
        assert read("memory://gristmill-test/a", 10 * MEGABYTE) == local
    finally:
        memory.rm("/gristmill-test", recursive=True)
