"""Records that an index selects are those that a reading of the whole archive finds at the same places."""

import gzip
import random
from collections import defaultdict
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from warcio.archiveiterator import ArchiveIterator

from gristmill.storage import files, layout, parquet
from gristmill.storage.remote.config import RemoteIOConfig
from gristmill.tasks.reading import archives, index
from gristmill.tasks.reading.formats import crawls
from gristmill.tasks.reading.formats.crawls import IndexFilters, Selection
from tests.crawl_server import CrawlServer, seeded

FAST = RemoteIOConfig(
    block_bytes=100_000,
    gap_bytes=5000,
    backoff_seconds=0.002,
    backoff_cap_seconds=0.01,
    budget_seconds=5,
    stall_seconds=1,
)
SNAPSHOT = "CC-MAIN-2024-22"
LIMIT = 1_000_000
DRAW = random.Random(11)
LANGUAGES = ["isl", "eng", "isl,eng", "eng,isl", None]
HOSTS = ["www.mill.is", "blog.mill.is", "grain.example", "notmill.is"]
DOMAINS = {"www.mill.is": "mill.is", "blog.mill.is": "mill.is"}


@dataclass
class Planted:
    """A crawl of two archives and its index in two files; `rows` are the index's, `bodies` by (file, offset)."""

    server: CrawlServer
    rows: list[dict]
    bodies: dict[tuple[str, int], bytes]


@pytest.fixture
def planted(crawl_server, write_warc, page) -> Planted:
    rows, bodies = [], {}
    for n in range(2):
        name = f"crawl-data/{SNAPSHOT}/segments/1.0/warc/{SNAPSHOT}-{n:05d}.warc.gz"
        pages, captures = [], []
        for i in range(60):
            host, mime = DRAW.choice(HOSTS), DRAW.choice(["text/html", "text/html", "application/pdf"])
            status = DRAW.choice([200, 200, 404])
            url = f"https://{host}/{DRAW.choice(['news', 'shop'])}/{n}-{i}"
            pages.append(page(DRAW.randbytes(DRAW.randrange(100, 3000)), url=url, status=f"{status} said"))
            captures.append((host, mime, status, url, DRAW.choice(LANGUAGES)))
        path = crawl_server.folder / name
        offsets = write_warc(path, pages)
        ends = [*offsets[1:], path.stat().st_size]
        for sent, (host, mime, status, url, language), offset, end in zip(pages, captures, offsets, ends, strict=True):
            bodies[name, offset] = sent.payload
            rows.append(
                {
                    "url": url,
                    "url_host_name": host,
                    "url_host_registered_domain": DOMAINS.get(host, host),
                    "url_host_tld": host.rsplit(".", 1)[1],
                    "content_languages": language,
                    "content_mime_detected": mime,
                    "fetch_status": status,
                    "warc_filename": name,
                    "warc_record_offset": offset,
                    "warc_record_length": end - offset,
                    "content_charset": "x" * 500,
                }
            )
    # Common Crawl's index is sorted by host; its numbers are 32 bits wide
    rows.sort(key=lambda row: (row["url_host_tld"], row["url_host_registered_domain"], row["url"]))
    schema = pa.Table.from_pylist(rows).schema
    for i, column in enumerate(("fetch_status", "warc_record_offset", "warc_record_length")):
        at = schema.get_field_index(column)
        schema = schema.set(at, schema.field(at).with_type(pa.int32() if i else pa.int16()))
    folder = f"cc-index/table/cc-main/warc/crawl={SNAPSHOT}/subset=warc"
    (crawl_server.folder / folder).mkdir(parents=True)
    for half in range(2):
        table = pa.Table.from_pylist(rows[half::2], schema=schema)
        pq.write_table(table, crawl_server.folder / folder / f"part-{half}.parquet", row_group_size=10)
    lines = "".join(f"{folder}/part-{half}.parquet\n" for half in range(2)).encode()
    listed = crawl_server.folder / f"crawl-data/{SNAPSHOT}/cc-index-table.paths.gz"
    files.write_bytes(str(listed), gzip.compress(lines))
    return Planted(crawl_server, rows, bodies)


def select(planted: Planted, folder, **settings) -> list[str]:
    selection = Selection(name="is", index=[SNAPSHOT], base=planted.server.url, **settings)
    tables = selection.tables()
    assert len(tables) == 2
    for number in reversed(range(2)):
        index.match(str(folder), number, tables[number], selection.part(IndexFilters))
    made = index.gather(str(folder), 0, 2, selection.part(IndexFilters))
    return [layout.part(str(folder), part) for part in range(made["parts"])]


def places(paths: list[str]) -> list[tuple[str, int]]:
    tables = [parquet.read_table(path) for path in paths]
    return [(row["warc_filename"], row["warc_record_offset"]) for table in tables for row in table.to_pylist()]


FILTERS = {
    "hosts": ({"hosts": ["www.mill.is"]}, lambda r: r["url_host_name"] == "www.mill.is"),
    "domains": ({"domains": ["mill.is"]}, lambda r: r["url_host_name"] in ("www.mill.is", "blog.mill.is")),
    "top-level": ({"tlds": ["is"]}, lambda r: r["url_host_name"].endswith(".is")),
    "language": ({"languages": ["isl"]}, lambda r: (r["content_languages"] or "").startswith("isl")),
    "two languages": ({"languages": ["isl", "eng"]}, lambda r: r["content_languages"] is not None),
    "prefix": (
        {"url_prefixes": ["https://grain.example/news/", "https://www."]},
        lambda r: r["url"].startswith(("https://grain.example/news/", "https://www.")),
    ),
    "nothing": ({}, lambda r: True),
}


@pytest.mark.parametrize("name", FILTERS)
def test_what_fits_is_selected_in_order(planted, tmp_path, name):
    settings, fits = FILTERS[name]
    usual = {"text/html"}, {200}
    for extra, mimes, statuses in (
        ({}, *usual),
        ({"mime": ["application/pdf"], "status": [404]}, {"application/pdf"}, {404}),
        ({"mime": [], "status": []}, {"text/html", "application/pdf"}, {200, 404}),
    ):
        expected = [
            (r["warc_filename"], r["warc_record_offset"])
            for r in planted.rows
            if fits(r) and r["content_mime_detected"] in mimes and r["fetch_status"] in statuses
        ]
        assert expected
        assert places(select(planted, tmp_path / str(len(extra)), **settings, **extra)) == sorted(expected)


@pytest.mark.parametrize("remote", [True, False])
def test_selected_records_are_those_of_the_whole_archive(planted, tmp_path, remote):
    planted.server.plan = seeded(8, 0.3)
    paths = select(planted, tmp_path, languages=["isl"], records_per_shard=10)
    assert [parquet.rows(path) for path in paths[:-1]] == [10] * (len(paths) - 1)
    base = planted.server.url if remote else str(planted.server.folder)
    found = [pair for path in paths for pair in crawls.records(path, base, LIMIT, FAST)]
    assert [(name, record.offset) for name, record in found] == places(paths)
    assert [r.payload for _, r in found] == [planted.bodies[place] for place in places(paths)]
    named = {name for name, _ in found}
    whole = {(name, r.offset): r for name in named for r in archives.records(f"{base}/{name}", LIMIT, FAST)}
    assert [record for _, record in found] == [whole[name, record.offset] for name, record in found]
    for name in named:
        with open(planted.server.folder / name, "rb") as f:
            archive = ArchiveIterator(f)
            for theirs in archive:
                said = theirs.rec_headers.get_header("WARC-Target-URI"), theirs.content_stream().read()
                ours = whole[name, archive.get_record_offset()]
                assert said == (ours.url, ours.payload)
    assert planted.server.faults()


def test_neighbours_come_in_one_request(planted, tmp_path):
    paths = select(planted, tmp_path, domains=["mill.is"], mime=[], status=[])
    lengths = {(r["warc_filename"], r["warc_record_offset"]): r["warc_record_length"] for r in planted.rows}
    by_file = defaultdict(list)
    for name, offset in places(paths):
        by_file[name].append((offset, offset + lengths[name, offset]))
    for gap, block in ((0, 10**6), (1000, 10**6), (5000, 20_000), (10**6, 10**6), (10**6, 1)):
        expected = []
        for name, ranges in by_file.items():
            spans = [list(ranges[0])]
            for start, end in ranges[1:]:
                if start - spans[-1][1] <= gap and end - spans[-1][0] <= block:
                    spans[-1][1] = end
                else:
                    spans.append([start, end])
            expected += [(name, *span) for span in spans]
        planted.server.requests.clear()
        remote_io = replace(FAST, gap_bytes=gap, block_bytes=block)
        found = [r for path in paths for _, r in crawls.records(path, planted.server.url, LIMIT, remote_io)]
        assert [r.problem for r in found] == [None] * sum(map(len, by_file.values()))
        assert [(r.path, r.start, r.end) for r in planted.server.requests] == expected
    assert len(expected) > 30


def test_a_limit_takes_an_even_sample_whatever_the_files(planted, tmp_path):
    everything = places(select(planted, tmp_path / "all", mime=[], status=[]))
    chosen = places(select(planted, tmp_path / "some", mime=[], status=[], limit=20))
    assert len(chosen) == 20 and set(chosen) < set(everything) and chosen == sorted(chosen)
    assert {name for name, _ in chosen} == {name for name, _ in everything}
    fewer = places(select(planted, tmp_path / "fewer", mime=[], status=[], limit=7))
    assert set(fewer) < set(chosen)
    one = tmp_path / "one.parquet"
    pq.write_table(pa.Table.from_pylist(planted.rows[::-1]), one)
    selection = Selection(name="is", index=[str(one)], mime=[], status=[], limit=20)
    index.match(str(tmp_path / "one"), 0, str(one), selection.part(IndexFilters))
    assert index.gather(str(tmp_path / "one"), 0, 1, selection.part(IndexFilters)) == {"records": 20, "parts": 1}
    assert places([layout.part(str(tmp_path / "one"), 0)]) == chosen


def test_row_groups_and_columns_that_cannot_matter_are_not_fetched(planted, tmp_path):
    def fetched(**settings) -> int:
        planted.server.requests.clear()
        select(planted, tmp_path / str(settings), mime=[], status=[], **settings)
        return sum(min(r.end, size(r)) - r.start for r in planted.server.requests if r.path.endswith(".parquet"))

    def size(request) -> int:
        return (planted.server.folder / request.path).stat().st_size

    # a footer is asked for as the last 64 KiB, which hides what else is read of a small file
    noise = pa.array(["".join(DRAW.choices("abcdefgh", k=5000)) for _ in planted.rows])
    table = pa.Table.from_pylist(planted.rows).append_column("noise", noise)
    for n in range(2):
        path = planted.server.folder / f"cc-index/table/cc-main/warc/crawl={SNAPSHOT}/subset=warc/part-{n}.parquet"
        pq.write_table(table.slice(n * 60, 60), path, row_group_size=10, compression="none")
    everything, some = fetched(tlds=["is", "example"]), fetched(hosts=["grain.example"])
    whole = sum(path.stat().st_size for path in planted.server.folder.glob("cc-index/**/*.parquet"))
    assert some < everything < whole / 2


def test_a_selection_of_nothing_and_an_index_without_a_column(planted, tmp_path):
    with pytest.raises(LookupError, match="meets all filters: {.hosts.: .*nowhere"):
        select(planted, tmp_path, hosts=["nowhere.example"])
    old = tmp_path / "old.parquet"
    pq.write_table(pa.Table.from_pylist(planted.rows).drop(["content_languages"]), old)
    selection = Selection(name="is", index=[str(old)], languages=["isl"])
    with pytest.raises(ValueError, match="old.parquet has no column content_languages"):
        index.match(str(tmp_path), 0, str(old), selection.part(IndexFilters))


def test_a_place_where_no_record_is_costs_one_record(planted, tmp_path):
    (path,) = select(planted, tmp_path)
    table = parquet.read_table(path)[:4]
    (name,) = set(table["warc_filename"].to_pylist())
    size = (planted.server.folder / name).stat().st_size
    offsets = table["warc_record_offset"].to_pylist()
    wrong = [offsets[0], offsets[1] + 7, offsets[2], size + 10]
    parquet.write_table(path, table.set_column(1, table.schema.field(1), pa.array(wrong, pa.int64())))
    found = [record for _, record in crawls.records(path, planted.server.url, LIMIT, FAST)]
    assert [r.problem and r.problem[0] for r in found] == [None, "damaged_record", None, "damaged_record"]
    assert [r.offset for r in found] == wrong
