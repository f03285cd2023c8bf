"""From any document back to the bytes that the crawler wrote, and forward to what every stage made of it."""

import gzip
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from gristmill.flows.cli.documents import lineage as rendered
from gristmill.flows.reports import lineage
from gristmill.flows.reports.lineage import trace
from gristmill.storage import parquet
from gristmill.storage.remote.config import RemoteIOConfig


@pytest.fixture(scope="module")
def home(undisturbed) -> str:
    return str(undisturbed.home("undisturbed"))


def table(undisturbed, stage: str, part: str = "part-*.parquet") -> list[dict]:
    [folder] = [f for name, f in undisturbed.stages("undisturbed").items() if name.rsplit("-", 1)[0] == stage]
    return [row for path in sorted(folder.glob(part)) for row in parquet.read_table(str(path)).to_pylist()]


def one(home: str, document: str):
    [found] = list(trace(home, document, RemoteIOConfig()))
    return found


def test_a_kept_document_has_its_raw_page_all_scores_and_every_verdict(undisturbed, home, crawl):
    kept = table(undisturbed, "quality_cut")[0]["id"]
    found = one(home, kept)
    [row] = [row for row in table(undisturbed, "documents") if row["id"] == kept]
    assert found.row == row
    stored = (crawl.folder / row["file"]).read_bytes()[row["offset"] : row["offset"] + row["length"]]
    assert gzip.decompress(stored).endswith(found.raw.encode() + b"\r\n\r\n")
    assert row["text"].split("\n")[0].split()[0] in found.raw
    assert {name.rsplit("-", 1)[0] for name in found.scores} == {"near_duplicates", "edited", "perplexity", "quality"}
    assert len(found.decisions) == 7 and all(decision.kept for decision in found.decisions)
    lines = "\n".join(rendered(found, 100))
    for expected in (kept, row["url"], f"offset: {row['offset']}", "perplexity", row["text"][:50], found.raw[:50]):
        assert expected in lines
    assert one(home, kept[:12]).row == row


def test_a_dropped_document_says_by_what_and_for_which_other_one(undisturbed, home):
    duplicate = table(undisturbed, "near_duplicates", "ledger/*.parquet")[0]
    found = one(home, duplicate["id"])
    last = found.decisions[-1]
    assert (last.kept, last.row) == (False, duplicate)
    assert (last.row["step"], last.row["rule"]) == ("minhash", "near_duplicate")


def test_a_record_that_never_became_a_document_is_read_again_too(undisturbed, home):
    gone = next(row for row in table(undisturbed, "documents", "ledger/*.parquet") if row["rule"] == "http_status")
    found = one(home, gone["id"])
    assert (found.record.payload, found.record.status) == (b"gone", 404)
    [decision] = found.decisions
    assert not decision.kept and (decision.row["rule"], decision.row["value"]) == ("http_status", 404.0)
    assert not found.became_document and found.signals == {} and found.raw == "gone"


def test_a_file_that_is_another_one_by_now_is_said_to_be(undisturbed, home, crawl, tmp_path, monkeypatch):
    kept = table(undisturbed, "quality_cut")[0]["id"]
    [row] = [row for row in table(undisturbed, "documents") if row["id"] == kept]
    path = tmp_path / row["file"]  # a copy, since all processes of a test run read the crawl
    shutil.copy(crawl.folder / row["file"], path)
    recorded = lineage.recorded_file
    monkeypatch.setattr(lineage, "recorded_file", lambda *of: replace(recorded(*of), path=str(path)))
    assert one(home, kept).record is not None
    path.write_bytes(gzip.compress(b"something else") * 5000)
    overwritten = one(home, kept)
    assert overwritten.record is None and str(path) in overwritten.trouble
    path.unlink()
    moved = one(home, kept)
    assert moved.record is None and str(path) in moved.raw
    assert moved.row == row and moved.scores


def test_an_unknown_id_is_an_error(home):
    with pytest.raises(LookupError, match="no document in .* begins with ffff"):
        list(trace(home, "ffff" * 8, RemoteIOConfig()))
    assert Path(home).exists()
