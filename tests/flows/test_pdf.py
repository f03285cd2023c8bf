"""A recipe over PDF documents from an archive, a folder and a Parquet file."""

import hashlib
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.lineage import trace
from gristmill.flows.stages.corpus import NothingLeftError, check_sources
from gristmill.flows.stages.documents import documents
from gristmill.storage import parquet
from gristmill.storage.home import open_stage
from gristmill.storage.remote.config import DEFAULT
from gristmill.tasks.engine.executors import Threads
from tests.conftest import write_warc
from tests.corpora import context
from tests.tasks.pdf.writing import lines, pdf

FILES = 8


@pytest.fixture
def recipe(tmp_path):
    made = [pdf([lines([f"Sack number {n} holds grain and chaff."])], info="/Author(A. Miller)") for n in range(FILES)]
    html = b"<html><body><p>The old mill stands where the river leaves the forest.</p></body></html>"
    payloads = [*((data, "application/pdf") for data in made), (html, "text/html"), (made[0][:300], "application/pdf")]
    write_warc(
        tmp_path / "a.warc.gz",
        [(f"https://mill.example/{n}", data, "200 OK", kind) for n, (data, kind) in enumerate(payloads)],
    )
    (tmp_path / "papers").mkdir()
    for n, data in enumerate(made):
        (tmp_path / "papers" / f"{n}.pdf").write_bytes(data)
    pq.write_table(pa.table({"content": [*made, html, None]}), tmp_path / "b.parquet")
    return load(
        {
            "name": "papers",
            "sources": [
                {"name": "crawl", "warc": [str(tmp_path / "a.warc.gz")]},
                {"name": "folder", "pages": [str(tmp_path / "papers" / "*.pdf")], "shard_bytes": 3000},
                {"name": "table", "parquet": [str(tmp_path / "b.parquet")], "payload_column": "content"},
            ],
            "steps": [
                {"step": "extract", "engine": "plain", "types": ["html", "text", "pdf"]},
                {"step": "where", "keep": "pdf_pages is null or pdf_author = 'A. Miller'"},
            ],
        }
    )


def digests(folder: str) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(Path(folder).rglob("*.parquet"))
    }


@pytest.mark.extended
def test_the_same_bytes_for_one_worker_and_two_and_a_ledger_that_balances(tmp_path, recipe):
    one = documents(context(str(tmp_path / "one"), Threads(1, None)), recipe, ())
    two = documents(context(str(tmp_path / "two"), Threads(2, None)), recipe, ())
    assert digests(one.documents.folder) == digests(two.documents.folder) != {}
    stage = open_stage(one.documents.folder)
    rows = [row for part in stage.parts for row in parquet.read_table(part).to_pylist()]
    drops = [row for n in range(len(stage.parts)) for row in parquet.read_table(stage.ledger(n)).to_pylist()]
    assert len(rows) == 3 * FILES + 2 and len(rows) + len(drops) == stage.step_counts[0]["rows_in"]
    assert sorted(drop["rule"] for drop in drops) == ["damaged_pdf", "no_text"]
    assert {row["pdf_author"] for row in rows if row["engine"] == "pdf"} == {"A. Miller"}
    for row in (rows[0], rows[FILES + 3], rows[-2]):
        [found] = trace(str(tmp_path / "one"), row["id"], DEFAULT)
        assert found.record is not None and found.record.payload.startswith(b"%PDF-") and not found.trouble


@pytest.mark.parametrize(("rule", "is_named"), [("extract.content_type", True), ("extract.empty_text", False)])
def test_a_folder_of_pdf_documents_without_the_type_is_told_to_add_it(rule, is_named):
    counts = {"papers": {"documents": 0, "records": 5, "drops": {rule: 5}}}
    corpus = SimpleNamespace(documents=SimpleNamespace(result={"sources": counts}))
    with pytest.raises(NothingLeftError, match="the source papers gives no documents") as caught:
        check_sources(corpus)
    assert ("`types: [html, text, pdf]`" in str(caught.value)) == is_named
