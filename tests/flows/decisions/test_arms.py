"""Which recipes are compared, and what they are called."""

import pytest

from gristmill.flows.experiments.decisions.plan import arms
from gristmill.flows.experiments.options import Candidates
from gristmill.flows.recipe.errors import RecipeError
from gristmill.flows.recipe.recipe import load

BASE = {
    "name": "base",
    "sources": [{"name": "web", "jsonl": ["a.jsonl"]}],
    "steps": [
        {"step": "url"},
        {"step": "extract"},
        {"step": "normalize"},
        {"step": "language"},
        {"step": "c4"},
        {"step": "gopher_quality", "languages": {"de": {"min_words": 9}}},
        {"step": "minhash"},
    ],
}


def steps(recipe) -> list[str]:
    return [step.step for step in recipe.steps]


def test_candidates_are_named_by_what_differs():
    other = BASE | {"name": "other", "steps": BASE["steps"][:3]}
    found = arms(BASE, Candidates([other], ["minhash.threshold=0.9"], ["minhash"], raw=True))
    assert found.base == "base" and list(found.recipes)[0] == "base"
    assert found.candidates == ("other", "minhash.threshold=0.9", "without minhash", "raw")
    assert found.recipes["minhash.threshold=0.9"].steps[-1].threshold == 0.9
    assert steps(found.recipes["without minhash"]) == steps(load(BASE))[:-1]
    assert steps(found.recipes["raw"]) == ["url", "extract", "normalize"]


def test_each_step_is_left_out_in_turn_but_those_that_others_need():
    found = arms(BASE, Candidates(), leave_one_out=True)
    assert found.steps == {f"without {name}": name for name in ("url", "c4", "gopher_quality", "minhash")}
    assert found.candidates == tuple(found.steps)
    assert list(found.fixed) == ["language"] and "put the step `language` before it" in found.fixed["language"]
    for name, step in found.steps.items():
        assert set(steps(load(BASE))) - set(steps(found.recipes[name])) == {step}


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(ValueError, match="nothing to compare base with"):
        arms(BASE, Candidates())
    with pytest.raises(ValueError, match="is the same recipe as base"):
        arms(BASE, Candidates([BASE]))
    with pytest.raises(ValueError, match="two of the recipes have the name base"):
        arms(BASE, Candidates([BASE | {"limit": 3}]))
    with pytest.raises(ValueError, match="two of the recipes have the name other"):
        arms(BASE, Candidates([BASE | {"name": "other"}, BASE | {"name": "other", "limit": 3}]))
    with pytest.raises(RecipeError, match="did you mean `threshold`"):
        arms(BASE, Candidates(settings=["minhash.treshold=0.9"]))
    with pytest.raises(RecipeError, match="no step `quality`"):
        arms(BASE, Candidates(without=["quality"]))
