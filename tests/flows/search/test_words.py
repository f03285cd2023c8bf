"""Ranked search in a finished corpus: what matches by brute force, with what became of it; in the page, by the command,
from Python, and after a takedown."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from lxml import html
from pydantic_core import to_json
from typer.testing import CliRunner

import gristmill
from gristmill.flows.cli import app
from gristmill.flows.curation import curate
from gristmill.flows.explore.browse.opened import Opened, open_recipe
from gristmill.flows.explore.browse.pages import Pages
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.search.words import WordIndex, WordMatches, find_words, opened_words
from gristmill.flows.stages.indexes import word_index_spec
from tests.corpora import context
from tests.flows.browse.hostile import STEP, finish, rows

pytestmark = pytest.mark.extended


def indexed(recipe: str, home: str) -> WordIndex:
    run = context(home)
    *_, last = curate(run, load(recipe))
    run.build(word_index_spec(run, load(recipe), last.left))
    found = opened_words(load(recipe), MachineSettings(home=home))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def opened(tmp_path_factory) -> Opened:
    lines = [json.dumps(row | {"text": row["text"] + f" mill{number % 7}"}) for number, row in enumerate(rows())]
    return finish(tmp_path_factory.mktemp("words"), lines, "ranked", [STEP])


@pytest.fixture(scope="module")
def index(opened) -> WordIndex:
    assert opened_words(opened.recipe, opened.settings) is None
    return indexed(opened.given, opened.settings.home)


def test_every_document_with_a_word_is_found_with_what_became_of_it(index, opened):
    found = find_words(index, "mill3", 1_000)
    wanted = {number for number in range(240) if number % 7 == 3}
    texts = {row["id"]: number for number, row in enumerate(rows())}
    by_record = {one.record["record_id"]: one for one in found.documents}
    assert {texts[name] for name in by_record} == wanted and found.matching == len(wanted)
    fates = {(one.kept, one.step, one.rule) for one in found.documents}
    assert (True, "", "") in fates and (False, "gopher_quality", "words") in fates
    for one in found.documents:
        assert one.match == "mill3" and one.record["url"].startswith("https://h")
    scores = [one.score for one in found.documents]
    assert scores == sorted(scores, reverse=True)
    kept = find_words(index, "mill3 kept:true", 1_000)
    assert {one.id for one in kept.documents} == {one.id for one in found.documents if one.kept}
    assert {one.match for one in kept.documents} == {"mill3"}
    assert find_words(index, "-nowhere kept:true source:web mill3 OR mill3", 1).documents[0].match == "mill3"
    assert find_words(index, "mill3", 5) == find_words(index, "mill3", 5)
    assert find_words(index, "mill3", 5).documents == found.documents[:5]
    with pytest.raises(ValueError, match="the query is empty"):
        find_words(index, " ", 5)


def test_jobs_of_a_cluster_give_what_threads_give(index):
    settings = index.settings.model_copy(update={"executor": "local", "workers": 2})
    cluster = replace(index, few=0, settings=settings)
    assert find_words(cluster, "mill3", 7) == find_words(index, "mill3", 7)


def test_the_command_and_python_say_the_same(index, opened, monkeypatch):
    monkeypatch.setenv("GRISTMILL_HOME", opened.settings.home)
    run = CliRunner().invoke
    said = json.loads(run(app, ["explain", "find", opened.given, "mill3 OR mill4", "--words", "--json"]).stdout)
    found: WordMatches = gristmill.find_words("mill3 OR mill4", gristmill.open_words(opened.given))
    assert said == json.loads(to_json(found)) and len(said["documents"]) == 5
    shown = run(app, ["explain", "find", opened.given, "mill3", "--words", "-n", "1"]).output
    assert re.search(r"34 documents match\n\n1\. .*score \d", shown) and "⟦mill3⟧" in shown
    assert "\x1b" not in shown and "\u202e" not in shown
    assert run(app, ["explain", "find", opened.given, '"open', "--words"]).exit_code != 0
    both = run(app, ["explain", "find", opened.given, "a", "--words", "--regex"])
    assert both.exit_code == 2 and "exclude each other" in " ".join(both.output.split())


def test_the_page_ranks_and_shows_no_markup(index, opened, tmp_path):
    pages = Pages(open_recipe(opened.given, opened.settings))
    shown = html.fromstring(pages.words({"words": "mill3"}))
    assert [mark.text for mark in shown.xpath("//mark")] == ["mill3"] * 10
    assert len(shown.xpath("//article/h3/a[starts-with(@href, 'document?shard=')]")) == 10
    assert shown.xpath("//input[@id='words']")[0].get("value") == "mill3"
    evil = pages.words({"words": '"><script>alert(1)</script>'})
    assert "<script>alert" not in evil and html.fromstring(evil).xpath("//*[@role='alert']")
    later = tmp_path / "other.yaml"
    later.write_text(json.dumps(json.loads(Path(opened.given).read_text()) | {"takedowns": [str(tmp_path / "none")]}))
    (tmp_path / "none").write_text("")
    for _ in curate(context(opened.settings.home), load(str(later))):
        pass
    assert "has no index of words" in Pages(open_recipe(str(later), opened.settings)).words({"words": "mill3"})


def test_after_a_takedown_the_words_are_in_no_index(index, opened, tmp_path):
    found = find_words(index, "mill5", 1_000)
    kept, dropped = (next(one for one in found.documents if one.kept == fate) for fate in (True, False))
    (tmp_path / "gone.txt").write_text(f"{kept.id}\n{dropped.id}\n")
    recipe = json.loads(Path(opened.given).read_text()) | {"takedowns": [str(tmp_path / "gone.txt")]}
    (tmp_path / "later.yaml").write_text(json.dumps(recipe))
    later = indexed(str(tmp_path / "later.yaml"), opened.settings.home)
    left = find_words(later, "mill5", 1_000)
    assert {one.id for one in left.documents} == {one.id for one in found.documents} - {kept.id, dropped.id}
    assert left.matching == found.matching - 2
