"""PDF documents on their way through a shard: from archives, folders and Parquet, beside pages of HTML."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill.storage import layout, ledger, parquet
from gristmill.tasks.documents.normalize import Normalize
from gristmill.tasks.extraction.extract import SIGNALS, Extract
from gristmill.tasks.extraction.shard import extract_shard
from gristmill.tasks.reading.sources import Archives, Pages, Tables
from tests.tasks.pdf.writing import lines, pdf

LINE = "The old mill stands where the river leaves the forest."
PDF = pdf([lines([LINE])], info="/Title(Of mills)")
HTML = f"<html><body><p>{LINE}</p></body></html>".encode()
KINDS = {"pdf": (("Content-Type", "application/pdf"),), "octets": (("Content-Type", "application/octet-stream"),)}


def extracted(folder, source, **settings):
    extract = Extract(engine="resiliparse", **settings)
    shards = tuple(source.shards())
    record = extract_shard(str(folder), 0, source.name, shards, None, (), extract, Normalize(), ())
    table = parquet.read_table(layout.part(str(folder), 0))
    dropped = parquet.read_table(layout.ledger_part(str(folder), 0))
    ledger.balance("test", record["rows_in"], len(table), record["steps"], dropped)
    return record, table, dropped


@pytest.fixture
def archive(tmp_path, write_warc, page):
    html = (("Content-Type", "text/html"),)
    pages = [page(PDF, KINDS["pdf"]), page(HTML, html), page(PDF, KINDS["octets"]), page(PDF, html), page(PDF, ())]
    write_warc(tmp_path / "a.warc.gz", [*pages, page(b"no document", KINDS["pdf"])], gzip=True)
    return Archives(name="crawl", warc=(str(tmp_path / "a.warc.gz"),))


def test_a_document_is_known_by_its_bytes(tmp_path, archive):
    _, table, dropped = extracted(tmp_path / "out", archive, types=("html", "text", "pdf"))
    assert table["text"].to_pylist() == [LINE] * 5
    assert table["engine"].to_pylist() == ["pdf", "resiliparse", "pdf", "pdf", "pdf"]
    assert table["pdf_pages"].to_pylist() == [1, None, 1, 1, 1]
    assert table["title"][0].as_py() == "Of mills"
    assert dropped["rule"].to_pylist() == ["damaged_pdf"]


def test_without_the_type_documents_are_counted_as_before(tmp_path, archive):
    record, table, dropped = extracted(tmp_path / "out", archive)
    assert not {signal.name for signal in SIGNALS} & {*table.column_names}
    assert set(dropped["rule"].to_pylist()) == {"content_type"}
    assert record["types"] == {"application/pdf": 5}


def test_folders_and_columns_of_bytes(tmp_path):
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers/a.pdf").write_bytes(PDF)
    (tmp_path / "papers/b.html").write_bytes(HTML)
    pq.write_table(pa.table({"content": [PDF, HTML, None], "name": ["a", "b", "c"]}), tmp_path / "b.parquet")
    given = {"types": ("html", "text", "pdf"), "max_bytes": 1_000_000}
    _, files, _ = extracted(tmp_path / "1", Pages(name="f", pages=(str(tmp_path / "papers/*"),)), **given)
    assert (files["engine"].to_pylist(), files["file"].to_pylist()) == (["pdf", "resiliparse"], ["a.pdf", "b.html"])
    rows = Tables(name="t", parquet=(str(tmp_path / "b.parquet"),), payload_column="content")
    _, table, dropped = extracted(tmp_path / "2", rows, **given)
    assert table["text"].to_pylist() == [LINE] * 2
    assert dropped["rule"].to_pylist() == ["no_text"]
    with pytest.raises(ValueError, match="give one of them"):
        Tables(name="t", parquet=("b.parquet",), payload_column="content", text_column="text")


def test_a_document_over_max_bytes_is_dropped(tmp_path, archive):
    _, _, dropped = extracted(tmp_path / "out", archive, types=("pdf",), max_bytes=200)
    assert dropped["rule"].to_pylist().count("too_large") == 4
