"""Sources of every kind in a recipe, each becomes documents, under a key of its own."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from gristmill.flows.curation import curate
from gristmill.flows.recipe.recipe import load
from gristmill.storage import files, parquet
from gristmill.tasks.reading.index import SELECTION
from tests.corpora import context
from tests.planted import Plan, plant

pytestmark = pytest.mark.extended


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Five corpora in one home: a table by two of its columns, a selection by an index, steps on URLs."""
    folder = tmp_path_factory.mktemp("sources")
    rows = [
        {"text": f"English text {i}.", "body": f"Another text {i}.", "u": f"https://a.example/{i}"} for i in range(5)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    truth = plant(folder / "planted", Plan.clean(pages=60, files=2, blocked=12))
    places = [
        {
            "warc_filename": row["file"],
            "warc_record_offset": row["offset"],
            "warc_record_length": row["length"],
            "url": row["url"],
            "content_languages": {"en": "eng", "de": "deu"}.get(row["language"], "fra"),
            "content_mime_detected": "text/html",
            "fetch_status": 200,
        }
        for row in truth.rows()
        if row["page"] is not None
    ]
    parquet.write_table(str(folder / "index.parquet"), pa.Table.from_pylist(places))
    jsonl = {"name": "rows", "jsonl": [str(folder / "rows.jsonl")]}
    index = {"name": "some", "index": [str(folder / "index.parquet")], "languages": ["eng"], "records_per_shard": 20}
    warc = {"name": "all", "warc": [str(truth.folder / "crawl" / "*" / "*.warc.gz")]}
    extract = {"step": "extract", "engine": "resiliparse"}
    url = {"step": "url", "blocklists": [str(truth.blocklist)]}

    def recipe(source: dict, *steps: dict) -> dict:
        return {
            "name": "sources",
            "sources": [source],
            "steps": list(steps),
            "mixture": {"weights": {source["name"]: 1}},
        }

    made = [
        recipe(jsonl, extract),
        recipe(jsonl | {"text_column": "body", "url_column": "u"}, extract),
        recipe(index | {"base": str(truth.folder)}, extract, {"step": "normalize"}),
        recipe(warc, url, extract),
        recipe(warc, extract, url),
    ]
    for each in made:
        for _ in curate(context(str(folder / "home")), load(each)):
            pass
    return folder / "home" / "stages", truth, places


def documents(stages: Path) -> list[tuple[dict, list[dict]]]:
    """(manifest, rows) of each `documents` stage."""
    found = []
    for folder in sorted(stages.glob("documents-*")):
        parts = sorted(folder.glob("part-*.parquet"))
        rows = [row for part in parts for row in parquet.read_table(str(part)).to_pylist()]
        found.append((files.read_json(str(folder / "manifest.json")), rows))
    return found


def of(stages: Path, source: str) -> list[tuple[dict, list[dict]]]:
    return [(manifest, rows) for manifest, rows in documents(stages) if list(manifest["record"]["formats"]) == [source]]


def test_another_column_is_another_stage(sources):
    texts = {tuple(row["text"] for row in rows) for _, rows in of(sources[0], "rows")}
    expected = [f"English text {i}." for i in range(5)], [f"Another text {i}." for i in range(5)]
    assert texts == set(map(tuple, expected))


def test_a_selection_has_what_the_index_names_and_nothing_else(sources):
    stages, _, places = sources
    [(manifest, rows)] = of(stages, "some")
    wanted = sorted((p["warc_filename"], p["warc_record_offset"]) for p in places if p["content_languages"] == "eng")
    assert sorted((row["file"], row["offset"]) for row in rows) == wanted
    assert {row["url"] for row in rows} == {p["url"] for p in places if p["content_languages"] == "eng"}
    assert manifest["parts"]["jobs"] == -(-len(wanted) // 20) > 1
    [selection] = stages.glob("selection-*")
    assert parquet.read_table(str(selection / "part-00000.parquet")).schema.equals(SELECTION)


def test_urls_are_judged_before_or_after_with_the_same_result(sources):
    stages, truth, _ = sources
    blocked = {r["url"] for r in truth.rows(kind="blocked") if not r["variant"].startswith("lookalike")}
    before, after = sorted(
        ((len(rows), {row["url"] for row in rows}) for _, rows in of(stages, "all")), key=lambda r: r[0]
    )
    assert not blocked & before[1]
    assert blocked <= after[1] and after[0] == before[0] + len(blocked)
    [rules] = stages.glob("rules-*")
    kept = {row["id"] for part in rules.glob("part-*.parquet") for row in parquet.read_table(str(part)).to_pylist()}
    [ids] = [{row["id"] for row in rows} for _, rows in of(stages, "all") if len(rows) == before[0]]
    assert kept == ids
