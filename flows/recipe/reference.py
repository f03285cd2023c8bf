"""The JSON schema of recipes for editors, generated from the settings.

    gristmill recipe schema --to recipe.schema.json

`examples.yaml` beside this module has an example of each key that has no value by default; sources have their own.
"""

from pathlib import Path
from typing import Any

import yaml

from gristmill.flows.recipe import own_steps
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.recipe.steps import BUILT_IN
from gristmill.tasks.documents.step import DocumentStep
from gristmill.tasks.documents.where import Where
from gristmill.tasks.reading.sources import FORMATS

DRAFT = "https://json-schema.org/draft/2020-12/schema"
EXAMPLES = Path(__file__).with_name("examples.yaml")
DEFINITIONS = "#/$defs/"  # where a schema has the settings of each class
OF_EVERY_STEP = {"only": ["web"], "except": ["legal"]}  # its settings, with an example of each


def schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of a recipe's file, with examples, including custom steps.

    `gristmill check` reports problems that a schema cannot express, such as settings that exclude each other.
    """
    document = Recipe.model_json_schema()
    steps = document["properties"]["steps"]["items"]
    for name, kind in sorted(own_steps.known(BUILT_IN).items()):
        own = kind.model_json_schema()
        document["$defs"] |= own.pop("$defs", {})
        own["properties"]["step"] = {"const": name, "description": "the name of the step"}
        own["required"] = sorted({*own.get("required", ()), "step"})
        document["$defs"][f"step {name}"] = own
        steps["oneOf"].append({"$ref": f"{DEFINITIONS}step {name}"})
    steps["oneOf"].append(
        {
            "type": "object",
            "description": "a step of one's own, as `module:Class`",
            "properties": {"step": {"type": "string", "pattern": ":"}},
            "required": ["step"],
        }
    )
    for name, kind in BUILT_IN.items():
        of = document["$defs"][kind.__name__]
        if issubclass(kind, DocumentStep) and kind is not Where:
            named = of["properties"]["step"]
            own = {"type": "string", "pattern": f"^{name}-[a-z0-9_]+$"}
            of["properties"]["step"] = {
                "anyOf": [{"const": named.pop("const")}, own],
                **{key: value for key, value in named.items() if key != "type"},
            }
        of["required"] = sorted({*of.get("required", ()), "step"})
    del document["$defs"]["Own"]["properties"]["reader"]["pattern"]  # a recipe may write a name in place of the address
    for name, values in examples().items():
        properties = (document if name == Recipe.__name__ else document["$defs"][name])["properties"]
        for key, value in values.items():
            properties[key]["examples"] = [value]
    return {"$schema": DRAFT, **document}


def examples() -> dict[str, dict[str, Any]]:
    """An example of each setting without a default value, by the name of its class."""
    by_class: dict[str, dict[str, Any]] = yaml.safe_load(EXAMPLES.read_text(encoding="utf-8"))
    for step in BUILT_IN.values():
        by_class[step.__name__] = by_class.get(step.__name__, {}) | OF_EVERY_STEP
    return by_class | {kind.__name__: dict(kind.examples) for kind in FORMATS}
