"""A limit: the first documents of each source, in the order of its files, and nothing behind them."""

import json

import pytest

from gristmill.flows.recipe.recipe import load
from gristmill.flows.stages.documents import documents
from gristmill.storage import parquet
from gristmill.storage.contents import ADDRESSES
from gristmill.storage.home import open_stage
from tests.corpora import context


@pytest.fixture
def recipe(tmp_path) -> dict:
    for source, sizes in (("web", (4, 0, 5, 3)), ("books", (2,))):
        for number, size in enumerate(sizes):
            rows = [json.dumps({"text": f"A text, {source} {number} {row}."}) for row in range(size)]
            (tmp_path / f"{source}-{number}.jsonl").write_text("".join(f"{row}\n" for row in rows))
    sources = [{"name": name, "jsonl": [str(tmp_path / f"{name}-*.jsonl")]} for name in ("web", "books")]
    extract = {"step": "extract", "engine": "plain"}
    return {"name": "few", "sources": sources, "steps": [extract], "mixture": {"weights": {"web": 1}}}


def extracted(tmp_path, recipe: dict, **more):
    corpus = documents(context(str(tmp_path / "home")), load(recipe | more), ())
    stage = open_stage(corpus.documents.folder)
    return corpus, stage, [parquet.read_table(part).to_pylist() for part in stage.parts]


@pytest.mark.extended
def test_the_first_documents_are_those_of_the_whole_run_and_later_files_are_not_opened(tmp_path, recipe):
    _, _, whole = extracted(tmp_path, recipe)
    corpus, stage, parts = extracted(tmp_path, recipe, limit=6)
    web = [row for part in whole for row in part if row["source"] == "web"]
    assert parts[0] == web[:6] and [row["source"] for row in parts[1]] == ["books", "books"]
    assert tuple(corpus.sources) == ("web", "books")
    first, second = stage.part_records
    assert [file["name"] for file in first[ADDRESSES]] == ["web-0.jsonl", "web-1.jsonl", "web-2.jsonl"]
    assert (first["rows_in"], first["rows_out"], second["rows_in"]) == (6, 6, 2)


def test_a_limit_is_a_part_of_the_key_and_what_is_behind_it_is_not(tmp_path, recipe):
    first, *_ = extracted(tmp_path, recipe, limit=2)
    again, *_ = extracted(tmp_path, recipe, limit=2)
    other, *_ = extracted(tmp_path, recipe, limit=3)
    assert again.documents.reused and not other.documents.reused
    # of two documents at most two files are read
    (tmp_path / "web-3.jsonl").write_text("no JSON")
    assert extracted(tmp_path, recipe, limit=2)[0].documents.reused
    (tmp_path / "web-0.jsonl").write_text('{"text": "Another text."}\n')
    assert not extracted(tmp_path, recipe, limit=2)[0].documents.reused
