"""A recipe as a form: what its schema says of every field and refuses, and what the short forms become."""

import json

import pytest
import yaml

from gristmill.flows.experiments.decisions.ablate import ablate
from gristmill.flows.pipeline import corpus, pipeline
from gristmill.flows.recipe import forms
from gristmill.flows.recipe.errors import RecipeError
from gristmill.flows.recipe.forms import from_form, pinned
from gristmill.flows.recipe.recipe import RECIPES, load
from gristmill.tasks.reading.index import newest_snapshot

# isort: split
from prefect.utilities.schema_tools import validation

SCHEMA = pipeline.parameters.model_dump()
PREPARED = validation.preprocess_schema(SCHEMA)


@pytest.fixture
def listing(tmp_path) -> str:
    path = tmp_path / "collinfo.json"
    # the newest first, as it is published; old names sort behind the new ones
    names = ["CC-MAIN-2024-22", "CC-MAIN-2025-05", "CC-MAIN-2024-51", "CC-MAIN-2012", "CC-MAIN-2009-2010"]
    path.write_text(json.dumps([{"id": name, "name": "an index"} for name in names]))
    return str(path)


def refused(recipe) -> bool:
    """What Prefect's server says of the parameters of a run, before there is one."""
    return validation.validate({"recipe": recipe}, PREPARED, preprocess=False) != []


def test_every_field_has_a_description():
    fields = [
        (model, name, field)
        for model, schema in SCHEMA["definitions"].items()
        for name, field in schema.get("properties", {}).items()
    ]
    assert len(fields) > 250
    assert [(model, name) for model, name, field in fields if not field.get("description")] == []


def test_every_parameter_of_a_comparison_has_a_description():
    fields = ablate.parameters.properties
    assert len(fields) == 17
    assert [name for name, field in fields.items() if not field.get("description")] == []


@pytest.mark.parametrize("name", sorted(path.stem for path in RECIPES.glob("*.yaml")))
def test_right_recipes_pass_the_schema_in_every_form(name):
    whole = load(name).model_dump(mode="json")
    for given in (name, whole, {"recipe": name}, {"yaml": (RECIPES / f"{name}.yaml").read_text()}):
        assert not refused(given)
        assert from_form(given) == load(name)


@pytest.mark.parametrize(
    "given",
    [
        {"recipe": "c5"},
        {"recipe": "c4", "snapshot": "latest"},
        {"recipe": "c4", "snapshot": "CC-MAIN-2024-223"},
        {"recipe": "c4", "segments": [-1, 0]},
        {"recipe": "c4", "segments": [0]},
        {"recipe": "c4", "segments": "some"},
        {"recipe": "c4", "limit": 0},
        {"recipe": "c4", "snapshots": "newest"},
        {"snapshot": "newest"},
        {"yaml": ""},
        "",
        7,
        None,
    ],
)
def test_a_wrong_short_form_is_refused_before_the_run(given):
    assert refused(given)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("seed",), -1),
        (("name",), "Demo"),
        (("steps", 1, "min_score"), 1.5),
        (("steps", 1, "min_skore"), 0.5),
        (("steps", 1, "step"), "langauge"),
        (("training", "steps"), 0),
        (("training", "schedule"), "cosinus"),
        (("mixture", "weights"), {}),
        (("sources",), []),
    ],
)
def test_a_wrong_field_is_refused_before_the_run(path, value):
    recipe = load("demo").model_dump(mode="json")
    assert not refused(recipe)
    entry = recipe
    for part in path[:-1]:
        entry = entry[part]
    entry[path[-1]] = value
    assert refused(recipe)


def test_the_short_form_changes_the_sources_from_common_crawl_alone():
    ours = load("refinedweb").sources
    there = from_form({"recipe": "refinedweb", "snapshot": "CC-MAIN-2023-40", "segments": [3, 5], "limit": 9})
    assert there.limit == 9 and there.steps == load("refinedweb").steps
    crawls = [source for source in there.sources if hasattr(source, "snapshot")]
    assert crawls and all(source.snapshot == "CC-MAIN-2023-40" and source.segments == (3, 5) for source in crawls)
    assert [s for s in there.sources if s not in crawls] == [s for s in ours if not hasattr(s, "snapshot")]
    whole = from_form({"recipe": "refinedweb", "segments": "all", "files": "all"})
    assert all(s.segments is None and s.files is None for s in whole.sources if hasattr(s, "snapshot"))
    assert from_form({"recipe": "refinedweb"}) == load("refinedweb")


def test_a_snapshot_for_a_recipe_without_a_crawl_is_an_error():
    with pytest.raises(RecipeError, match="snapshot: is set, but demo has no Common Crawl source"):
        from_form({"recipe": "demo", "snapshot": "CC-MAIN-2023-40"})
    assert from_form({"recipe": "demo", "limit": 3}).limit == 3


def test_yaml_text_is_read_as_a_file_is():
    recipe = load("demo").model_dump(mode="json")
    assert from_form({"yaml": yaml.safe_dump(recipe)}) == load("demo")
    recipe["seed"] = -1
    with pytest.raises(RecipeError, match="recipe:[0-9]+: seed: is -1"):
        from_form({"yaml": yaml.safe_dump(recipe)})


def test_the_newest_snapshot_is_looked_up_and_can_be_noted(listing):
    assert newest_snapshot(listing) == "CC-MAIN-2025-05"
    given = {"recipe": "refinedweb", "snapshot": "newest", "listing": listing}
    recipe = from_form(given)
    assert {source.snapshot for source in recipe.sources if hasattr(source, "snapshot")} == {"CC-MAIN-2025-05"}
    noted = pinned(given, recipe)
    assert noted == given | {"snapshot": "CC-MAIN-2025-05"} and not refused(noted)
    assert from_form(noted) == recipe
    assert pinned("demo", load("demo")) == "demo"


@pytest.mark.parametrize("content", ["", "[]", "{}", '["CC-MAIN-2024-22"]', '[{"id": "CC-MAIN-2012"}]'])
def test_a_listing_without_crawls_is_an_error_that_names_it(tmp_path, content):
    path = tmp_path / "collinfo.json"
    path.write_text(content)
    with pytest.raises(ValueError, match="collinfo.json.*use a copy of"):
        newest_snapshot(str(path))


def test_a_flow_reads_the_form(monkeypatch, listing):
    given = {"recipe": {"recipe": "refinedweb", "snapshot": "newest", "listing": listing}}
    assert corpus.validate_parameters(given)["recipe"] == from_form(given["recipe"])


def test_the_form_opens_on_the_short_one():
    first, *_ = SCHEMA["properties"]["recipe"]["anyOf"]
    assert first["$ref"].rsplit("/", 1)[1] == forms.ShortRecipe.__name__
