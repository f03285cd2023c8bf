"""Searches by recipe and by run: the same as in an opened index, and one sentence where there is none."""

import json
from pathlib import Path

import pytest

import gristmill
from gristmill.flows.explore.search.memorized import Group, Memorized
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.search import phrases
from gristmill.flows.reports.search.opened import PhraseIndex, opened
from gristmill.tasks.engine.make import NotFinishedError
from gristmill.tasks.search.index import BYTE_TOKENIZER
from gristmill.tasks.tokens.tokenizer import train_byte_bpe
from tests.flows.search.test_search import given, made

pytestmark = pytest.mark.extended


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> dict:
    return given(tmp_path_factory.mktemp("crawl"))


@pytest.fixture(scope="module")
def index(recipe, tmp_path_factory) -> PhraseIndex:
    return made(load(recipe), tmp_path_factory.mktemp("home"))


@pytest.fixture
def run(recipe, index, monkeypatch) -> gristmill.Run:
    monkeypatch.setenv("GRISTMILL_HOME", index.settings.home)
    return gristmill.open(recipe)


def test_a_phrase_is_found_by_recipe_run_or_index(recipe, run, index):
    expected = phrases.find(index, "A phrase for shard")
    assert expected.kept.documents + expected.dropped.documents == 4
    assert gristmill.find("A phrase for shard", recipe) == expected
    assert gristmill.find("A phrase for shard", run) == run.find("A phrase for shard") == expected
    assert gristmill.find("A phrase for shard", index) == expected
    assert gristmill.find("A phrase for shard", recipe, dropped=False).dropped.documents == 0


def test_spans_are_traced_by_recipe_run_or_index(recipe, run, index):
    text = run.documents.to_pandas(["text"], n=1)["text"][0][:300]
    expected = phrases.trace(index, text)
    assert expected.all
    assert gristmill.trace(text, recipe) == run.trace(text) == gristmill.trace(text, index) == expected


def test_results_are_tables_in_a_notebook(run):
    page = run.find("A phrase for shard <b>", n=2)._repr_html_()
    assert "A phrase for shard &lt;b&gt;" in page and "0 times" in page
    found = run.find("A phrase for shard", n=2)._repr_html_()
    assert found.count("<tr>") - 1 == len(run.find("A phrase for shard", n=2).documents)
    assert "<td" in run.documents._repr_html_() and f"{len(run.documents):,} rows" in run.documents._repr_html_()
    assert "0 of them with different text" in run.diff(run)._repr_html_()
    assert f"Run of searched</strong> in {run.settings.home}" in run._repr_html_()
    assert repr(run).startswith(f"<Run of searched in {run.settings.home}: ") and " training tokens" in repr(run)


def test_what_a_model_continues_is_a_table_in_a_notebook():
    group = Group(least=4, most=15, prompts=120, share=0.25, low=0.18, high=0.33, tokens=0.5)
    page = Memorized("small", 50, 50, {"web": 1.0}, (group,))._repr_html_()
    assert "4 to 15" in page and "25.00%" in page and "50 prompt tokens" in page


def test_a_corpus_without_a_mixture_is_searched(recipe, index, monkeypatch):
    """Its curated documents are encoded for it; none is held out."""
    monkeypatch.setenv("GRISTMILL_HOME", index.settings.home)
    bare = {key: value for key, value in recipe.items() if key != "mixture"}
    assert opened(load(bare), index.settings) is None
    matches = gristmill.find("A phrase for shard", bare)
    curated = gristmill.open(bare).documents.to_pandas(["text"])["text"]
    assert matches.kept.documents == curated.str.contains("A phrase for shard").sum() > 0
    assert matches.kept.documents + matches.dropped.documents == 4
    assert gristmill.open(bare).find("A phrase for shard") == matches
    text = curated[0][:300]
    assert gristmill.trace(text, bare).all
    with pytest.raises(NotFinishedError):
        gristmill.open(bare).find_words("mill")


def test_the_tokenizer_of_the_search_is_the_one_of_no_text():
    assert train_byte_bpe(iter(()), 257, ()) == (BYTE_TOKENIZER.read_bytes(), 257)


@pytest.mark.slow
def test_a_corpus_of_one_document_is_searched(tmp_path, monkeypatch):
    monkeypatch.setenv("GRISTMILL_HOME", str(tmp_path / "home"))
    text = "Die Mühle mahlt. 磨坊磨面粉。 طاحونة 🌾"
    (tmp_path / "one.jsonl").write_text(json.dumps({"text": text}) + "\n")
    recipe = {"name": "one", "sources": [{"name": "web", "jsonl": [f"{tmp_path}/one.jsonl"]}], "steps": []}
    for phrase, times in {"Mühle": 1, "磨": 2, "🌾": 1, "Muhle": 0, "l": 2}.items():
        assert gristmill.find(phrase, recipe).kept.times == times, phrase


def test_a_run_without_its_index_of_words_names_the_command(run):
    with pytest.raises(NotFinishedError, match='run `gristmill explain find RECIPE --words "WORDS"`$'):
        run.find_words("mill")


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_a_run_exports_its_documents(run, tmp_path, format, monkeypatch):
    monkeypatch.setenv("GRISTMILL_EXECUTOR", "serial")
    run = gristmill.open(run.recipe)
    folder = run.export(tmp_path / "out", format)
    assert folder == str(tmp_path / "out") and (tmp_path / "out/README.md").is_file()
    written = [path for path in Path(folder).rglob("*") if path.suffix in (".parquet", ".zst")]
    assert written and folder == run.export(tmp_path / "out", format), "the same export is found again"
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file.txt").write_text("mine")
    with pytest.raises(FileExistsError):
        run.export(tmp_path / "other")
