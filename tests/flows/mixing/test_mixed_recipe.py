"""The recipe that is written with a mixture, and what is said of it."""

import shlex

import pytest
import yaml

from gristmill.flows.experiments.mixtures import command, found_mixture, written
from gristmill.flows.recipe.recipe import load
from gristmill.flows.recipe.variants import variant

RECIPE = {
    "name": "small",
    "sources": [{"name": name, "jsonl": [f"/crawl/{name}.jsonl"]} for name in ("web", "books", "noise")],
    "steps": [{"step": "extract"}, {"step": "minhash", "threshold": 0.9}],
    "mixture": {"weights": {"web": 1, "books": 1, "noise": 1}, "max_epochs": 2, "heldout_fraction": 0.05},
    "training": {"steps": 100, "batch": 4},
    "model": {"seq_len": 250},
}
TOKENS = {"web": 1_000_000, "books": 10_000, "noise": 50_000}
WEIGHTS = {"web": (0.7, 0.6, 0.8), "books": (0.2997, 0.2, 0.4), "noise": (0.0003, 0.0, 0.01)}


def found(recipe, weights=WEIGHTS):
    return found_mixture(recipe, "regmix", weights, TOKENS, ("RegMix: by a test.",), "its 90% interval")


@pytest.mark.parametrize("mixture", [RECIPE["mixture"], None])
def test_a_recipe_with_the_mixture_is_read_back_and_differs_in_it_alone(tmp_path, mixture):
    recipe = load(RECIPE | {"mixture": mixture})
    path = tmp_path / "out.yaml"
    path.write_text(text := written(found(recipe)))
    again = load(path)
    assert again.mixture.weights == {"web": 0.7, "books": 0.3}
    if mixture:
        assert (again.mixture.max_epochs, again.mixture.heldout_fraction) == (2, 0.05)
    same = {"name": recipe.name, "mixture": recipe.mixture}
    assert again.model_copy(update=same) == recipe
    assert text.startswith("# small with the mixture computed by regmix.\n# RegMix: by a test.\n")
    assert "books: 0.300 # 0.200 to 0.400; uniform 0.333, by tokens 0.009" in text.replace('"', "")


def test_a_source_that_is_wanted_more_often_than_its_text_allows_is_said():
    mixture = found(load(RECIPE))
    web, books, noise = mixture.sources
    assert (web.epochs, books.epochs) == (pytest.approx(0.07), pytest.approx(2.997))
    assert books.share == pytest.approx(0.2), "two epochs of 10,000 tokens in 100,000"
    assert web.share == pytest.approx(0.8) and noise.share == 0
    said = mixture.remarks()
    assert said[0].startswith("books: a share of 0.300 of 100,000 tokens needs 3.0 epochs of its text, but")
    assert said[1:] == ["noise: its weight rounds to 0, so it is not in the recipe"]


def test_the_command_sets_mixtures_that_a_recipe_takes(tmp_path):
    recipe = load(RECIPE)
    line = command(found(recipe), tmp_path / "out.yaml", ["--judge", "web"])
    program, group, name, path, *options, _, judged = shlex.split(line)
    assert judged == "web"
    assert (program, group, name, path) == ("gristmill", "decide", "ablate", str(tmp_path / "out.yaml"))
    uniform, proportional = (variant(recipe, setting).recipe.mixture.weights for setting in options[1::2])
    assert uniform == {"web": 1, "books": 1, "noise": 1} and proportional == TOKENS


@pytest.mark.parametrize("change", [{"web": (0.9, 0, 1)}, {"web": (1.2, 0, 1), "books": (-0.2003, 0, 1)}])
def test_weights_that_are_no_mixture_are_refused(change):
    with pytest.raises(ValueError, match="do not sum to 1, or are below 0"):
        found(load(RECIPE), WEIGHTS | change)


def test_what_is_written_is_yaml_of_plain_values():
    assert yaml.safe_load(written(found(load(RECIPE))))["steps"][1] == {"step": "minhash", "threshold": 0.9}
