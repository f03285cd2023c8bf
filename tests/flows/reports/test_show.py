"""`show documents` is what recipes curated; what was extracted has the stage's whole name."""

import json

import pytest

from gristmill.flows.curation import curate
from gristmill.flows.machine.runs import RunRecorder
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.status import show
from gristmill.flows.stages.heldout import heldout
from gristmill.storage import parquet
from tests.corpora import context

MIXTURE = {"mixture": {"weights": {"web": 1}, "heldout_fraction": 0.3}}
TEXTS = [f"{'The miller counts sack number ' * (n + 1)}{n}." for n in range(30)]


@pytest.mark.extended
def test_curated_documents_of_each_recipe_are_shown(tmp_path):
    home = str(tmp_path / "home")
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    stages = {}
    for name, least in {"long": 60, "longer": 90}.items():
        steps = [{"step": "extract"}, {"step": "gopher_quality", "min_words": least, "min_stop_words": 0}]
        sources = [{"name": "web", "jsonl": [f"{tmp_path}/rows.jsonl"]}]
        recipe = load({"name": name, "sources": sources, "steps": [*steps, {"step": "content_dedup"}]} | MIXTURE)
        *_, last = curate(context(home), recipe)
        split = heldout(context(home), recipe.model_copy(update={"seed": 2}), last.left)
        RunRecorder(home, name).add(*(stage.label for stage in (*last.left.stages, split.stage)))
        stages[name] = last.left
    extracted = stages["long"].documents
    shown = {found.recipes: found for found in show(home, "documents", 100)}
    assert {recipes: found.folder for recipes, found in shown.items()} == {
        (name,): corpus.kept.folder for name, corpus in stages.items()
    }
    for name, least in {"long": 60, "longer": 90}.items():
        # brute force: by the words of the texts themselves
        assert [one.text for one in shown[name,].documents] == [t for t in TEXTS if len(t.split()) >= least]
    [whole] = show(home, f"documents-{extracted.key}", 100)
    assert [one.text for one in whole.documents] == TEXTS == parquet.read_table(extracted.part(0))["text"].to_pylist()


def test_a_home_without_a_run_names_what_can_be_shown(tmp_path):
    (tmp_path / "rows.jsonl").write_text(json.dumps({"text": TEXTS[0]}) + "\n")
    source = {"name": "web", "jsonl": [f"{tmp_path}/rows.jsonl"]}
    recipe = load({"name": "one", "sources": [source], "steps": [{"step": "extract"}]})
    *_, last = curate(context(str(tmp_path / "home")), recipe)
    with pytest.raises(
        FileNotFoundError, match=rf"the key of a stage of extracted documents \(documents-{last.left.kept.key}\)"
    ):
        list(show(str(tmp_path / "home"), "documents", 1))
