"""Large files are read in ranges, by jobs of their own, with the documents, drops and lineage of the whole files."""

import gzip
import json
import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.lineage import trace
from gristmill.flows.stages.documents import documents
from gristmill.storage import parquet
from gristmill.storage.contents import ADDRESSES
from gristmill.storage.home import open_stage
from gristmill.storage.remote.config import DEFAULT
from gristmill.tasks.engine.executors import Threads
from gristmill.tasks.reading.members import zstd
from tests.corpora import context
from tests.tasks.reading.test_archive_fuzz import arc_record, mutate, warc_record
from tests.tasks.reading.test_ranges import http

RECORDS = 60


def files_of(draw: random.Random) -> dict[str, bytes]:
    """Archives of sixty records, and what they are written as."""
    written = [warc_record(n, draw)[0] for n in range(RECORDS)]
    packed = [gzip.compress(record, mtime=0) for record in written]
    sound = b"".join(packed)
    nested = gzip.compress(http(sound[: len(sound) // 2], 0), 0, mtime=0)
    damaged = sound
    for _ in range(6):
        damaged = mutate(damaged, draw)[0]
    return {
        "sound.warc.gz": sound,
        "plain.warc": b"".join(written),
        "crawl.arc.gz": b"".join(gzip.compress(arc_record(n, draw)[0], mtime=0) for n in range(RECORDS)),
        "stream.warc.gz": gzip.compress(b"".join(written), mtime=0),
        "several.warc.gz": b"".join(gzip.compress(b"".join(written[n : n + 3])) for n in range(0, RECORDS, 3)),
        "nested.warc.gz": b"".join([*packed[:20], nested, *packed[20:]]),
        "damaged.warc.gz": damaged,
    }


@pytest.fixture
def crawl(tmp_path) -> str:
    (tmp_path / "crawl").mkdir()
    for name, data in files_of(random.Random(5)).items():
        (tmp_path / "crawl" / name).write_bytes(data)
    return str(tmp_path / "crawl" / "*arc*")


def extracted(home: str, source: dict, workers: Threads | None = None):
    steps = [{"step": "extract", "engine": "plain", "verify_digests": True}]
    made = documents(context(home, workers), load({"name": "large", "sources": [source], "steps": steps}), ())
    stage = open_stage(made.documents.folder)
    found = [parquet.read_table(part).to_pylist() for part in stage.parts]
    dropped = [parquet.read_table(stage.ledger(n)).to_pylist() for n in range(len(stage.parts))]
    return made, stage, [row for part in found for row in part], [row for part in dropped for row in part]


@pytest.mark.extended
def test_the_documents_and_drops_are_those_of_whole_files(tmp_path, crawl):
    source = {"name": "web", "warc": [crawl], "shard_bytes": 1}
    whole, stage, rows, drops = extracted(str(tmp_path / "whole"), source)
    assert len(whole.sources) == 7
    assert len(rows) >= 6 * RECORDS and any(drop["rule"] == "damaged_record" for drop in drops)
    for size, workers in ((3000, None), (9001, Threads(3, None))):
        home = str(tmp_path / f"ranges-{size}")
        made, ranged, found, dropped = extracted(home, source | {"range_bytes": size}, workers)
        assert len(made.sources) > 20
        assert (found, dropped) == (rows, drops)
        assert ranged.step_counts == stage.step_counts and ranged.result == stage.result
        # a single stream is read by its first job, and the archive in a record is no part of the crawl
        stream = [part for part in ranged.part_records if part[ADDRESSES][0]["name"] == "stream.warc.gz"]
        assert [part["rows_in"] for part in stream] == [RECORDS, *[0] * (len(stream) - 1)]


@pytest.mark.extended
def test_documents_of_ranges_lead_back_to_their_records(tmp_path, crawl):
    home = str(tmp_path / "home")
    _, _, rows, _ = extracted(home, {"name": "web", "warc": [crawl], "range_bytes": 4000})
    for name in {row["file"] for row in rows}:
        of = [row for row in rows if row["file"] == name]
        for row in (of[0], of[len(of) // 2], of[-1]):
            [found] = trace(home, row["id"], DEFAULT)
            assert found.record is not None and not found.trouble
            assert found.record.record_id == row["record_id"] and found.record.offset == row["offset"]


@pytest.mark.extended
def test_the_key_holds_the_ranges(tmp_path, crawl):
    home, source = str(tmp_path / "home"), {"name": "web", "warc": [crawl]}
    first, stage, rows, _ = extracted(home, source | {"range_bytes": 5000})
    assert extracted(home, source | {"range_bytes": 5000})[0].documents.reused
    again, other, found, _ = extracted(home, source | {"range_bytes": 6000})
    assert not again.documents.reused and found == rows
    assert first.documents.key != again.documents.key and stage.folder != other.folder


def rows_of(draw: random.Random) -> list[dict]:
    return [{"text": f"{n} {draw.randbytes(30).hex()}", "n": n, "url": f"https://mill.example/{n}"} for n in range(90)]


def lines_of(draw: random.Random) -> dict[str, bytes]:
    """Files of lines, with a line that is no JSON and blank ones among them, and what they are written as."""
    lines = [json.dumps(row).encode() for row in rows_of(draw)]
    lines[17], lines[40:40] = b"no JSON", [b"", b""]
    content = b"\n".join(lines) + b"\n"
    parts = [content[at : at + 700] for at in range(0, len(content), 700)]
    damaged = [gzip.compress(part, mtime=0) for part in parts]
    damaged[6] = damaged[6][:100] + b"damage" + damaged[6][106:]
    return {
        "damaged.jsonl.gz": b"".join(damaged),
        "frames.jsonl.zst": b"".join(map(zstd.compress, parts)),
        "members.jsonl.gz": b"".join(gzip.compress(part, mtime=0) for part in parts),
        "plain.jsonl": content,
        "stream.jsonl.gz": gzip.compress(content, mtime=0),
    }


@pytest.mark.extended
def test_lines_and_rows_are_read_in_ranges_too(tmp_path):
    folder = tmp_path / "rows"
    folder.mkdir()
    for name, data in lines_of(random.Random(2)).items():
        (folder / name).write_bytes(data)
    pq.write_table(pa.Table.from_pylist(rows_of(random.Random(3))), folder / "some.parquet", row_group_size=7)
    pq.write_table(pa.Table.from_pylist(rows_of(random.Random(4))), folder / "one.parquet")
    kept = {"url_column": "url", "columns": "*", "shard_bytes": 1}
    for key, files_there in (("jsonl", 5), ("parquet", 2)):
        source = {"name": "rows", key: [f"{folder}/*.{key}*"], **kept}
        whole, stage, rows, drops = extracted(str(tmp_path / f"{key}-whole"), source)
        assert len(whole.sources) == files_there and len(rows) > 90 * (files_there - 1)
        assert key == "parquet" or {drop["rule"] for drop in drops} == {"damaged_record"}
        for size, workers in ((900, None), (2001, Threads(3, None))):
            home = str(tmp_path / f"{key}-{size}")
            made, ranged, found, dropped = extracted(home, source | {"range_bytes": size}, workers)
            assert len(made.sources) > 2 * files_there
            assert (found, dropped) == (rows, drops)
            assert ranged.step_counts == stage.step_counts and ranged.result == stage.result
            for row in (found[0], found[len(found) // 2], found[-1]):
                [led] = trace(home, row["id"], DEFAULT)
                assert led.record is not None and not led.trouble and led.record.payload.decode() == row["text"]
            busy = [part for part in ranged.part_records if part["rows_in"]]
            named = {part[ADDRESSES][0]["name"]: 0 for part in busy}
            for part in busy:
                named[part[ADDRESSES][0]["name"]] += 1
            assert named.pop("stream.jsonl.gz", 1) == named.pop("one.parquet", 1) == 1
            named.pop("damaged.jsonl.gz", None)  # from its damage on it is read by one
            assert named and all(jobs > 1 for jobs in named.values())


class Interrupted(Threads):
    """An executor that is stopped when so many jobs are done."""

    left = 0

    def map(self, work: Any, jobs: Any) -> Iterator[Any]:
        for result in super().map(work, jobs):
            yield result
            self.left -= not getattr(result[1], "found", True)  # marks of done jobs are read, too
            if self.left == 0:
                raise KeyboardInterrupt


@pytest.mark.slow
def test_a_run_that_is_stopped_anywhere_gives_the_same(tmp_path, crawl):
    """Also between the first reading of ranges and that of those which are read again."""
    source = {"name": "web", "warc": [crawl], "range_bytes": 7000}
    _, stage, rows, drops = extracted(str(tmp_path / "whole"), source)
    home, stops = str(tmp_path / "home"), 0
    while True:
        workers = Interrupted(1, None)
        workers.left = 9
        try:
            _, again, found, dropped = extracted(home, source, workers)
        except KeyboardInterrupt:
            stops += 1
            assert stops < 100
        else:
            break
    assert stops > 4 and (found, dropped) == (rows, drops)
    assert again.part_records == stage.part_records


@pytest.mark.extended
def test_the_few_files_of_a_part_of_a_snapshot_are_read_in_ranges_by_range_requests(tmp_path, crawl_server):
    draw = random.Random(8)
    names = [f"crawl-data/CC-MAIN-2024-22/segments/1/warc/{n}.warc.gz" for n in range(3)]
    for nth, name in enumerate(names):
        path = crawl_server.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        written = [warc_record(100 * nth + n, draw)[0] for n in range(40)]
        path.write_bytes(b"".join(gzip.compress(record, mtime=0) for record in written))
    (crawl_server.folder / "crawl-data/CC-MAIN-2024-22/warc.paths.gz").write_bytes(
        gzip.compress("\n".join(names).encode())
    )
    source = {"name": "cc", "snapshot": "CC-MAIN-2024-22", "base": crawl_server.url, "files": [1, 2]}
    whole, _, rows, drops = extracted(str(tmp_path / "whole"), source)
    made, stage, found, dropped = extracted(str(tmp_path / "home"), source | {"range_bytes": 8000})
    assert len(whole.sources) == 2 and len(made.sources) > 6
    assert len(rows) == 80 and (found, dropped) == (rows, drops)
    [lineage] = trace(str(tmp_path / "home"), found[50]["id"], DEFAULT)
    assert lineage.record is not None and lineage.record.record_id == found[50]["record_id"]
    assert {request.path for request in crawl_server.requests if request.path.endswith("warc.gz")} == {*names[1:]}
