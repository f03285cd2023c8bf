"""Every key of a recipe, from the settings themselves: a JSON schema for editors, and the page
docs/reference/recipe.md.

    gristmill recipe schema --to recipe.schema.json
    gristmill recipe schema --page > docs/reference/recipe.md

`examples.yaml` next to this module has an example of each key that is not set by default. Sources have their own.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from gristmill.flows.recipe import own_steps
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.recipe.steps import BUILT_IN
from gristmill.tasks.reading.sources import FORMATS

DRAFT = "https://json-schema.org/draft/2020-12/schema"
EXAMPLES = Path(__file__).with_name("examples.yaml")
_DEFS = "#/$defs/"

_HEAD = """# Every key of a recipe

This page lists every key of a recipe, with its type, default and an example.

A recipe is one YAML file. Keys without a default are required. Where the example column is empty, the default is the
example. An unknown key is an error, and the message suggests the nearest known key. To validate a recipe:

    gristmill check recipe.yaml

Editors with a YAML language server can complete keys and show their descriptions. Write the schema:

    gristmill recipe schema --to recipe.schema.json

Then begin the recipe with this line:

    # yaml-language-server: $schema=recipe.schema.json

`gristmill recipe schema --page` prints this page with your own steps too, if `GRISTMILL_STEPS` names them.
"""


def schema() -> dict[str, Any]:
    """A JSON schema (draft 2020-12) of a recipe file, with the user's own steps and with examples.

    `gristmill check` also finds problems that a schema cannot express, such as settings that exclude each other.
    """
    document = Recipe.model_json_schema()
    steps = document["properties"]["steps"]["items"]
    for name, kind in sorted(own_steps.known(BUILT_IN).items()):
        own = kind.model_json_schema()
        document["$defs"] |= own.pop("$defs", {})
        own["properties"]["step"] = {"const": name, "description": "the name of the step"}
        own["required"] = sorted({*own.get("required", ()), "step"})
        document["$defs"][f"step {name}"] = own
        steps["oneOf"].append({"$ref": f"{_DEFS}step {name}"})
    steps["oneOf"].append(
        {
            "type": "object",
            "description": "your own step, as `module:Class`",
            "properties": {"step": {"type": "string", "pattern": ":"}},
            "required": ["step"],
        }
    )
    for kind in BUILT_IN.values():
        definition = document["$defs"][kind.__name__]
        definition["required"] = sorted({*definition.get("required", ()), "step"})
    del document["$defs"]["Own"]["properties"]["reader"]["pattern"]  # a recipe may have a name instead of the address
    for name, values in examples().items():
        properties = (document if name == Recipe.__name__ else document["$defs"][name])["properties"]
        for key, value in values.items():
            properties[key]["examples"] = [value]
    return {"$schema": DRAFT, **document}


def examples() -> dict[str, dict[str, Any]]:
    """An example of each setting that is not set by default, by the name of its class."""
    by_class: dict[str, dict[str, Any]] = yaml.safe_load(EXAMPLES.read_text(encoding="utf-8"))
    return by_class | {kind.__name__: dict(kind.examples) for kind in FORMATS}


def page() -> str:
    """The page of all keys as Markdown: a table for the recipe, each kind of source, each step, and what they hold."""
    whole = schema()
    defs = whole["$defs"]
    parts = [_HEAD, "## The recipe\n", _table(whole["properties"], whole["required"])]
    of_sources = _referenced(whole["properties"]["sources"]["items"]["oneOf"])
    parts += [
        "## Sources\n",
        "Each entry of `sources` is one of the following. The key in the title selects the format.\n",
    ]
    described = {*of_sources}
    for name in of_sources:
        parts += _section(f"`{_key(defs[name])}`", defs[name])
    parts.append("## Steps\n")
    for name in _referenced(whole["properties"]["steps"]["items"]["oneOf"]):
        step = defs[name]["properties"]["step"]
        parts += _section(f"`{step.get('const', step.get('default'))}`", defs[name])
        described.add(name)
    parts.append("## Tokenizer, mixture, model, training and nested settings\n")
    inside = {"Tokenizer": "tokenizer", "Mixture": "mixture", "ModelConfig": "model", "TrainingConfig": "training"}
    inside |= {"GuardConfig": "training.guard", "Export": "export"}
    for name in [*inside, *sorted({*defs} - {*inside} - described)]:
        parts += _section(f"`{inside[name]}`" if name in inside else name, defs[name])
    return "\n".join(parts).rstrip() + "\n"


def _referenced(alternatives: list[dict[str, Any]]) -> list[str]:
    return [each["$ref"].removeprefix(_DEFS) for each in alternatives if "$ref" in each]


def _key(definition: dict[str, Any]) -> str:
    """The key that selects a source format: the required key other than `name`."""
    return next(key for key in definition["required"] if key != "name")


def _section(title: str, definition: dict[str, Any]) -> Iterator[str]:
    yield f"### {title}\n"
    if about := definition.get("description", "").split("\n\n")[0]:
        yield f"{about}\n"
    keys = {key: value for key, value in definition["properties"].items() if key != "step"}
    if keys:
        yield _table(keys, definition.get("required", []))


def _table(properties: dict[str, Any], required: list[str]) -> str:
    rows = ["| key | type | default | example | description |", "| --- | --- | --- | --- | --- |"]
    for key, value_schema in properties.items():
        default = "required" if key in required else f"`{_value(value_schema.get('default'))}`"
        example = ", ".join(f"`{_value(each)}`" for each in value_schema.get("examples", ()))
        if isinstance(value_schema.get("default"), dict) and len(_value(value_schema["default"])) > 40:
            default = "see below"
        about = re.sub(r"\bNone\b", "null", value_schema.get("description", ""))  # as YAML has it
        cells = (f"`{key}`", _words(value_schema), default, example, about)
        rows.append("| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def _value(value: Any) -> str:
    """A value on one line, as written in a recipe."""
    if isinstance(value, str):
        return value if value.replace("_", "").replace("-", "").isalnum() else json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_value(key)}: {_value(each)}" for key, each in value.items()) + "}"
    return json.dumps(value)


def _words(value_schema: dict[str, Any]) -> str:
    """The type of a key in words, with its bounds."""
    if "$ref" in value_schema:
        return value_schema["$ref"].removeprefix(_DEFS)
    for several in ("anyOf", "oneOf"):
        if several in value_schema:
            kinds = dict.fromkeys(map(_words, value_schema[several]))
            return " or ".join(kinds) if len(kinds) < 5 else "mappings, as below"
    if "enum" in value_schema or "const" in value_schema:
        return "one of " + ", ".join(
            f"`{_value(each)}`" for each in value_schema.get("enum", [value_schema.get("const")])
        )
    kind = value_schema.get("type", "any")
    if kind == "array":
        if "prefixItems" in value_schema:
            return "[" + ", ".join(map(_words, value_schema["prefixItems"])) + "]"
        return f"list of {_words(value_schema.get('items', {}))}"
    if kind == "object":
        return (
            f"mapping to {_words(value_schema['additionalProperties'])}"
            if value_schema.get("additionalProperties")
            else "mapping"
        )
    words = {"string": "text", "integer": "integer", "number": "number", "boolean": "true or false", "null": "null"}[
        kind
    ]
    signs = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}
    bounds = [f"{sign} {_value(value_schema[bound])}" for bound, sign in signs.items() if bound in value_schema]
    return " ".join([words, ", ".join(bounds)]).strip()
