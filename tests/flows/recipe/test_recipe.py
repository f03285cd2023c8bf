"""The recipe: one model, no unknown words, errors that say what to do."""

import copy
import json

import pytest
import yaml
from pydantic import ValidationError

from gristmill.flows.recipe.errors import RecipeError
from gristmill.flows.recipe.recipe import RECIPES, Recipe, dump, load
from gristmill.flows.recipe.variants import raw, unfiltered


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda p: p.stem)
def test_shipped_recipes_load_by_name_and_survive_yaml(path):
    recipe = load(path.stem)
    assert recipe == load(path) == load(path.name)
    assert Recipe.model_validate(yaml.safe_load(dump(recipe))) == recipe


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda p: p.stem)
def test_a_recipe_from_a_form_has_the_same_keys_as_one_from_yaml(path):
    """Keys are made of settings: a default of 0 that comes back as 0.0 would be another stage."""
    recipe = load(path)
    assert repr(load(json.loads(recipe.model_dump_json()))) == repr(recipe)


def test_a_recipe_that_is_not_there_is_told_which_are():
    with pytest.raises(FileNotFoundError, match="demo"):
        load("nowhere")


def test_a_recipe_that_is_named_from_another_folder_is_the_same(tmp_path, monkeypatch):
    for name in ("data", "elsewhere"):
        (tmp_path / name).mkdir()
    path = tmp_path / "data" / "own.yaml"
    path.write_text("name: own\nsources: [{name: notes, text: [notes/*.txt]}]\nsteps: [{step: extract}]\n")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert load("../data/own.yaml") == load(path)


def step(recipe, name):
    return next(step for step in recipe["steps"] if step["step"] == name)


def by_language_without_language(recipe):
    recipe["steps"].remove(step(recipe, "language"))
    step(recipe, "textbook")["languages"] = {"fr": {"min_characters": 9}}


def test_the_best_can_be_what_a_step_before_measures():
    recipe = yaml.safe_load((RECIPES / "demo.yaml").read_text())
    step(recipe, "minhash").update(keep=["best", "longest"], best="gopher_quality_words")
    recipe["steps"].append({"step": "url_dedup", "keep": ["best"], "best": "quality"})
    assert load(recipe).steps[-1].best == "quality"


TEXTS = {"name": "texts", "sources": [{"name": "web", "jsonl": ["web.jsonl"]}, {"name": "books", "text": ["b/*.txt"]}]}


@pytest.mark.parametrize("ahead", [[], ["url"], ["normalize"], ["url", "normalize"]])
def test_a_recipe_of_texts_needs_no_extraction(ahead):
    """It is the recipe with the step where the others want it."""
    first = [{"step": name} for name in ahead]
    behind = [{"step": "gopher_quality"}, {"step": "minhash"}]
    at = 1 if "url" in ahead else 0
    short = load(TEXTS | {"steps": first + behind})
    whole = load(TEXTS | {"steps": [*first[:at], {"step": "extract"}, *first[at:], *behind]})
    for name in ("before", "extract", "normalize", "after"):
        assert getattr(short, name) == getattr(whole, name), name
    for variant in (lambda recipe: raw(recipe).recipe, unfiltered):
        assert variant(short) == variant(whole)
    with pytest.raises(RecipeError, match="move it first, or after `url`"):
        load(TEXTS | {"steps": [*behind, {"step": "normalize"}]})
    pages = [*TEXTS["sources"], {"name": "crawl", "warc": ["c.warc.gz"]}]
    with pytest.raises(RecipeError, match="the pages of crawl need the step `extract`"):
        load(TEXTS | {"steps": first + behind, "sources": pages})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r["steps"].pop(0), "steps: the pages of .* need the step `extract`"),
        (lambda r: r["steps"].insert(0, r["steps"].pop(1)), "only `url` may come before `extract`"),
        (lambda r: r["steps"].insert(3, {"step": "normalize"}), "move it directly after `extract`"),
        (lambda r: r["sources"].append({"name": "x", "snapshot": "2024-22"}), r"sources\.x\.snapshot: is '2024-22'"),
        (lambda r: step(r, "minhash").update(bands=17), "need 136 permutations"),
        (lambda r: step(r, "textbook").update(languages={"fr": {"min_words": 9}}), "the thresholds are min_characters"),
        (lambda r: by_language_without_language(r), "put the step `language` before it"),
    ],
)
def test_mistakes_of_a_mapping_are_named(recipe, change, message):
    """What is wrong with a file is in `broken_recipes`."""
    wrong = copy.deepcopy(recipe)
    change(wrong)
    with pytest.raises(RecipeError, match=message):
        load(wrong)


def test_a_recipe_cannot_be_changed(recipe):
    with pytest.raises(ValidationError, match="frozen"):
        load(recipe).seed = 5
