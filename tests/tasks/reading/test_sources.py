"""What a source names, and what its lists say."""

import gzip
import os
import random
import traceback
from dataclasses import replace

import fsspec
import pyarrow as pa
import pytest
from pydantic import TypeAdapter, ValidationError

from gristmill.storage import files, parquet
from gristmill.storage.remote import config
from gristmill.storage.remote.config import RemoteIOConfig
from gristmill.storage.remote.streams import RemoteIOError
from gristmill.tasks.reading import archives, listing
from gristmill.tasks.reading.headers import LINE
from gristmill.tasks.reading.listing import Shard, expand
from gristmill.tasks.reading.range_plan import Reading, corrected, ranges_of
from gristmill.tasks.reading.record import Columns
from gristmill.tasks.reading.sources import Source
from tests.crawl_server import Fault, seeded

FAST = RemoteIOConfig(backoff_seconds=0.002, backoff_cap_seconds=0.01, budget_seconds=5, stall_seconds=1)
SNAPSHOT = "CC-MAIN-2024-22"


@pytest.fixture(autouse=True)
def _fast():
    config.configure(FAST)
    yield
    config.configure(RemoteIOConfig())


@pytest.mark.parametrize(
    "name",
    [
        *(
            "data[1].jsonl",
            "what?.jsonl",
            "star*.jsonl",
            "a b.jsonl",
            "a#b.jsonl",
            "a%20b.jsonl",
            "~x.jsonl",
            "a:b.jsonl",
        ),
        *(
            "{a,b}.jsonl",
            "e\u0301.jsonl",
            "\u00e9.jsonl",
            "a$HOME.jsonl",
            "a'b&c=d.jsonl",
            "part[2]/in.jsonl",
            "!x.jsonl",
        ),
    ],
)
def test_a_file_is_named_before_a_pattern_is(tmp_path, name):
    (tmp_path / "part[2]").mkdir()
    (tmp_path / "part2").mkdir()
    for other in ("data1.jsonl", "what1.jsonl", "stars.jsonl", "a.jsonl", "e.jsonl", "part2/in.jsonl", name):
        (tmp_path / other).touch()
    for address in (f"{tmp_path}/{name}", f"file://{tmp_path}/{name}"):
        assert expand([address]) == [f"{tmp_path}/{name}"] or expand([address]) == [address]


def test_folders_and_names_that_are_nearly_there(tmp_path):
    for folder in ("part[2]", "part2", "table.jsonl"):
        (tmp_path / folder).mkdir()
    for name in ("part[2]/a.jsonl", "part2/b.jsonl", "Web.jsonl", "caf\u00e9.jsonl"):
        (tmp_path / name).touch()
    (tmp_path / "link.jsonl").symlink_to("nowhere.jsonl")
    assert expand([f"{tmp_path}/part[2]/*.jsonl"]) == [f"{tmp_path}/part[2]/a.jsonl"]
    assert expand([f"{tmp_path}/part*/*"]) == [
        f"{tmp_path}/part2/b.jsonl",
        f"{tmp_path}/part[2]/a.jsonl",
    ]
    for name, message in (
        ("web.jsonl", "there is Web.jsonl"),
        ("cafe\u0301.jsonl", "there is caf\u00e9.jsonl"),
        ("link.jsonl", "there is only a link to nowhere.jsonl"),
    ):
        with pytest.raises(FileNotFoundError, match=message):
            expand([f"{tmp_path}/{name}"])
    for pattern in ("*.jsonl", "table.jsonl"):
        with pytest.raises(IsADirectoryError, match=r"name the files in it, as .*table.jsonl/\*"):
            expand([f"{tmp_path}/{pattern}"])


def source(**settings):
    return TypeAdapter(Source).validate_python({"name": "web", **settings})


def place(root, name, lines, packed=True):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join(lines).encode()
    path.write_bytes(gzip.compress(text) if packed else text)


@pytest.fixture
def listed(crawl_server) -> list[str]:
    """A snapshot's lists, as Common Crawl has them: four segments of three files. Returns the WARC files."""
    lines = {
        kind: [
            f"crawl-data/{SNAPSHOT}/segments/17{segment}.{9 - segment}/{kind}/{SNAPSHOT}-{n:05d}.warc{suffix}.gz"
            for segment in range(4)
            for n in range(3)
        ]
        for kind, suffix in (("warc", ""), ("wet", ".wet"))
    }
    for kind, paths in lines.items():
        place(crawl_server.folder, f"crawl-data/{SNAPSHOT}/{kind}.paths.gz", paths)
    table = f"cc-index/table/cc-main/warc/crawl={SNAPSHOT}/subset="
    tables = [f"{table}{subset}/part-{n:05d}.gz.parquet" for subset in ("crawldiagnostics", "warc") for n in range(2)]
    place(crawl_server.folder, f"crawl-data/{SNAPSHOT}/cc-index-table.paths.gz", tables)
    return lines["warc"]


def test_a_snapshot_and_its_parts(crawl_server, listed):
    crawl_server.plan = seeded(2, 0.9, in_a_row=2)

    def paths(**settings) -> list[str]:
        found = source(snapshot=SNAPSHOT, base=crawl_server.url, **settings).shards()
        assert {shard.format for shard in found} == {"archive"}
        return [shard.path.removeprefix(crawl_server.url + "/") for shard in found]

    assert paths() == listed
    assert paths(segments=[1, 2]) == listed[3:9]
    assert paths(files=[0, 4]) == listed[:5]
    assert paths(segments=[3, 3], files=[1, 1]) == [listed[10]]
    assert paths(format="wet", files=[2, 2]) == [
        listed[2].replace("/warc/", "/wet/").replace(".warc.gz", ".warc.wet.gz")
    ]
    assert crawl_server.faults()
    for asked in ({"segments": [3, 4]}, {"files": [12, 12]}, {"segments": [0, 0], "files": [3, 3]}):
        with pytest.raises(FileNotFoundError, match=r"paths.gz: \w+ \d+ to \d+ do not exist; choose from 0 to \d+"):
            paths(**asked)


def test_the_tables_of_an_index(crawl_server, listed, tmp_path):
    table = f"{crawl_server.url}/cc-index/table/cc-main/warc/crawl={SNAPSHOT}/subset=warc/part-0000"
    assert source(index=[SNAPSHOT], base=crawl_server.url).tables() == [f"{table}{n}.gz.parquet" for n in range(2)]
    (tmp_path / "own.parquet").touch()
    assert source(index=[f"{tmp_path}/*.parquet"]).tables() == [f"{tmp_path}/own.parquet"]
    assert source(index=[SNAPSHOT], base="https://x").selected_shards(["a", "b"]) == [
        Shard("selection", "a", "a", base="https://x"),
        Shard("selection", "b", "b", base="https://x"),
    ]


def test_a_snapshot_that_there_is_not(crawl_server):
    with pytest.raises(FileNotFoundError, match="crawl-data/CC-MAIN-2024-22/warc.paths.gz"):
        source(snapshot=SNAPSHOT, base=crawl_server.url).shards()


def test_shards_say_how_they_are_read(tmp_path):
    for name in ("b.jsonl", "a.jsonl", "a.parquet", "a.txt"):
        (tmp_path / name).touch()
    named = {"text_column": "body", "url_column": "u", "id_column": "i", "date_column": "d"}
    columns = Columns("body", "u", "i", "d")
    assert source(jsonl=[f"{tmp_path}/*.jsonl"], **named).shards() == [
        Shard("jsonl", f"{tmp_path}/a.jsonl", "a.jsonl", columns),
        Shard("jsonl", f"{tmp_path}/b.jsonl", "b.jsonl", columns),
    ]
    for key, name, format in (
        ("parquet", "a.parquet", "parquet"),
        ("text", "a.txt", "text"),
        ("warc", "a.txt", "archive"),
    ):
        path = f"{tmp_path}/{name}"
        assert source(**{key: [path]}).shards() == [Shard(format, path, name)]


def test_a_shards_name_is_its_path_behind_the_folder_that_is_named(tmp_path):
    for path in ("a/de/part-0.parquet", "a/en/part-0.parquet", "a/en/part-1.parquet", "b/en/part-0.parquet"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()

    def names(*patterns):
        return [shard.name for shard in source(parquet=[f"{tmp_path}/{pattern}" for pattern in patterns]).shards()]

    assert names("a/*/*.parquet") == ["de/part-0.parquet", "en/part-0.parquet", "en/part-1.parquet"]
    assert names("a/en/*") == ["part-0.parquet", "part-1.parquet"]
    assert names("a/en/part-0.parquet") == ["part-0.parquet"]
    assert names("a/en/*", "a/*/part-1.parquet") == ["part-0.parquet", "part-1.parquet"]
    with pytest.raises(ValueError, match=r"both have the name part-0.parquet.* one glob for both folders"):
        names("a/en/part-0.parquet", "b/en/part-0.parquet")
    with pytest.raises(ValueError, match=r"part-0.parquet and .*part-0.parquet are one file: write it once"):
        names("a/en/part-0.parquet", "a/../a/en/./part-0.parquet")


@pytest.mark.parametrize(
    "settings,said",
    [
        ({}, "exactly one of the keys warc, jsonl, parquet, text, pages, code, reader, snapshot, index"),
        ({"warc": ["a"], "snapshot": SNAPSHOT}, "exactly one of the keys"),
        ({"warc": []}, "at least 1 item"),
        ({"warc": ["a"], "text_column": "text"}, "Extra inputs"),
        ({"text": ["a"], "url_column": "text"}, "Extra inputs"),
        ({"snapshot": "CC-MAIN-2024"}, "pattern"),
        ({"snapshot": SNAPSHOT, "segments": [0]}, "Field required"),
        ({"snapshot": SNAPSHOT, "files": [-1, 2]}, "greater than or equal to 0"),
        ({"snapshot": SNAPSHOT, "format": "wat"}, "'warc' or 'wet'"),
        ({"index": [SNAPSHOT], "limit": 0}, "greater than 0"),
        ({"warc": ["a"], "name": "Web"}, "pattern"),
    ],
)
def test_a_wrong_source_gives_one_error(settings, said):
    with pytest.raises(ValidationError) as error:
        source(**settings)
    assert error.value.error_count() == 1 and said in str(error.value)


def test_a_source_goes_through_its_own_dump():
    for settings in ({"warc": ["a"]}, {"jsonl": ["a"], "url_column": "u"}, {"index": [SNAPSHOT], "hosts": ["a.b"]}):
        first = source(**settings)
        assert TypeAdapter(Source).validate_python(first.model_dump(mode="json")) == first
        assert TypeAdapter(Source).validate_python(first) == first


def test_lists_that_are_damaged_or_empty(tmp_path, crawl_server):
    whole = gzip.compress(b"a.warc.gz\nb.warc.gz\n" * 50)
    (tmp_path / "cut.paths.gz").write_bytes(whole[:-9])
    (tmp_path / "none.paths.gz").write_bytes(b"<html>slow down</html>")
    for name in ("cut", "none"):
        with pytest.raises(ValueError, match=f"{name}.paths.gz is damaged"):
            expand([f"{tmp_path}/{name}.paths.gz"])
    (tmp_path / "empty.paths").write_text("\n \n")
    with pytest.raises(FileNotFoundError, match="empty.paths has no files"):
        expand([f"{tmp_path}/empty.paths"])


def test_a_server_that_refuses_is_not_a_file_that_is_missing(crawl_server):
    (crawl_server.folder / "a.warc.gz").write_bytes(b"x")
    address = f"{crawl_server.url}/a.warc.gz"
    crawl_server.plan = lambda path, start, nth: Fault("status", 503) if nth < 3 else None
    assert expand([address]) == [address]
    crawl_server.plan = lambda path, start, nth: Fault("status", 503)
    with pytest.raises(RemoteIOError, match="503"):
        config.configure(replace(FAST, budget_seconds=0.1))
        expand([address])


def test_expand_over_http(crawl_server):
    place(crawl_server.folder, "crawl-data/CC/a.warc.gz", [])
    lines = ["crawl-data/CC/a.warc.gz", "crawl-data/CC/b.warc.gz"]
    place(crawl_server.folder, "crawl-data/CC/warc.paths.gz", lines)
    a, b = (f"{crawl_server.url}/{line}" for line in lines)
    assert expand([f"{crawl_server.url}/crawl-data/CC/warc.paths.gz"]) == [a, b]
    assert expand([a]) == [a]
    with pytest.raises(FileNotFoundError, match="b.warc.gz"):
        expand([b])


def test_expand_in_object_stores(s3):
    memory = fsspec.filesystem("memory")
    stores = {"memory:///crawl": memory, "s3://crawl": fsspec.filesystem("s3")}
    for root, fs in stores.items():
        for name in ("b.warc.gz", "a.warc.gz"):
            fs.pipe(f"{root}/crawl-data/{name}", b"x")
        fs.pipe(f"{root}/crawl-data/warc.paths", b"crawl-data/b.warc.gz\n\n")
        both = [f"{root}/crawl-data/{name}.warc.gz" for name in "ab"]
        assert expand([f"{root}/crawl-data/*.warc.gz"]) == both == expand(both[::-1])
        assert expand([f"{root}/crawl-data/warc.paths"]) == both[1:]
        with pytest.raises(FileNotFoundError):
            expand([f"{root}/crawl-data/c.warc.gz"])
    memory.rm("/crawl", recursive=True)


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
    lines = ["2.warc.gz", full["b/1.warc.gz"], "", "https://mill.example/x.warc.gz", "../b/1.warc.gz"]
    expected = sorted(
        [full["a/2.warc.gz"], full["b/1.warc.gz"], "https://mill.example/x.warc.gz", f"{tmp_path}/a/../b/1.warc.gz"]
    )
    place(tmp_path, "a/files.paths", lines, packed=False)
    place(tmp_path, "a/files.paths.gz", lines)
    assert expand([f"{tmp_path}/a/files.paths"]) == expand([f"{tmp_path}/a/files.paths.gz"]) == expected
    place(tmp_path, "crawl-data/c/warc.paths", ["crawl-data/c/4.warc.gz\r"], packed=False)
    assert expand([f"{tmp_path}/crawl-data/c/warc.paths"]) == [full["crawl-data/c/4.warc.gz"]]
    monkeypatch.chdir(tmp_path / "a")
    assert expand(["1.warc.gz"]) == [full["a/1.warc.gz"]]
    assert expand(["files.paths"]) == expected


@pytest.mark.parametrize("pattern", ["none.warc.gz", "none/*.warc.gz", "none.paths.gz"])
def test_a_pattern_that_names_no_file_is_an_error_that_names_it(tmp_path, pattern):
    with pytest.raises(FileNotFoundError, match=pattern.replace("*", ".")):
        expand([f"{tmp_path}/{pattern}"])


@pytest.mark.extended
def test_the_same_records_from_everywhere(tmp_path, crawl_server, s3, write_warc, page):
    """And the same shard wherever it is written."""
    draw = random.Random(3)
    pages = [page(draw.randbytes(draw.randrange(1, 20_000)), url=f"https://mill.example/{n}") for n in range(60)]
    path = crawl_server.folder / "a.warc.gz"
    write_warc(path, pages)
    data = path.read_bytes()
    fsspec.filesystem("s3").pipe("crawl/a.warc.gz", data)
    small = replace(FAST, block_bytes=10_000)
    assert len(data) > 50 * small.block_bytes
    crawl_server.plan = seeded(6, 0.4)
    s3.refuse = lambda method, path, nth: 503 if nth % 7 == 3 else None
    local, *others = (
        list(archives.records(f"{root}/a.warc.gz", 10**6, small))
        for root in (crawl_server.folder, crawl_server.url, "s3://crawl")
    )
    assert [r.payload for r in local] == [p.payload for p in pages]
    assert others == [local] * 2
    assert crawl_server.faults() and 503 in {status for _, _, status in s3.requests}
    table = pa.table({"id": [r.record_id for r in local], "payload": [r.payload for r in local]})
    for root in (str(tmp_path), "s3://crawl/stage"):
        parquet.write_table(f"{root}/part-00000.parquet", table)
    assert files.read_bytes("s3://crawl/stage/part-00000.parquet") == (tmp_path / "part-00000.parquet").read_bytes()
    assert parquet.read_table("s3://crawl/stage/part-00000.parquet") == table


@pytest.mark.extended
def test_a_range_of_a_remote_file_is_all_that_is_fetched(crawl_server, write_warc, page):
    """Beside the file's beginning, up to two blocks and 512 KiB behind the range's last record; whatever the server
    does."""
    draw = random.Random(4)
    write_warc(crawl_server.folder / "a.warc.gz", [page(draw.randbytes(draw.randrange(1, 200_000))) for _ in range(60)])
    local, remote = f"{crawl_server.folder}/a.warc.gz", f"{crawl_server.url}/a.warc.gz"
    size, small = os.path.getsize(local), replace(FAST, block_bytes=50_000)
    whole = list(archives.records(local, 10**6))
    crawl_server.plan = seeded(7, 0.2)
    read, found = [], []
    for part in ranges_of(size, size // 4):
        crawl_server.requests.clear()
        reading = Reading()
        records = list(archives.records(remote, 10**6, small, part=part, reading=reading))
        found += records
        read.append((part, reading.range))
        last = records[-1].offset + records[-1].length
        asked = [(r.start, r.end) for r in crawl_server.requests if r.start is not None and r.end is not None]
        asked = [(start, end) for start, end in asked if end > LINE]
        assert min(start for start, _ in asked) >= part.begin and max(end for _, end in asked) <= last + 2 * 50_000 + (
            1 << 19
        )
        assert last <= records[0].offset + reading.bytes <= last + (1 << 19)
    assert found == whole and set(corrected(read)) == {None}


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(IsADirectoryError, match="is a folder: name the files in it"):
        expand([str(tmp_path)])


@pytest.mark.parametrize("pattern", ["pipe.jsonl", "*.jsonl", "file://{}/pipe.jsonl", "pipe.paths", "zero.*"])
def test_a_pipe_or_a_device_is_refused_without_being_opened(tmp_path, pattern):
    for name in ("pipe.jsonl", "pipe.paths"):
        os.mkfifo(tmp_path / name)  # no one writes: whoever opens it waits
    (tmp_path / "zero.text").symlink_to("/dev/zero")
    (tmp_path / "a.jsonl").write_text("{}")
    named = pattern.format(tmp_path) if "://" in pattern else str(tmp_path / pattern)
    with pytest.raises(FileNotFoundError, match=r"(pipe\.(jsonl|paths)|zero\.text) is a pipe or a device"):
        expand([named])


def test_errors_name_no_password_and_no_signature(crawl_server):
    root = crawl_server.url.replace("://", "://user:pa55word@")
    place(crawl_server.folder, "empty.paths", [""], packed=False)
    (crawl_server.folder / "index").write_text("<a href='b'>b</a>")
    for pattern in (f"{root}/none.warc.gz?sig=s3cret", f"{root}/none/*.warc.gz", f"{root}/empty.paths"):
        with pytest.raises(FileNotFoundError) as error:
            expand([pattern])
        text = "".join(traceback.format_exception(error.value))
        assert crawl_server.url in str(error.value)
        assert "pa55word" not in text and "s3cret" not in text


def test_a_list_that_unfolds_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(listing, "LARGEST_LIST", 1 << 20)
    (tmp_path / "a.paths.gz").write_bytes(gzip.compress(b"a" * (2 << 20)))
    with pytest.raises(ValueError, match=r"a.paths.gz is damaged: it has more than 1,048,576 bytes; fetch it again"):
        expand([f"{tmp_path}/a.paths.gz"])


@pytest.mark.parametrize(
    "line", ["../../etc/x.warc.gz", "a/../../x.warc.gz", "a/%2e%2e/x.warc.gz", "%252e%252e/x.warc.gz", "..\\x.warc.gz"]
)
def test_a_list_from_elsewhere_leads_up_to_no_folder(crawl_server, line):
    place(crawl_server.folder, "lists/a.paths.gz", ["fine.warc.gz", line])
    place(crawl_server.folder, f"crawl-data/{SNAPSHOT}/warc.paths.gz", [f"crawl-data/{line}"])
    remedy = "may only have paths below its own folder.*: if you trust it, copy it to this machine"
    with pytest.raises(ValueError, match=remedy):
        expand([f"{crawl_server.url}/lists/a.paths.gz"])
    with pytest.raises(ValueError, match=remedy):
        source(snapshot=SNAPSHOT, base=crawl_server.url).shards()


def test_dots_that_lead_nowhere_are_names(crawl_server):
    place(crawl_server.folder, "lists/a.paths.gz", ["a..b.warc.gz", "...warc.gz"])
    assert len(expand([f"{crawl_server.url}/lists/a.paths.gz"])) == 2
