"""Many small files are few shards, with the documents, drops and lineage that each file alone gives."""

import gzip
import json
import pickle
from collections.abc import Iterator
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.lineage import trace
from gristmill.flows.stages.documents import documents
from gristmill.storage import parquet
from gristmill.storage.home import open_stage
from gristmill.storage.remote.config import DEFAULT
from gristmill.tasks.engine.executors import Threads
from tests.conftest import page, write_warc
from tests.corpora import context

TEXTS, FILES = 600, 40


class Weighed(Threads):
    """The executor of tests, which notes the bytes of the largest job."""

    largest = 0

    def map(self, work: Any, jobs: Any) -> Iterator[Any]:
        jobs = list(jobs)
        self.largest = max([self.largest, *(len(pickle.dumps(job)) for job in jobs)])
        return super().map(work, jobs)


@pytest.fixture
def sources(tmp_path) -> list[dict]:
    """600 texts, and 40 files of each other kind, in two folders; some are damaged, or hold nothing."""
    for kind in ("texts", "lines", "tables", "crawl"):
        for folder in ("a", "b"):
            (tmp_path / kind / folder).mkdir(parents=True)
    for n in range(TEXTS):
        folder = "ab"[n % 7 == 0]
        text = f"Sack number {n} holds {'grain and ' * (n % 13)}chaff."
        (tmp_path / "texts" / folder / f"{n:03d}.txt").write_text("" if n == 5 else text)
        if n >= FILES:
            continue
        lines = "".join(json.dumps({"text": f"{text} {row}"}) + "\n" for row in range(n % 3))
        packed = gzip.compress(lines.encode(), mtime=0)
        (tmp_path / "lines" / folder / f"{n:03d}.jsonl.gz").write_bytes(packed[:-9] if n == 32 else packed)
        path = tmp_path / "tables" / folder / f"{n:03d}.parquet"
        if n == 21:
            path.write_bytes(b"no table at all")
        else:
            pq.write_table(pa.table({"text": [text, None]}), path)
        write_warc(
            tmp_path / "crawl" / folder / f"{n:03d}.warc.gz",
            [(f"https://mill.example/{n}", page([text] * 3), "200 OK", "text/html; charset=utf-8")],
        )
    kinds = {"texts": "text", "lines": "jsonl", "tables": "parquet", "crawl": "warc"}
    return [{"name": name, key: [str(tmp_path / name / "**" / "*.*")]} for name, key in kinds.items()]


def extracted(home: str, sources: list[dict], workers: Threads | None = None, **more):
    steps = [{"step": "extract", "engine": "plain"}]
    recipe = load({"name": "small", "sources": sources, "steps": steps, **more})
    made = documents(context(home, workers), recipe, ())
    stage = open_stage(made.documents.folder)
    found = [parquet.read_table(part).to_pylist() for part in stage.parts]
    dropped = [parquet.read_table(stage.ledger(n)).to_pylist() for n in range(len(stage.parts))]
    return made, stage, [row for part in found for row in part], [row for part in dropped for row in part]


def content(tmp_path, n: int) -> str:
    return (tmp_path / "texts" / "ab"[n % 7 == 0] / f"{n:03d}.txt").read_text()


@pytest.mark.extended
def test_the_documents_and_drops_are_those_of_each_file_alone(tmp_path, sources):
    made, _, rows, drops = extracted(str(tmp_path / "home"), sources[1:])
    alone = [source | {"shard_bytes": 1} for source in sources[1:]]
    apart, _, rows_alone, drops_alone = extracted(str(tmp_path / "home"), alone)
    assert len(apart.sources) == 3 * FILES and len(made.sources) < 2 * FILES
    assert rows == rows_alone and drops == drops_alone
    damaged = {(drop["file"], drop["rule"]) for drop in drops if drop["rule"] != "no_text"}
    assert damaged == {("a/032.jsonl.gz", "damaged_record"), ("b/021.parquet", "damaged_record")}


@pytest.mark.extended
def test_many_texts_are_few_jobs_that_do_not_carry_their_names(tmp_path, sources):
    workers = Weighed(1, None)
    made, stage, rows, drops = extracted(str(tmp_path / "home"), sources[:1], workers)
    assert 16 <= len(made.sources) <= 20 and workers.largest < 8_000
    order = sorted(range(TEXTS), key=lambda n: ("ab"[n % 7 == 0], n))
    assert [row["text"] for row in rows] == [content(tmp_path, n) for n in order if n != 5]
    assert [(drop["file"], drop["rule"]) for drop in drops] == [("a/005.txt", "empty_text")]
    assert stage.step_counts[0]["rows_in"] == TEXTS
    assert not (tmp_path / "home" / "stages" / stage.label / "listed").exists()
    # a note for each shard, none for each file
    assert len(list((tmp_path / "home" / "fingerprints").iterdir())) == len(made.sources)


@pytest.mark.extended
def test_a_document_of_many_files_leads_back_to_its_own(tmp_path, sources):
    home = str(tmp_path / "home")
    *_, rows, _ = extracted(home, sources)
    for row in (rows[3], rows[150], rows[-1], next(row for row in rows if row["source"] == "lines")):
        [found] = trace(home, row["id"], DEFAULT)
        assert found.record is not None and not found.trouble
        if row["source"] != "crawl":
            assert found.record.payload.decode() == row["text"]


@pytest.mark.extended
def test_the_key_holds_the_grouping_and_every_files_content(tmp_path, sources):
    home, texts = str(tmp_path / "home"), sources[:1]
    first, *_ = extracted(home, texts)
    assert extracted(home, texts)[0].documents.reused
    assert not extracted(home, [texts[0] | {"shard_bytes": 1500}])[0].documents.reused
    one = tmp_path / "texts" / "a" / "100.txt"
    one.write_text(one.read_text().replace("grain", "grein"))  # of the same size
    changed, *_ = extracted(home, texts)
    assert not changed.documents.reused


@pytest.mark.extended
def test_a_limit_reads_the_first_of_many_files(tmp_path, sources):
    home, texts = str(tmp_path / "home"), sources[:1]
    *_, whole, _ = extracted(home, texts)
    workers = Weighed(1, None)
    made, stage, rows, drops = extracted(home, texts, workers, limit=60)
    assert [*made.sources] == ["texts"] and [*rows, *drops] and rows == whole[: len(rows)]
    assert len(rows) + len(drops) == 60 and workers.largest < 8_000
    for found in trace(home, rows[40]["id"], DEFAULT):  # in both stages
        assert found.record is not None and found.record.payload.decode() == rows[40]["text"]


@pytest.mark.extended
def test_files_of_a_store_go_together_too(tmp_path, s3):
    fs = fsspec.filesystem("s3")
    for n in range(60):
        fs.pipe(f"crawl/texts/{n:02d}.txt", f"Sack number {n} holds grain.".encode())
    home = str(tmp_path / "home")
    made, _, rows, _ = extracted(home, [{"name": "texts", "text": ["s3://crawl/texts/*.txt"]}])
    assert [row["text"] for row in rows] == [f"Sack number {n} holds grain." for n in range(60)]
    assert 16 <= len(made.sources) < 25
    [found] = trace(home, rows[31]["id"], DEFAULT)
    assert found.record.payload == b"Sack number 31 holds grain."
