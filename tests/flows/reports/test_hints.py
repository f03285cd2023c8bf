"""Hints about thresholds: where many documents are just beyond one, and nowhere else."""

import json
from pathlib import Path
from random import Random

import pytest
import yaml
from lxml import html

import gristmill
from gristmill.flows.cli.results import card_lines
from gristmill.flows.machine.runs import RunRecorder
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports import run_page
from gristmill.flows.reports.run.hints import MAX_HINTS, looser_threshold
from tests.flows.reports.test_open import make
from tests.planted.text import prose

pytestmark = pytest.mark.extended

DOCUMENTS = 160
RECIPE = {
    "name": "near",
    "sources": [{"name": "web", "jsonl": ["pages.jsonl"]}],
    "steps": [{"step": name} for name in ("extract", "gopher_quality", "minhash")],
}


WORDS = "miller harvest granary wheel barley stone river flour".split()


def text(rng: Random, words: int, symbols: int, with_stop_words: bool = True) -> str:
    """So many words, and among them so many tokens without a letter."""
    tokens = " ".join(prose(rng, "en", words + 60)).split()[:words]
    if not with_stop_words:
        tokens = [rng.choice(WORDS) for _ in range(words)]
    for _ in range(symbols):
        tokens.insert(rng.randrange(1, len(tokens)), "+")
    return " ".join(tokens)


def finished(folder: Path, symbols: dict[int, int], stopless: int = 0) -> gristmill.Run:
    """A finished run over documents of 200 words. `symbols`: how many documents have so many symbols; `stopless`: how
    many more have 60 symbols and no stop words."""
    rng = Random(8)
    texts = [text(rng, 200, count) for count, documents in symbols.items() for _ in range(documents)]
    texts += [text(rng, 200, 60, with_stop_words=False) for _ in range(stopless)]
    rng.shuffle(texts)
    folder.mkdir()
    (folder / "pages.jsonl").write_text("\n".join(json.dumps({"text": each}) for each in texts))
    (folder / "recipe.yaml").write_text(yaml.safe_dump(RECIPE))
    make(folder / "recipe.yaml", str(folder / "home"))
    return gristmill.open(folder / "recipe.yaml", home=str(folder / "home"))


@pytest.fixture(scope="module")
def near(tmp_path_factory) -> gristmill.Run:
    """Alphabetic words are about .75 of the tokens in 56 of 160 documents, and .5 in 16: Gopher asks for .8."""
    return finished(tmp_path_factory.mktemp("near") / "run", {0: 88, 40: 56, 200: 16})


def test_a_threshold_just_above_the_mass_is_named_with_what_the_replay_counts(near):
    [hint] = near.hints()
    assert (hint.setting, hint.threshold, hint.looser) == ("gopher_quality.min_alpha_words", 0.8, 0.7)
    assert (hint.arrived, hint.dropped, hint.looser_dropped, hint.kept) == (DOCUMENTS, 72, 16, 56)
    replayed = near.whatif({hint.setting: hint.looser}).set_index("step").loc["gopher_quality"]
    assert replayed["whatif"] - replayed["documents_out"] == hint.kept
    assert replayed["rules"]["alpha_words"] == (hint.dropped, hint.looser_dropped)
    assert hint.sentence == (
        "`gopher_quality.alpha_words` dropped 45% of 160 documents. With gopher_quality.min_alpha_words 0.7 instead of "
        "0.8, it would drop 10%, and 56 more documents would pass the step (replayed on the signals of this run)"
    )
    command = "gristmill decide whatif recipe.yaml --set gopher_quality.min_alpha_words=0.7"
    assert hint.command("recipe.yaml") == command


def test_the_card_has_results_hints_and_commands_but_no_folder(near):
    lines = [*card_lines(near, "my recipe.yaml")]
    assert lines[0].startswith("kept: 88 of 160 documents (55.0%), ") and lines[0].endswith(" characters")
    assert lines[1] == "most dropped by gopher_quality.alpha_words: 72 of the 160 documents that reached the step"
    assert lines[2].startswith("hint: `gopher_quality.alpha_words` dropped 45%")
    assert lines[3:] == [
        "  gristmill decide whatif 'my recipe.yaml' --set gopher_quality.min_alpha_words=0.7",
        "next:",
        "  gristmill browse 'my recipe.yaml'",
        "  gristmill report 'my recipe.yaml'",
        "  gristmill export documents 'my recipe.yaml' --to near-documents",
    ]
    assert not [line for line in lines if "stages/" in line]


def test_the_page_has_the_hints(near):
    page = "".join(html.fromstring(run_page.page(near)).itertext())
    assert "Hints" in page and near.hints()[0].sentence in page
    assert "gristmill decide whatif RECIPE --set gopher_quality.min_alpha_words=0.7" in page


def test_the_figures_are_those_of_the_run_at_hand(tmp_path):
    """Not those of a newer one of the same recipe, whose threshold is another."""
    older = finished(tmp_path / "run", {0: 88, 40: 56, 200: 16})
    changed = RECIPE | {"steps": [{"step": "extract"}, {"step": "gopher_quality", "min_alpha_words": 0.79}]}
    path, home = tmp_path / "run/recipe.yaml", str(tmp_path / "run/home")
    path.write_text(yaml.safe_dump(changed))
    make(path, home)
    newer = RunRecorder(home, "near", flow="corpus", recipe=load(path).model_dump(mode="json"))
    newer.add(*(stage.label for stage in gristmill.open(path, home).corpus.stages))
    newer.finished()
    for run in (older, gristmill.open(path, home)):
        [hint] = run.hints()
        row = run.funnel.set_index("step").loc["gopher_quality"]
        assert row["reasons"] == f"alpha_words {hint.dropped}" and row["documents_in"] == hint.arrived
    assert older.hints()[0].threshold == 0.8 and hint.threshold == 0.79


@pytest.mark.parametrize(
    "symbols",
    [
        pytest.param({0: 100, 200: 60}, id="what is dropped is far from the threshold"),
        pytest.param({0: 155, 40: 5}, id="few documents are dropped"),
        pytest.param({0: 100, 40: 15, 200: 45}, id="most of what is dropped is far"),
        pytest.param({0: 30, 40: 30}, id="too few documents to say"),
        pytest.param({0: DOCUMENTS}, id="nothing is dropped"),
    ],
)
def test_without_a_mass_near_a_threshold_there_is_no_hint(symbols, tmp_path):
    run = finished(tmp_path / "run", symbols)
    assert run.hints() == []
    assert not [line for line in card_lines(run, "recipe.yaml") if line.startswith("hint")]


def test_a_document_that_another_rule_drops_is_no_gain(tmp_path):
    """A looser threshold of symbols hands documents without stop words to the next rule."""
    run = finished(tmp_path / "run", {0: 60}, stopless=100)
    assert run.funnel.set_index("step").loc["gopher_quality", "reasons"] == "alpha_words 100"
    assert run.hints() == []


@pytest.mark.parametrize(
    ("threshold", "end", "is_whole", "looser"),
    [
        (0.8, "min", False, 0.7),
        (0.3, "max", False, 0.35),
        (50, "min", True, 40),
        (100_000, "max", True, 120_000),
        (3, "min", False, 2.5),
        (2, "min", True, None),
        (0, "max", False, None),
        (-2.5, "min", False, -3.0),
    ],
)
def test_a_looser_threshold_is_round_and_near(threshold, end, is_whole, looser):
    assert looser_threshold(threshold, end, is_whole) == looser
    assert MAX_HINTS == 3
