"""Mixtures that ship have the figures of their sources, and a recipe may name one, or a file."""

import pytest
import yaml

from gristmill.flows.recipe.errors import RecipeError
from gristmill.flows.recipe.recipe import by_name, load, names
from gristmill.tasks.tokens.mixture import Mixture

# GiB and epochs of table 1 of arXiv 2101.00027, from which its weights follow
PILE = {
    "pile_cc": (227.12, 1), "pubmed_central": (90.27, 2), "books3": (100.96, 1.5), "openwebtext2": (62.77, 2),
    "arxiv": (56.21, 2), "github": (95.16, 1), "freelaw": (51.15, 1.5), "stack_exchange": (32.20, 2),
    "uspto_backgrounds": (22.90, 2), "pubmed_abstracts": (19.26, 2), "gutenberg": (10.88, 2.5),
    "opensubtitles": (12.98, 1.5), "wikipedia": (6.38, 3), "dm_mathematics": (7.75, 2), "ubuntu_irc": (5.52, 2),
    "bookcorpus2": (6.30, 1.5), "europarl": (4.59, 2), "hackernews": (3.90, 2), "youtube_subtitles": (3.73, 2),
    "philpapers": (2.38, 2), "nih_exporter": (1.89, 2), "enron_emails": (0.88, 2),
}  # fmt: skip


def recipe(sources: list[str], mixture: object) -> dict:
    given = [{"name": name, "jsonl": [f"{name}.jsonl"]} for name in sources]
    return {"name": "named", "sources": given, "steps": [{"step": "extract"}], "mixture": mixture}


def test_the_weights_of_the_pile_are_its_sizes_times_their_epochs():
    weights = by_name("pile")["weights"]
    assert weights.keys() == PILE.keys()
    effective = {name: size * epochs for name, (size, epochs) in PILE.items()}
    for name, weight in weights.items():
        assert weight == pytest.approx(100 * effective[name] / sum(effective.values()), abs=0.02)


def test_percentages_sum_to_a_hundred_and_tokens_to_what_the_card_says():
    assert names() == ["llama", "pile", "redpajama"]
    assert sum(by_name("llama")["weights"].values()) == pytest.approx(100)
    assert sum(by_name("redpajama")["weights"].values()) == 1210  # billions


@pytest.mark.parametrize("name", names())
def test_a_recipe_names_a_mixture(name):
    weights = by_name(name)["weights"]
    assert load(recipe(sorted(weights), name)).mixture == Mixture(weights=weights)


def test_a_mixture_of_ones_own_is_a_file(tmp_path):
    path = tmp_path / "ours.yaml"
    path.write_text(yaml.safe_dump({"weights": {"web": 3, "code": 1}, "max_epochs": 2}))
    assert load(recipe(["web", "code"], str(path))).mixture == Mixture(weights={"web": 3, "code": 1}, max_epochs=2)
    path.write_text("weights: {web: 3")
    with pytest.raises(RecipeError, match=r"ours\.yaml:1:\d+: is not YAML"):
        load(recipe(["web", "code"], str(path)))


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ("lama", r"mixture: no mixture file lama, .*did you mean `llama`\? shipped mixtures: llama, pile, redpajama"),
        ("llama", r"mixture\.weights\.github: no source is called github; the sources are web"),
    ],
)
def test_a_name_that_is_none_and_a_source_that_is_missing_are_named(given, error):
    with pytest.raises(RecipeError, match=error):
        load(recipe(["web"], given))
