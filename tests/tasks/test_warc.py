"""What a WARC file holds, whatever its encodings, its damage and the place it is read from."""

import gzip
import io
import random
import threading
import zlib
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import brotli
import fsspec
import pytest
from fastwarc.stream_io import ZstdWriter
from warcio.archiveiterator import ArchiveIterator

from tasks.warc import expand, responses

BODY = ("<html><body><p>" + "The mill turns as long as there is water. " * 200 + "</p></body></html>").encode()
MEGABYTE = 1 << 20
REQUEST = b"POST / HTTP/1.1\r\nHost: mill.example\r\n\r\n"


def chunked(data: bytes, size: int = 1000, extension: bytes = b"", trailer: bytes = b"") -> bytes:
    pieces = [data[i : i + size] for i in range(0, len(data), size)]
    return b"".join(b"%x%s\r\n%s\r\n" % (len(p), extension, p) for p in pieces) + b"0\r\n" + trailer + b"\r\n"


def noise(size: int) -> bytes:
    """Bytes that no compression makes smaller."""
    return random.Random(size).randbytes(size)


def raw_deflate(data: bytes) -> bytes:
    deflater = zlib.compressobj(wbits=-15)
    return deflater.compress(data) + deflater.flush()


def headers(**given: str) -> tuple[tuple[str, str], ...]:
    return (("Content-Type", "text/html"), *((name.replace("_", "-"), value) for name, value in given.items()))


def read(path, max_bytes: int = MEGABYTE) -> list:
    return list(responses(str(path), max_bytes))


GZIPPED = gzip.compress(BODY, mtime=0)
ENCODINGS = {
    "none": (BODY, {}),
    "gzip": (GZIPPED, {"Content_Encoding": "gzip"}),
    "x-gzip": (GZIPPED, {"Content_Encoding": "X-GZip"}),
    "zlib deflate": (zlib.compress(BODY), {"Content_Encoding": "deflate"}),
    "fast zlib deflate": (zlib.compress(BODY, 1), {"Content_Encoding": "deflate"}),
    "raw deflate": (raw_deflate(BODY), {"Content_Encoding": "deflate"}),
    "brotli": (brotli.compress(BODY), {"Content_Encoding": "br"}),
    "gzip, then deflate": (zlib.compress(GZIPPED), {"Content_Encoding": "gzip, deflate"}),
    "chunked": (chunked(BODY), {"Transfer_Encoding": "chunked"}),
    "one chunk": (chunked(BODY, len(BODY)), {"Transfer_Encoding": "Chunked"}),
    "chunk extensions": (chunked(BODY, extension=b';name="value"'), {"Transfer_Encoding": "chunked"}),
    "chunked with a trailer": (chunked(BODY, trailer=b"Link: <a>\r\n"), {"Transfer_Encoding": "chunked"}),
    "chunked gzip": (chunked(GZIPPED, 50), {"Transfer_Encoding": "chunked", "Content_Encoding": "gzip"}),
    "chunked deflate": (
        chunked(raw_deflate(BODY), 50),
        {"Transfer_Encoding": "chunked", "Content_Encoding": "deflate"},
    ),
    "unknown encoding": (BODY, {"Content_Encoding": "none"}),
    # the crawler took the encoding off and kept the header
    "decoded under gzip": (BODY, {"Content_Encoding": "gzip"}),
    "decoded under deflate": (BODY, {"Content_Encoding": "deflate"}),
    "decoded under brotli": (BODY, {"Content_Encoding": "br"}),
    "decoded under zstd": (BODY, {"Content_Encoding": "zstd"}),
    "decoded under chunked": (BODY, {"Transfer_Encoding": "chunked"}),
    "decoded under both": (BODY, {"Transfer_Encoding": "chunked", "Content_Encoding": "gzip"}),
}


@pytest.fixture
def encoded(page) -> list:
    return [page(payload, headers(**given)) for payload, given in ENCODINGS.values()]


@pytest.mark.parametrize("compressed", [True, False], ids=["gzip", "plain"])
def test_every_encoding_gives_the_page_and_every_offset_its_record(tmp_path, write_warc, encoded, compressed):
    path = tmp_path / "a.warc"
    offsets = write_warc(path, encoded, gzip=compressed)
    found = read(path)
    assert {name: r.problem for name, r in zip(ENCODINGS, found, strict=True) if r.problem} == {}
    assert {name for name, r in zip(ENCODINGS, found, strict=True) if r.payload != BODY} == set()
    assert [r.offset for r in found] == offsets
    data = path.read_bytes()
    for r in found:
        record = next(iter(ArchiveIterator(io.BytesIO(data[r.offset :]))))
        assert record.rec_headers.get_header("WARC-Record-ID") == r.record_id
        assert record.rec_headers.get_header("WARC-Date") == r.date == "2024-01-01T00:00:00Z"
    assert {(r.status, r.content_type, r.charset) for r in found} == {(200, "text/html", None)}


def test_zstd_records(tmp_path, write_warc, encoded):
    offsets = write_warc(tmp_path / "plain.warc", encoded, gzip=False)
    data = (tmp_path / "plain.warc").read_bytes()
    frames = []
    for start, end in zip(offsets, [*offsets[1:], len(data)], strict=True):
        buffer = io.BytesIO()
        writer = ZstdWriter(buffer)
        writer.write(data[start:end])
        writer.close()
        frames.append(buffer.getvalue())
    (tmp_path / "a.warc.zst").write_bytes(b"".join(frames))
    found = read(tmp_path / "a.warc.zst")
    assert [r.payload for r in found] == [BODY] * len(encoded)
    assert [r.offset for r in found] == [sum(map(len, frames[:i])) for i in range(len(frames))]


def test_what_the_server_said(tmp_path, write_warc, page):
    given = (("Content-Type", "Text/HTML; Charset=Windows-1252"),)
    pages = [
        page(http=given, status="404 Not Found", url="https://mill.example/gone?a=b"),
        page(http=()),
        page(url="<https://mill.example/in-brackets>"),
    ]
    write_warc(tmp_path / "a.warc.gz", pages)
    first, second, third = read(tmp_path / "a.warc.gz")
    assert (first.status, first.content_type, first.charset.lower()) == (404, "text/html", "windows-1252")
    assert (first.url, second.content_type, second.charset) == ("https://mill.example/gone?a=b", "", None)
    assert third.url == "https://mill.example/in-brackets"


def test_only_response_records_count(tmp_path, write_warc, page):
    kinds = ["warcinfo", "response", "metadata", "revisit", "resource", "conversion"]
    own = {kind: "" if kind in ("response", "revisit") else "text/plain" for kind in kinds}
    pages = [page(kind=kind, url=f"https://mill.example/{kind}", content_type=own[kind]) for kind in kinds]
    pages.insert(1, page(REQUEST, kind="request", content_type="application/http; msgtype=request"))
    write_warc(tmp_path / "a.warc.gz", pages)
    (only,) = read(tmp_path / "a.warc.gz")
    assert (only.url, only.problem) == ("https://mill.example/response", None)


def test_a_response_that_is_not_http(tmp_path, write_warc, page):
    dns = page(b"20240101000000\nmill.example. 300 IN A 192.0.2.1", url="dns:mill.example", content_type="text/dns")
    write_warc(tmp_path / "a.warc.gz", [page(), dns, page()])
    assert [r.problem for r in read(tmp_path / "a.warc.gz")] == [None, ("not_http", "text/dns"), None]


@pytest.mark.parametrize("name", ["none", "gzip", "raw deflate", "brotli", "chunked", "chunked gzip"])
def test_a_payload_over_the_limit_costs_only_itself(tmp_path, write_warc, page, name):
    payload, given = ENCODINGS[name]
    write_warc(tmp_path / "a.warc.gz", [page(), page(payload, headers(**given)), page()])
    for limit in (len(BODY) - 1, len(BODY) // 2, 45):
        first, large, last = read(tmp_path / "a.warc.gz", limit)
        assert large.problem == ("too_large", f"more than {limit} bytes")
        assert large.payload == b""
        assert (first.problem, last.problem) == (None, None) and first.payload == last.payload != b""
    enough = max(len(BODY), len(payload))
    assert [r.problem for r in read(tmp_path / "a.warc.gz", enough)] == [None] * 3


def test_a_small_bomb_is_not_unpacked(tmp_path, write_warc, page):
    pages = [
        page(gzip.compress(b"0" * (64 * MEGABYTE), 1), headers(Content_Encoding="gzip")),
        page(zlib.compress(b"0" * (64 * MEGABYTE), 1), headers(Content_Encoding="deflate")),
    ]
    write_warc(tmp_path / "a.warc.gz", pages)
    assert [r.problem[0] for r in read(tmp_path / "a.warc.gz")] == ["too_large"] * 2


@pytest.mark.parametrize(
    "payload,encoding",
    [
        (GZIPPED[:20] + bytes(50) + GZIPPED[70:], "gzip"),
        (zlib.compress(BODY)[:10] + b"\xff" * 50, "deflate"),
        (bytes(range(256)), "br"),
        (b"\x28\xb5\x2f\xfd" + bytes(range(200)), "zstd"),
    ],
    ids=["gzip", "deflate", "brotli", "zstd"],
)
def test_an_encoding_that_lies_costs_one_record(tmp_path, write_warc, page, payload, encoding):
    write_warc(tmp_path / "a.warc.gz", [page(), page(payload, headers(Content_Encoding=encoding)), page()])
    first, broken, last = read(tmp_path / "a.warc.gz")
    assert broken.problem[0] == "undecodable_payload" and broken.payload == b""
    assert (first.problem, last.problem) == (None, None)


def test_a_chunked_body_without_its_sizes(tmp_path, write_warc, page):
    broken = chunked(BODY).replace(b"3e8\r\nThe", b"zz\r\nThe", 1)[:1500] + b"no size here" + BODY
    pages = [page(broken, headers(Transfer_Encoding="chunked")), page()]
    write_warc(tmp_path / "a.warc.gz", pages)
    first, last = read(tmp_path / "a.warc.gz")
    assert first.problem[0] == "undecodable_payload" and last.problem is None


@pytest.mark.parametrize("compressed", [True, False], ids=["gzip", "plain"])
def test_a_truncated_file_gives_no_half_page(tmp_path, write_warc, page, compressed):
    bodies = [noise(3000), noise(200_000), noise(9000)]
    path = tmp_path / "a.warc"
    offsets = write_warc(path, [page(body) for body in bodies], gzip=compressed)
    data = path.read_bytes()
    # in the header of a gzip member, in the WARC header, in the HTTP header or near it, in the body
    for index, start in enumerate(offsets):
        end = [*offsets, len(data)][index + 1]
        for cut in (start + 5, start + 40, start + 150, start + 300, start + 420, start + (end - start) * 3 // 4):
            path.write_bytes(data[:cut])
            *whole, last = read(path)
            assert [r.payload for r in whole] == bodies[:index], cut
            assert last.problem[0] == "damaged_record", cut
            assert last.payload == b""
            if compressed or cut > start + 5:
                assert last.offset == start, cut
    for cut in offsets[1:]:
        path.write_bytes(data[:cut])
        assert [r.problem for r in read(path)] == [None] * offsets.index(cut)


def test_a_file_cut_in_a_request_says_so(tmp_path, write_warc, page):
    path = tmp_path / "a.warc.gz"
    request = page(REQUEST + noise(9000), kind="request", content_type="application/http; msgtype=request")
    offsets = write_warc(path, [page(), request])
    path.write_bytes(path.read_bytes()[: offsets[1] + 6000])
    assert [(r.offset, r.problem and r.problem[0]) for r in read(path)] == [(0, None), (offsets[1], "damaged_record")]


@pytest.mark.parametrize("compressed", [True, False], ids=["gzip", "plain"])
@pytest.mark.parametrize(
    "garbage", [b"this is no record\r\n" * 9, bytes(512), gzip.compress(b"nor is this\r\n\r\n" * 9)], ids=range(3)
)
def test_garbage_between_records_ends_the_file_with_a_problem(tmp_path, write_warc, page, compressed, garbage):
    path = tmp_path / "a.warc"
    offsets = write_warc(path, [page(), page(BODY), page()], gzip=compressed)
    data = path.read_bytes()
    path.write_bytes(data[: offsets[2]] + garbage + data[offsets[2] :])
    *good, last = read(path)
    assert [r.offset for r in good] == offsets[:2] and good[1].payload == BODY
    assert last.problem[0] == "damaged_record" and last.url == last.record_id == ""
    # in a plain file only the place of the last good record is known
    assert offsets[1] <= last.offset <= offsets[2]


def test_a_flipped_byte_is_found_where_it_is(tmp_path, write_warc, page):
    path = tmp_path / "a.warc.gz"
    offsets = write_warc(path, [page(), page(noise(100_000)), page()])
    data = bytearray(path.read_bytes())
    data[offsets[1] + 50_000 : offsets[1] + 50_100] = bytes(100)
    path.write_bytes(data)
    assert [(r.offset, r.problem and r.problem[0]) for r in read(path)] == [(0, None), (offsets[1], "damaged_record")]


def test_overlong_http_headers_cost_one_record(tmp_path, write_warc, page):
    write_warc(tmp_path / "a.warc.gz", [page(), page(http=(("X-Long", "a" * 100_000),)), page()])
    first, long, last = read(tmp_path / "a.warc.gz")
    assert long.problem[0] == "damaged_record" and long.url == "https://mill.example/"
    assert (first.problem, last.problem) == (None, None)


@pytest.mark.parametrize("data,problems", [(b"", 0), (b"<html>not a WARC file</html>", 1)])
def test_files_without_records(tmp_path, data, problems):
    (tmp_path / "a.warc.gz").write_bytes(data)
    assert [r.problem[0] for r in read(tmp_path / "a.warc.gz")] == ["damaged_record"] * problems


class Ranged(SimpleHTTPRequestHandler):
    """Python's own handler, with single ranges; it stands for an object store."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        asked = self.headers.get("Range")
        if not asked:
            return super().do_GET()
        with open(self.translate_path(self.path), "rb") as f:
            data = f.read()
        first, _, last = asked.removeprefix("bytes=").partition("-")
        piece = data[int(first) : int(last) + 1 if last else len(data)]
        self.send_response(206)
        self.send_header("Content-Length", str(len(piece)))
        self.send_header("Content-Range", f"bytes {first}-{int(first) + len(piece) - 1}/{len(data)}")
        self.end_headers()
        self.wfile.write(piece)

    def end_headers(self):
        self.send_header("Accept-Ranges", "bytes")
        super().end_headers()


class Whole(SimpleHTTPRequestHandler):
    """Python's own handler, which knows no ranges."""

    def log_message(self, *_):
        pass


@pytest.fixture(params=[Ranged, Whole])
def server(request, tmp_path):
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), partial(request.param, directory=str(tmp_path)))
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_port}"
    httpd.shutdown()
    thread.join()
    httpd.server_close()


@pytest.fixture
def memory():
    fs = fsspec.filesystem("memory")
    yield fs
    fs.rm("/gristmill-test", recursive=True)


@pytest.mark.parametrize("compressed", [True, False], ids=["gzip", "plain"])
def test_the_same_responses_over_http(tmp_path, write_warc, encoded, page, server, compressed):
    path = tmp_path / "a.warc"
    write_warc(path, [*encoded, page(noise(500_000))], gzip=compressed)
    assert read(f"{server}/a.warc") == read(path)
    path.write_bytes(path.read_bytes()[:-200_000])
    damaged = read(f"{server}/a.warc")
    assert damaged == read(path) and damaged[-1].problem[0] == "damaged_record"


def test_expand_over_http(tmp_path, write_warc, page, server):
    write_warc(tmp_path / "crawl-data" / "CC-TEST" / "a.warc.gz", [page()])
    listed = b"crawl-data/CC-TEST/a.warc.gz\ncrawl-data/CC-TEST/b.warc.gz\n"
    (tmp_path / "crawl-data" / "CC-TEST" / "warc.paths.gz").write_bytes(gzip.compress(listed))
    a, b = (f"{server}/crawl-data/CC-TEST/{name}.warc.gz" for name in "ab")
    assert expand([f"{server}/crawl-data/CC-TEST/warc.paths.gz"]) == [a, b]
    assert expand([a]) == [a]
    assert expand([f"{a}?signature=x"]) == [f"{a}?signature=x"]
    with pytest.raises(FileNotFoundError, match="b.warc.gz"):
        expand([b])


def test_memory_gives_the_same_and_expands(tmp_path, write_warc, encoded, memory):
    write_warc(tmp_path / "a.warc.gz", encoded)
    data = (tmp_path / "a.warc.gz").read_bytes()
    for name in ("a", "b"):
        memory.pipe(f"/gristmill-test/{name}.warc.gz", data)
    memory.pipe("/gristmill-test/warc.paths", b"b.warc.gz\n\n")
    assert read("memory://gristmill-test/a.warc.gz") == read(tmp_path / "a.warc.gz")
    both = [f"memory://gristmill-test/{name}.warc.gz" for name in "ab"]
    assert read(expand(["memory://gristmill-test/*.warc.gz"])[1]) == read(tmp_path / "a.warc.gz")
    assert [p.rsplit("/", 1)[1] for p in expand(["memory://gristmill-test/*.warc.gz"])] == ["a.warc.gz", "b.warc.gz"]
    assert expand(both[::-1]) == both
    assert expand(["memory://gristmill-test/warc.paths"]) == both[1:]
    with pytest.raises(FileNotFoundError):
        expand(["memory://gristmill-test/c.warc.gz"])


def test_expand_local_paths_globs_and_lists(tmp_path, monkeypatch):
    names = ["a/1.warc.gz", "a/2.warc.gz", "a/3.warc", "b/1.warc.gz", "crawl-data/c/4.warc.gz"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    full = {name: str(tmp_path / name) for name in names}
    # sorted, and once however often a file is named
    assert expand([full["b/1.warc.gz"], f"{tmp_path}/a/*.warc.gz", full["a/1.warc.gz"]]) == sorted(
        [full["a/1.warc.gz"], full["a/2.warc.gz"], full["b/1.warc.gz"]]
    )
    assert expand([f"{tmp_path}/**/1.warc.g?", f"{tmp_path}/a/[3].warc"]) == sorted(
        [full["a/1.warc.gz"], full["b/1.warc.gz"], full["a/3.warc"]]
    )
    listed = "\n".join(["2.warc.gz", full["b/1.warc.gz"], "", "https://mill.example/x.warc.gz", "../b/1.warc.gz"])
    expected = sorted(
        [full["a/2.warc.gz"], full["b/1.warc.gz"], "https://mill.example/x.warc.gz", f"{tmp_path}/a/../b/1.warc.gz"]
    )
    (tmp_path / "a" / "files.paths").write_text(listed)
    (tmp_path / "a" / "files.paths.gz").write_bytes(gzip.compress(listed.encode()))
    assert expand([f"{tmp_path}/a/files.paths"]) == expand([f"{tmp_path}/a/files.paths.gz"]) == expected
    rooted = tmp_path / "crawl-data" / "c" / "warc.paths"
    rooted.write_text("crawl-data/c/4.warc.gz\r\n")
    assert expand([str(rooted)]) == [full["crawl-data/c/4.warc.gz"]]
    monkeypatch.chdir(tmp_path / "a")
    assert expand(["1.warc.gz"]) == [full["a/1.warc.gz"]]
    assert expand(["files.paths"]) == expected


@pytest.mark.parametrize("pattern", ["none.warc.gz", "none/*.warc.gz", "none.paths.gz", "empty.paths"])
def test_a_pattern_that_names_no_file_is_an_error_that_names_it(tmp_path, pattern):
    (tmp_path / "empty.paths").write_text("\n \n")
    with pytest.raises(FileNotFoundError, match=pattern.replace("*", ".")):
        expand([f"{tmp_path}/{pattern}"])
