"""A shard of a source becomes documents and a ledger: every record that is a page is in one of them."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from gristmill.storage import files, layout, ledger, parquet
from gristmill.storage.schema import DOCUMENTS, LEDGER
from gristmill.tasks.documents.normalize import Normalize
from gristmill.tasks.documents.step import DocumentStep, Signal
from gristmill.tasks.extraction.extract import Extract
from gristmill.tasks.extraction.shard import BATCH, extract_shard
from gristmill.tasks.models.language import Language
from gristmill.tasks.reading.index import SELECTION
from gristmill.tasks.reading.listing import Shard
from gristmill.tasks.reading.record import PAGES, Columns
from gristmill.tasks.url.step import Url

STORY = (
    "The old mill stands where the river leaves the forest, and its wheel has not been still for two hundred years.",
    "Every morning the miller opens the gate, listens to the stones and writes the level of the water into a book.",
    "In dry summers the village waits for rain, because without the mill there is no bread in any of its houses.",
)
NAVIGATION = ("Startpage", "Imprint", "Subscribe now", "Accept all cookies")


def html(*paragraphs: str, head: str = "") -> str:
    body = "".join(f"<p>{p}</p>" for p in paragraphs)
    return f"<html><head>{head}<title>Mill</title></head><body><main>{body}</main></body></html>"


def article() -> str:
    links = "".join(f'<li><a href="/{i}">{name}</a></li>' for i, name in enumerate(NAVIGATION))
    return (
        "<html><head><title>The mill</title><script>var hidden = 'a script';</script>"
        "<style>p { color: red }</style></head><body>"
        f"<header><nav><ul>{links}</ul></nav></header><main><article><h1>The mill</h1>"
        + "".join(f"<p>{p}</p>" for p in STORY)
        + f"</article></main><aside><ul>{links}</ul></aside><footer><ul>{links}</ul></footer></body></html>"
    )


class Extracted:
    """What one call of extract_shard left behind."""

    def __init__(self, folder: Path, record: dict):
        self.folder, self.record = str(folder), record
        self.table = parquet.read_table(layout.part(self.folder, 0))
        self.documents = self.table.to_pylist()
        self.ledger = parquet.read_table(layout.ledger_part(self.folder, 0))

    @property
    def texts(self) -> list[str]:
        return [row["text"] for row in self.documents]


@pytest.fixture
def extracted(tmp_path):
    """`extracted(shard)` runs the pass over a shard of a source; the counts must balance whatever the shard holds."""

    def extracted(shard, *, folder="out", source="web", before=(), normalize=None, steps=(), **settings):
        out = str(tmp_path / folder)
        settings = Extract(**({"engine": "resiliparse"} | settings))
        record = extract_shard(out, 0, source, (shard,), None, tuple(before), settings, normalize, tuple(steps))
        found = Extracted(tmp_path / folder, record)
        ledger.balance("test", record["rows_in"], len(found.documents), record["steps"], found.ledger)
        assert record["rows_in"] == sum(n for kind, n in record["records"].items() if kind in PAGES)
        assert record["steps"][-1]["characters_out"] == sum(map(len, found.texts))
        assert all(row["characters"] == len(row["text"]) > 0 for row in found.documents)
        return found

    return extracted


@pytest.fixture
def run(tmp_path, write_warc, extracted):
    """`run(pages)` writes a WARC file and extracts it."""

    def run(pages, *, warc="web/a.warc.gz", compressed=True, **given):
        path = tmp_path / warc
        if pages is not None:
            write_warc(path, pages, gzip=compressed)
        return extracted(Shard("archive", str(path), path.name), **given)

    return run


def test_every_record_is_a_row_or_a_row_of_the_ledger(run, page):
    encoded = (("Content-Type", "text/html"), ("Content-Encoding", "gzip"))
    image = (("Content-Type", "image/png"),)
    good = page(html(STORY[0]).encode())
    planted = {
        None: [good] * 3 + [page(b"kept as it is", (("Content-Type", "text/plain"),))],
        "http_status": [page(good.payload, status=s) for s in ("404 Not Found", "301 Moved", "206 Partial Content")],
        "content_type": [
            page(b"\x89PNG\r\n\x1a\n", image),
            page(b"%PDF-1.7 " + bytes(9), ()),
            page(good.payload, image),
        ],
        "empty_text": [page(b""), page(html().encode()), page(b" \n ", (("Content-Type", "text/plain"),))],
        "too_large": [page(html(STORY[0] * 100).encode()), page(gzip.compress(b"a" * 6000), encoded)],
        "undecodable_payload": [page(b"\x1f\x8b no gzip at all", encoded)],
        "not_http": [page(b"192.0.2.1", url="dns:mill.example", content_type="text/dns")],
        "revisit": [page(b"", kind="revisit")],
    }
    pages = [p for group in planted.values() for p in group]
    pages += [page(b"GET / HTTP/1.1\r\n\r\n", kind="request", content_type="application/http; msgtype=request")]
    found = run(pages, max_bytes=5000)
    expected = {rule: len(group) for rule, group in planted.items() if rule}
    assert Counter(found.ledger["rule"].to_pylist()) == expected
    assert found.record["steps"][0]["drops"] == expected
    assert found.record["types"] == {"image/png": 2, "application/pdf": 1}
    assert (found.record["rows_in"], found.record["rows_out"]) == (len(pages) - 1, 4)
    assert found.texts == [STORY[0]] * 3 + ["kept as it is"]
    assert set(found.ledger["step"].to_pylist()) == {"extract"}
    ids = found.ledger["id"].to_pylist() + [row["id"] for row in found.documents]
    assert len(set(ids)) == len(pages) - 1
    status = found.ledger.filter(pc.equal(found.ledger["rule"], "http_status"))
    assert status["value"].to_pylist() == [404, 301, 206]


def test_types_are_counted_and_what_a_server_makes_up_is_one_of_them(run, page):
    declared = ["application/pdf"] * 3 + ["image/png", "<b>\x1b[31m", "a" * 300] + [f"x/{i}" for i in range(40)]
    found = run([page(b"\0 no page", (("Content-Type", kind),)) for kind in declared])
    types = found.record["types"]
    assert sum(types.values()) == len(declared) and list(types)[0] == "application/pdf"
    named = {name: count for name, count in types.items() if name != "other"}
    # a word without a slash is no type: these bytes are of an unknown one
    assert types["application/octet-stream"] == 2 and set(named) <= {*declared, "application/octet-stream"}
    assert len(named) == 30 and types["application/pdf"] == 3 and types["other"] == len(declared) - sum(named.values())


def test_the_type_that_a_crawler_found_counts_where_the_server_says_nothing(run, page):
    story = html(STORY[0]).encode()
    octets, none = (("Content-Type", "application/octet-stream"),), ()
    as_html = {"WARC-Identified-Payload-Type": "text/html"}
    found = run(
        [
            page(story, octets, warc=as_html),
            page(b"<custom-page>" + story, none, warc=as_html),
            page(b"%PDF-1.7 ", none, warc={"WARC-Identified-Payload-Type": "application/pdf"}),
            page(story, octets),
            page(story, (("Content-Type", "image/png"),), warc=as_html),
        ]
    )
    assert len(found.texts) == 2
    assert found.record["types"] == {"application/octet-stream": 1, "application/pdf": 1, "image/png": 1}


def test_types_are_told_from_bytes_where_a_server_says_nothing_or_is_wrong(run, page):
    story = html(STORY[0]).encode()
    octets, as_html, as_text, none = (
        (("Content-Type", f"{t}"),) for t in ("application/octet-stream", "text/html", "text/plain", "")
    )
    feed, table = b'<?xml version="1.0"?><rss><channel/></rss>', b'{"mill": [1, 2]}'
    png, packed, rtf = b"\x89PNG\r\n\x1a\n" + bytes(9), b"PK\x03\x04" + bytes(40), rb"{\rtf1 The mill}"
    given = [
        (png, octets),
        (png, as_html),
        (png, none),
        (packed, octets),
        (packed, as_text),
        (rtf, none),
        (rtf, as_text),
    ]
    given += [
        (feed, as_html),
        (feed, as_text),
        (feed, none),
        (table, as_html),
        (table, none),
        (b"RIFF\0\0\0\0WAVE", octets),
    ]
    found = run([page(story), page(STORY[1].encode(), none), *(page(payload, declared) for payload, declared in given)])
    assert len(found.texts) == 2
    assert found.record["types"] == {
        "application/rss+xml": 3,
        "image/png": 3,
        "application/json": 2,
        "application/rtf": 2,
        "application/zip": 2,
        "audio/wav": 1,
    }
    assert found.ledger["rule"].to_pylist() == ["content_type"] * 13


def test_rows_say_where_they_come_from(run, page, tmp_path):
    pages = [page(html(text).encode(), url=f"https://mill.example/{i}") for i, text in enumerate(STORY)]
    found = run(pages)
    assert found.table.schema.equals(DOCUMENTS)
    assert found.ledger.schema.equals(LEDGER)
    for i, row in enumerate(found.documents):
        assert row["text"] == STORY[i]
        assert (row["url"], row["source"], row["date"]) == (f"https://mill.example/{i}", "web", "2024-01-01T00:00:00Z")
        assert (row["file"], row["content_type"], row["status"]) == ("a.warc.gz", "text/html", 200)
        assert (row["title"], row["engine"]) == ("Mill", "resiliparse")
        begin, end = row["offset"], row["offset"] + row["length"]
        record = gzip.decompress((tmp_path / "web" / "a.warc.gz").read_bytes()[begin:end]).decode()
        assert f"WARC-Record-ID: {row['record_id']}" in record and STORY[i] in record
        assert f"WARC-Payload-Digest: {row['digest']}" in record


def test_a_truncated_file_keeps_what_came_before(run, page, tmp_path):
    whole = run([page(html(text).encode()) for text in STORY])
    path = tmp_path / "web" / "a.warc.gz"
    path.write_bytes(path.read_bytes()[: whole.documents[2]["offset"] + 30])
    cut = run(None, folder="cut")
    assert cut.texts == list(STORY[:2])
    assert cut.ledger.select(["rule", "offset"]).to_pylist() == [
        {"rule": "damaged_record", "offset": whole.documents[2]["offset"]}
    ]


def test_records_that_share_a_gzip_member_are_told_apart(run, tmp_path):
    http = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n{html(STORY[0])}".encode()
    record = b"WARC/1.1\r\nWARC-Type: response\r\nContent-Type: application/http; msgtype=response\r\n"
    record += b"Content-Length: %d\r\n\r\n%s\r\n\r\n" % (len(http), http)
    (tmp_path / "one.warc.gz").write_bytes(gzip.compress(record * 4))
    found = run(None, warc="one.warc.gz")
    assert found.texts == [STORY[0]] * 4
    assert [row["offset"] for row in found.documents] == [i * len(record) for i in range(4)]


def test_a_record_that_is_named_twice_is_kept_once(tmp_path, write_warc, page, extracted):
    begin, end = write_warc(tmp_path / "a.warc.gz", [page(html(text).encode()) for text in STORY[:2]])
    place = {"warc_filename": "a.warc.gz", "warc_record_offset": begin, "warc_record_length": end - begin, "url": ""}
    selection = str(tmp_path / "selection.parquet")
    parquet.write_table(selection, pa.Table.from_pylist([place, place], schema=SELECTION))
    found = extracted(Shard("selection", selection, "selection", base=str(tmp_path)))
    assert found.texts == [STORY[0]]
    assert found.ledger["rule"].to_pylist() == ["repeated_record"]


def test_rows_of_a_table_are_documents(tmp_path, extracted):
    lines = [{"text": text, "url": f"https://mill.example/{i}"} for i, text in enumerate(STORY)]
    text = "\n".join([*map(json.dumps, lines), "{", json.dumps({"url": "x"}), ""])
    (tmp_path / "a.jsonl").write_text(text)
    found = extracted(Shard("jsonl", str(tmp_path / "a.jsonl"), "a.jsonl", Columns(url="url")))
    assert found.texts == list(STORY)
    assert [(row["file"], row["offset"], row["status"]) for row in found.documents] == [
        ("a.jsonl", i, None) for i in range(3)
    ]
    assert [row["url"] for row in found.documents] == [line["url"] for line in lines]
    assert found.ledger.select(["rule", "offset"]).to_pylist() == [
        {"rule": "damaged_record", "offset": 3},
        {"rule": "no_text", "offset": 4},
    ]


def test_bare_bodies_and_short_records_are_documents_with_a_note(tmp_path, extracted):
    body = html(*STORY * 4).encode()
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + body
    head = "WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: https://mill.example/\r\nContent-Length: {}\r\n\r\n"
    # the bare body, one that lacks 8 bytes, one that lacks half, one in order
    planted = [(body, 0), (answer, 8), (answer, len(answer)), (answer, 0)]
    members = [gzip.compress(head.format(len(b) + n).encode() + b + b"\r\n\r\n") for b, n in planted]
    (tmp_path / "a.warc.gz").write_bytes(b"".join(members))
    found = extracted(Shard("archive", str(tmp_path / "a.warc.gz"), "a.warc.gz"))
    assert [(row["status"], row["truncated"], row["note"]) for row in found.documents] == [
        (None, None, "no HTTP headers"),
        (200, "unspecified", f"8 bytes short of its length of {len(answer) + 8}"),
        (200, "unspecified", f"{len(answer)} bytes short of its length of {2 * len(answer)}"),
        (200, None, None),
    ]
    assert len(set(found.texts)) == 1 and len(found.ledger) == 0


def test_a_damaged_string_of_parquet_is_in_the_ledger(tmp_path, extracted):
    texts = pa.array([STORY[0].encode(), "Mühle".encode("latin-1"), STORY[1].encode()], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
    found = extracted(Shard("parquet", str(tmp_path / "a.parquet"), "a.parquet", Columns()))
    assert found.texts == list(STORY[:2])
    reason = "row 1: the string of text is not UTF-8 at its byte 1"
    assert found.ledger.select(["rule", "offset", "detail"]).to_pylist() == [
        {"rule": "damaged_record", "offset": 1, "detail": reason}
    ]


def test_urls_are_judged_before_the_extraction_or_after_it(run, page, tmp_path):
    (tmp_path / "domains").write_text("bad.example\n")
    (tmp_path / "takedown").write_text("https://good.example/1\n")
    step = Url(blocklists=(str(tmp_path / "domains"),), takedowns=(str(tmp_path / "takedown"),)).pinned()
    hosts = ["good.example", "bad.example", "www.bad.example", "notbad.example"]
    pages = [page(html(text).encode(), url=f"https://{host}/{i}") for host in hosts for i, text in enumerate(STORY)]
    pages.insert(4, page(status="404 Not Found", url="https://bad.example/gone"))
    before = run(pages, folder="before", before=(step,))
    assert [s["step"] for s in before.record["steps"]] == ["url", "extract"]
    assert before.record["steps"][0]["drops"] == {"blocklist": 7, "takedown": 1}
    assert {row["host"] for row in before.documents} == {"good.example", "notbad.example"}
    dropped = before.ledger.to_pylist()
    assert {row["url"].split("/")[2] for row in dropped} == {"good.example", "bad.example", "www.bad.example"}
    assert all(
        row["offset"] is not None and "bad.example" in row["detail"] for row in dropped if row["rule"] != "takedown"
    )
    after = run(pages, folder="after", steps=(step,))
    assert after.record["steps"][0]["drops"] == {"http_status": 1}
    assert len(after.documents) == len(pages) - 1
    kept = [row for row in after.documents if not row["url_blocklist"] and not row["url_takedown"]]
    assert [row["id"] for row in kept] == [row["id"] for row in before.documents]


def test_normalisation_changes_the_text_that_is_kept_and_measured(run, page):
    kind = (("Content-Type", "text/plain; charset=utf-8"),)
    texts = ["cafe\u0301  \t \x07mill\r\n\r\n\r\n\r\nend", "\x07\x08 \x0b", " \n  a   b\n  1   2 \n"]
    found = run([page(text.encode(), kind) for text in texts], normalize=Normalize(), steps=(Shout(),))
    # aligned columns and blank lines of plain text stay
    assert sorted(found.texts) == ["  a   b\n  1   2", "caf\u00e9  \t mill\n\n\n\nend"]
    assert [s["step"] for s in found.record["steps"]] == ["extract", "normalize"]
    assert found.ledger.select(["step", "rule", "offset"]).to_pylist()[0]["rule"] == "empty_text"


def charset_page(text: str, encoding: str, header: str = "", meta: str = "", mark: bytes = b"") -> tuple:
    head = f'<meta charset="{meta}">' if meta else ""
    kind = f"text/html; charset={header}" if header else "text/html"
    return mark + html(text, head=head).encode(encoding), (("Content-Type", kind),)


GERMAN = "Die Mühle läuft, „solange“ Wasser da ist – für 5 € je Müllersack, größer als üblich."
JAPANESE = "水車小屋は森のはずれにあり、川の水が大きな木の車を回しています。粉屋は毎朝早く起きて、水門を開けます。"
CHINESE = "磨坊在森林边上，河水推动着大木轮。磨坊主每天清晨打开水闸，听着石磨转动的声音。"
RUSSIAN = "Мельница стоит там, где река выходит из леса, и её колесо вращается уже двести лет."
CHARSETS = {
    "utf-8 by default": (GERMAN, charset_page(GERMAN, "utf-8")),
    "header": (GERMAN, charset_page(GERMAN, "cp1252", header="windows-1252")),
    "latin-1 means windows-1252": (GERMAN, charset_page(GERMAN, "cp1252", header="ISO-8859-1")),
    "quoted header": (GERMAN, charset_page(GERMAN, "cp1252", header='"Windows-1252"')),
    "meta": (GERMAN, charset_page(GERMAN, "cp1252", meta="windows-1252")),
    "header before meta": (GERMAN, charset_page(GERMAN, "cp1252", header="windows-1252", meta="utf-8")),
    "unknown header, then meta": (GERMAN, charset_page(GERMAN, "cp1252", header="x-none", meta="windows-1252")),
    "mark before header": (GERMAN, charset_page(GERMAN, "utf-8", "windows-1252", "shift_jis", b"\xef\xbb\xbf")),
    "utf-16 little": (GERMAN, charset_page(GERMAN, "utf-16le", "windows-1252", mark=b"\xff\xfe")),
    "utf-16 big": (GERMAN, charset_page(GERMAN, "utf-16be", mark=b"\xfe\xff")),
    "utf-16 header": (GERMAN, charset_page(GERMAN, "utf-16le", header="utf-16le")),
    "shift_jis header": (JAPANESE, charset_page(JAPANESE, "cp932", header="Shift_JIS")),
    "shift_jis meta": (JAPANESE, charset_page(JAPANESE, "cp932", meta="shift_jis")),
    "shift_jis detected": (JAPANESE, charset_page(JAPANESE, "cp932")),
    "euc-jp detected": (JAPANESE, charset_page(JAPANESE, "euc-jp")),
    "gb2312 header": (CHINESE, charset_page(CHINESE, "gbk", header="gb2312")),
    "gb2312 meta": (CHINESE, charset_page(CHINESE, "gbk", meta="gb2312")),
    "windows-1251 detected": (RUSSIAN, charset_page(RUSSIAN, "cp1251")),
    "koi8-r meta": (RUSSIAN, charset_page(RUSSIAN, "koi8-r", meta="koi8-r")),
}


def test_charsets_are_decoded_in_the_standards_order(run, page):
    found = run([page(payload, http, url=f"https://x/{name}") for name, (_, (payload, http)) in CHARSETS.items()])
    texts = {row["url"].removeprefix("https://x/"): row["text"] for row in found.documents}
    assert texts == {name: text for name, (text, _) in CHARSETS.items()}


def test_plain_text_is_kept_as_it_is(run, page):
    text = "  1 < 2 & <b>no tags</b>\r\n\tindented\n\n\n&amp; \u2028 end"
    kind = (("Content-Type", "text/plain; charset=utf-8"),)
    found = run([page(text.encode(), kind), page(b"\xef\xbb\xbf" + text.encode(), kind)])
    assert found.texts == [text] * 2
    assert {row["content_type"] for row in found.documents} == {"text/plain"}


def test_a_page_without_a_type_is_looked_at(run, page):
    text = STORY[0]
    begins = ("", "<!DOCTYPE html>", "<!-- comment -->", " \r\n\t", "\ufeff", "<!doctype HTML public>")
    pages = [page((start + html(text)).encode(), ()) for start in begins]
    pages += [page(f"<p>{text}</p>".encode(), ()), page(f"<BODY class=x>{text}".encode(), ())]
    pages += [page(text.encode(), ()), page(b"\x89PNG\r\n\x1a\n" * 9, ()), page(b"%PDF-1.7 " + bytes(99), ())]
    found = run(pages)
    assert [row["text"] for row in found.documents] == [text] * 9
    assert [row["content_type"] for row in found.documents] == ["text/html"] * 8 + ["text/plain"]
    assert found.ledger["rule"].to_pylist() == ["content_type"] * 2


WORDS_AND_BREAKS = "<br>\n".join(STORY)


@pytest.mark.extended
@pytest.mark.parametrize("name", ["a.html", "A.HTM", "a.shtml", "index.html?page=2", "a.html.gz"])
def test_a_file_of_a_page_is_html_by_its_name(tmp_path, extracted, name):
    path = tmp_path / name
    path.write_bytes(gzip.compress(WORDS_AND_BREAKS.encode()) if name.endswith("gz") else WORDS_AND_BREAKS.encode())
    found = extracted(Shard("page", str(path), name, Columns(pages=True)), engine="blocks")
    assert [text.split("\n") for text in found.texts] == [list(STORY)]
    assert [(row["content_type"], row["engine"]) for row in found.documents] == [("text/html", "blocks")]


def test_files_of_other_names_are_what_their_bytes_say(tmp_path, extracted):
    for name, content in (("a.txt", STORY[0]), ("html", STORY[0]), ("a.html.txt", STORY[0]), ("b.txt", html(STORY[0]))):
        (tmp_path / name).write_text(content)
        found = extracted(Shard("page", str(tmp_path / name), name, Columns(pages=True)), folder=f"out {name}")
        assert found.texts == [STORY[0]]
        kind = "text/html" if content != STORY[0] else "text/plain"
        assert [row["content_type"] for row in found.documents] == [kind]
    (tmp_path / "c.html").write_bytes(b"%PDF-1.7 " + bytes(99))
    found = extracted(Shard("page", str(tmp_path / "c.html"), "c.html", Columns(pages=True)), folder="c")
    assert found.ledger["detail"].to_pylist() == ["application/pdf"]


@pytest.mark.extended
def test_a_page_of_few_tags_is_html_by_its_address_or_its_server(tmp_path, run, page, extracted):
    addresses = ["https://a.example/b.html?c#d", "https://[a.example/b.htm", "https://a.example/b"]
    table = pa.table({"page": [WORDS_AND_BREAKS.encode()] * 3, "url": addresses})
    pq.write_table(table, tmp_path / "a.parquet")
    columns = Columns(text="page", url="url", pages=True)
    found = extracted(Shard("parquet", str(tmp_path / "a.parquet"), "a", columns), folder="table")
    assert [row["content_type"] for row in found.documents] == ["text/html", "text/html", "text/plain"]
    assert [text.count("<br>") for text in found.texts] == [0, 0, 2]
    found = run([page(WORDS_AND_BREAKS.encode(), (("Content-Type", "text/html"),))], engine="blocks")
    assert [text.split("\n") for text in found.texts] == [list(STORY)]


@pytest.mark.extended
@pytest.mark.parametrize("engine", ["resiliparse", "trafilatura"])
def test_both_engines_find_the_article(run, page, engine):
    (text,) = run([page(article().encode())], engine=engine).texts
    assert all(paragraph in text for paragraph in STORY)
    assert not [name for name in (*NAVIGATION, "script", "color") if name in text]


@pytest.mark.extended
@pytest.mark.parametrize("engine", ["resiliparse", "trafilatura"])
def test_odd_characters_are_kept_or_replaced_and_never_stop_a_shard(run, page, engine):
    story = " ".join(STORY)
    utf8, utf16 = ((("Content-Type", f"text/html; charset={c}"),) for c in ("utf-8", "utf-16le"))
    plain = (("Content-Type", "text/plain; charset=utf-8"),)
    pages = [
        page(html(f"before\0after. {story}").encode(), utf8),
        page(html(story).encode().replace(b"mill", b"mi\xed\xa0\x80ll"), utf8),
        page(html(story).encode().replace(b"mill", b"mi\xff\xfell"), utf8),
        page(html(story).replace("mill", "mi\ud800ll").encode("utf-16le", "surrogatepass"), utf16),
        page(html(f"&#xD800; &#0; &#x1F600; &#x110000; {story}").encode(), utf8),
        page(b"plain \xed\xa0\x80 \0 \xf4\x90\x80\x80 text", plain),
        page(html(*["<b>" * 900 + story]).encode(), utf8),
        page(bytes(range(256)) * 20, utf8),
        page(b"<" * 5000, utf8),
        page(html(story).encode()),
    ]
    found = run(pages, engine=engine, steps=(Language(),))
    assert found.record["rows_in"] == len(pages)
    assert found.texts[-1].split() == story.split()
    for text in found.texts:
        assert text.encode("utf-8").decode() == text
    assert sum("river leaves the forest" in text for text in found.texts) >= 4
    allowed = {"empty_text", "extractor_error", "undecodable_payload", "too_deep", "content_type"}
    assert set(found.ledger["rule"].to_pylist()) <= allowed


def test_a_page_that_hangs_or_explodes_costs_one_page(run, page):
    deep = page(b"<div>" * 100_000 + b"deep")
    pages = [page(html(STORY[0]).encode()), deep, page(html(STORY[1]).encode())]
    found = run(pages, limits={"page_seconds": 1})
    assert found.texts == list(STORY[:2])
    assert found.ledger.select(["rule", "url"]).to_pylist() == [{"rule": "page_timeout", "url": deep.url}]


def test_ids_are_fixed_by_source_name_and_record(run, page):
    pages = [page(html(text).encode()) for text in STORY]

    def ids(**given) -> list[str]:
        return run(pages, **given).table["id"].to_pylist()

    first = ids(folder="1")
    assert len(set(first)) == len(STORY)
    assert ids(folder="2", warc="elsewhere/deep/a.warc.gz") == first
    assert ids(folder="3", engine="trafilatura") == first
    assert not set(ids(folder="4", source="books")) & set(first)
    assert not set(ids(folder="5", warc="web/b.warc.gz")) & set(first)


class Shout(DocumentStep):
    """Capitals and the length of the address, to see that a step gets the columns it asks for."""

    step: str = "shout"
    signals: ClassVar = (
        Signal("capitals", "int32", "characters", "test", description="Of a test."),
        Signal("address", "int64", "characters", "test", description="Of a test."),
    )


def measure(step, documents):
    capitals = [sum(c.isupper() for c in text) for text in documents["text"].to_pylist()]
    return {
        "capitals": pa.array(capitals, pa.int32()),
        "address": pc.utf8_length(documents["url"]).cast(pa.int64()).combine_chunks(),
    }


def test_signals_of_steps_are_columns_beside_their_documents(run, page):
    n = BATCH + 88
    pages = [page(html(f"Page {'A' * (i % 50)} number {i}").encode(), url=f"https://x/{i}") for i in range(n)]
    pages[100] = page(status="404 Not Found")
    found = run(pages, steps=(Shout(), Language(keep=("de",))))
    assert found.table.column_names == [*DOCUMENTS.names, "capitals", "address", "language", "language_score"]
    assert found.table.schema.field("capitals").metadata == {b"unit": b"characters", b"source": b"test"}
    # measured, not decided: no document is dropped for its signals
    assert found.record["rows_out"] == n - 1 and found.record["rows_in"] == n
    for row in found.documents:
        assert row["capitals"] == sum(c.isupper() for c in row["text"])
        assert row["address"] == len(row["url"])
        assert f"number {row['url'].removeprefix('https://x/')}" in row["text"]
        assert 0 <= row["language_score"] <= 1


def test_two_runs_give_the_same_bytes(run, page):
    pages = [page(html(text, str(i)).encode()) for i in range(20) for text in STORY] + [page(status="500 No")]
    one, two = (run(pages, folder=folder, steps=(Language(),)) for folder in ("one", "two"))
    assert one.record == two.record
    for path in (layout.part, layout.ledger_part):
        assert files.checksum(path(one.folder, 0)) == files.checksum(path(two.folder, 0))


def test_a_file_without_responses_is_an_empty_shard(run, page):
    found = run([page(kind="warcinfo", content_type="application/warc-fields")], steps=(Language(),))
    assert (found.record["rows_in"], found.record["rows_out"], len(found.ledger)) == (0, 0, 0)
    assert "language" in found.table.column_names


def test_a_missing_file_is_an_error_and_leaves_no_shard(run, tmp_path):
    with pytest.raises(FileNotFoundError):
        run(None, warc="none.warc.gz")
    assert not Path(layout.part(str(tmp_path / "out"), 0)).exists()
