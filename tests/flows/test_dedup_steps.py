"""Exact and near duplicates one after the other, as a user runs them, on texts of which it is known what they are."""

import orjson
import pytest

from gristmill.flows.reports.dropped import dropped
from gristmill.storage import files, layout, parquet
from tests.planted.text import pydoc_paragraphs

BASES = 12


@pytest.fixture(scope="module")
def documents() -> dict[str, dict]:
    """By what they are called: texts, each with a recrawl of its URL, a copy in capitals and a near copy elsewhere."""
    prose = pydoc_paragraphs()
    made = {}
    for i in range(BASES):
        text = "\n".join(prose[8 * i : 8 * i + 8])
        url = f"https://mill.example/{i}"
        made[f"base {i}"] = {"text": text, "url": url, "date": "2023-05-01T00:00:00Z"}
        made[f"recrawl {i}"] = {"text": f"{text} Grist.", "url": f"{url}?utm_source=x", "date": "2024-05-01T00:00:00Z"}
        made[f"copy {i}"] = {
            "text": f"{text}\nGRIST!".upper(),
            "url": f"https://copy.example/{i}",
            "date": "2022-01-01",
        }
        made[f"near {i}"] = {"text": f"{text} Grist or bran.", "url": f"https://near.example/{i}", "date": "2021"}
    made["plain"] = {"text": "... !", "url": "", "date": ""}
    made["plain too"] = {"text": "... !", "url": "", "date": ""}
    return made


@pytest.mark.slow
def test_each_step_drops_what_is_its_own(documents, runs):
    named = list(documents.items())
    for part in range(3):
        lines = [orjson.dumps({**document, "name": name}) for name, document in named[part::3]]
        (runs.folder / f"texts-{part}.jsonl").write_bytes(b"\n".join(lines))
    columns = {"text_column": "text", "url_column": "url", "id_column": "name", "date_column": "date"}
    recipe = {
        "name": "exact",
        "sources": [{"name": "web", "jsonl": [f"{runs.folder}/texts-*.jsonl"], **columns}],
        "steps": [
            {"step": "extract", "engine": "plain"},
            {"step": "url_dedup"},
            {"step": "content_dedup", "keep": ["newest"]},
            {"step": "minhash", "keep": ["longest"]},
        ],
        "mixture": {"weights": {"web": 1}},
    }
    runs.run("exact", ("corpus", recipe), executor="threads")
    made = {name.rsplit("-", 1)[0]: folder for name, folder in runs.stages("exact").items()}
    parts = range(3)
    rows = [parquet.read_table(layout.part(str(made["documents"]), i), ["id", "record_id"]) for i in parts]
    names = {row["id"]: row["record_id"] for table in rows for row in table.to_pylist()}

    found = {}
    for stage in ("url_duplicates", "content_duplicates", "near_duplicates"):
        ledgers = [parquet.read_table(layout.ledger_part(str(made[stage]), i)).to_pylist() for i in parts]
        found[stage] = {names[row["id"]]: names[row["representative"]] for rows in ledgers for row in rows}
    assert found == {
        "url_duplicates": {f"base {i}": f"recrawl {i}" for i in range(BASES)},
        "content_duplicates": {f"copy {i}": f"recrawl {i}" for i in range(BASES)},
        "near_duplicates": {f"recrawl {i}": f"near {i}" for i in range(BASES)},
    }
    kept = [parquet.read_table(layout.part(str(made["near_duplicates"]), i), ["id"])["id"].to_pylist() for i in parts]
    assert {names[i] for ids in kept for i in ids} == {"plain", "plain too", *(f"near {i}" for i in range(BASES))}
    for stage, left in [("url_duplicates", 38), ("content_duplicates", 26), ("near_duplicates", 14)]:
        assert files.read_json(str(made[stage] / "manifest.json"))["counts"]["rows_out"] == left
    [one] = dropped(str(runs.home("exact")), "dropped", "url_dedup.url", 1)
    assert one.text and "https://mill.example/" in one.row["detail"]
