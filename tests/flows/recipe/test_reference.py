"""The schema of recipes beside the settings themselves."""

from typing import Annotated, get_args

import jsonschema
import pytest
import yaml
from pydantic import BaseModel, TypeAdapter

from gristmill.flows.recipe import reference
from gristmill.flows.recipe.recipe import RECIPES, Recipe, load
from gristmill.flows.recipe.steps import BUILT_IN

SHIPPED = sorted(RECIPES.glob("*.yaml"))


def classes(of: object) -> set[type[BaseModel]]:
    """The classes of settings that a recipe may hold."""
    if isinstance(of, type) and issubclass(of, BaseModel):
        found = {of}
        for field in of.model_fields.values():
            found |= classes(field.annotation)
        return found
    return set().union(*map(classes, get_args(of)))


ALL = {kind.__name__: kind for kind in classes(Recipe).union(*map(classes, BUILT_IN.values()))}


@pytest.fixture(scope="module")
def schema() -> dict:
    return reference.schema()


def refused(schema: dict, recipe: object) -> bool:
    return not jsonschema.Draft202012Validator(schema).is_valid(recipe)


@pytest.mark.extended
@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_recipes_that_ship_fit(schema, path):
    jsonschema.validate(yaml.safe_load(path.read_text()), schema, jsonschema.Draft202012Validator)
    # with all defaults written out, too
    jsonschema.validate(load(path.stem).model_dump(mode="json"), schema, jsonschema.Draft202012Validator)


@pytest.mark.parametrize(
    "change",
    [
        {"colour": "red"},
        {"seed": -1},
        {"name": "A b"},
        {"sources": []},
        {"steps": [{"step": "extract", "engin": "blocks"}]},
        {"steps": [{"step": "extract"}, {"step": "gopher_qualty"}]},
        {"steps": [{"step": "extract"}, {"step": "minhash", "threshold": 2}]},
        {"steps": [{"step": "extract"}, {"min_words": 3}]},
        {"sources": [{"name": "web", "wark": ["x"]}]},
        {"model": {"dim": "wide"}},
        {"training": {"optimizer": "sdg"}},
    ],
    ids=str,
)
def test_what_the_settings_refuse_is_refused(schema, change):
    good = {"name": "web", "sources": [{"name": "web", "warc": ["x"]}], "steps": [{"step": "extract"}]}
    assert not refused(schema, good)
    assert refused(schema, good | change)
    with pytest.raises(ValueError):
        load(good | change)


def test_steps_of_ones_own(schema):
    good = {"name": "web", "sources": [{"name": "web", "warc": ["x"]}], "steps": [{"step": "my_steps:Shout"}]}
    assert not refused(schema, good)


def test_each_key_without_a_value_has_an_example_that_fits():
    examples = reference.examples()
    assert set(examples) <= set(ALL)
    for name, kind in ALL.items():
        given = examples.get(name, {})
        assert set(given) <= set(kind.model_fields)
        for key, field in kind.model_fields.items():
            empty = field.is_required() or field.default in (None, ())
            assert not empty or key in given, f"{name}.{key} has no value by default, and no example"
            if key in given:
                TypeAdapter(Annotated[field.annotation, field]).validate_python(given[key])
            assert key == "step" or field.description, f"{name}.{key} has no description"
