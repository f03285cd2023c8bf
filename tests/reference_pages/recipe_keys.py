"""The page of all keys of a recipe, from their JSON schema."""

import json
import re
from collections.abc import Iterator
from typing import Any

from gristmill.flows.recipe.reference import DEFINITIONS, OF_EVERY_STEP, schema
from tests.reference_pages.markdown import fence, page, table


def recipe_page() -> str:
    """Every key of a recipe: a table for the recipe, each kind of source, each step, and the settings inside."""
    whole = schema()
    defs = whole["$defs"]
    parts = [
        "# Recipe keys",
        "This page lists every key of a recipe, with its type, default, bounds and an example.",
        "A recipe is one YAML file. An unknown key is an error that suggests the nearest known key. Validate a recipe "
        "without running it:",
        fence("gristmill check recipe.yaml", "sh"),
        "Write a schema for an editor with a YAML server, which completes keys and shows their meaning:",
        fence("gristmill recipe schema --to recipe.schema.json", "sh"),
        "Then add this first line to the recipe:",
        fence("# yaml-language-server: $schema=recipe.schema.json", "yaml"),
        "A key without a default is required. If the example is empty, the default is the example.",
        "## The recipe",
        _table(whole["properties"], whole["required"]),
    ]
    of_sources = _named(whole["properties"]["sources"]["items"]["oneOf"])
    parts += ["## Sources", "Each entry of `sources` is one of these, identified by the key in the heading."]
    described = {*of_sources}
    for name in of_sources:
        parts += _section(f"`{_key(defs[name])}`", defs[name])
    steps = _named(whole["properties"]["steps"]["items"]["oneOf"])
    every = defs[steps[0]]["properties"]
    parts += [
        "## Steps",
        "Every step has these settings, of which a recipe gives one at most "
        "([how to use them](../guides/sources.md#apply-a-step-to-some-sources)):",
        _table({key: every[key] for key in OF_EVERY_STEP}, []),
    ]
    for name in steps:
        step = defs[name]["properties"]["step"]
        defs[name]["properties"] = {key: of for key, of in defs[name]["properties"].items() if key not in OF_EVERY_STEP}
        parts += _section(f"`{step.get('const', step.get('default'))}`", defs[name])
        described.add(name)
    parts.append("## Tokenizer, mixture, model, training and nested settings")
    inside = {"Tokenizer": "tokenizer", "Mixture": "mixture", "ModelConfig": "model", "TrainingConfig": "training"}
    inside |= {"GuardConfig": "training.guard", "Export": "export"}
    for name in [*inside, *sorted({*defs} - {*inside} - described)]:
        parts += _section(f"`{inside[name]}`" if name in inside else name, defs[name])
    return page(*parts)


def _named(of: list[dict[str, Any]]) -> list[str]:
    return [each["$ref"].removeprefix(DEFINITIONS) for each in of if "$ref" in each]


def _key(of: dict[str, Any]) -> str:
    """The key by which a kind of source is known: the one that must be given, beside its name."""
    return next(key for key in of["required"] if key != "name")


def _section(title: str, of: dict[str, Any]) -> Iterator[str]:
    yield f"### {title}"
    if about := of.get("description", "").split("\n\n")[0]:
        yield " ".join(about.split())
    keys = {key: value for key, value in of["properties"].items() if key != "step"}
    if keys:
        yield _table(keys, of.get("required", []))


def _table(properties: dict[str, Any], required: list[str]) -> str:
    rows = []
    for key, of in properties.items():
        default = "required" if key in required else f"`{_value(of.get('default'))}`"
        example = ", ".join(f"`{_value(each)}`" for each in of.get("examples", ()))
        if isinstance(of.get("default"), dict) and len(_value(of["default"])) > 40:
            default = "see its section"
        about = re.sub(r"\bNone\b", "null", of.get("description", ""))  # as YAML has it
        rows.append((f"`{key}`", _words(of), default, example, about))
    return table(("key", "type", "default", "example", "meaning"), rows)


def _value(value: Any) -> str:
    """A value as one writes it into a recipe, on one line."""
    if isinstance(value, str):
        return value if value.replace("_", "").replace("-", "").isalnum() else json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_value(key)}: {_value(each)}" for key, each in value.items()) + "}"
    return json.dumps(value)


def _words(of: dict[str, Any]) -> str:
    """The type of a key in words, with its bounds."""
    if "$ref" in of:
        return of["$ref"].removeprefix(DEFINITIONS)
    for several in ("anyOf", "oneOf"):
        if several in of:
            kinds = dict.fromkeys(map(_words, of[several]))
            return " or ".join(kinds) if len(kinds) < 5 else "mappings, as below"
    if "enum" in of or "const" in of:
        return "one of " + ", ".join(f"`{_value(each)}`" for each in of.get("enum", [of.get("const")]))
    kind = of.get("type", "any")
    if kind == "array":
        if "prefixItems" in of:
            return "[" + ", ".join(map(_words, of["prefixItems"])) + "]"
        return f"list of {_words(of.get('items', {}))}"
    if kind == "object":
        values = of.get("additionalProperties")
        return f"mapping to {_words(values)}" if isinstance(values, dict) else "mapping"
    words = {"string": "text", "integer": "integer", "number": "number", "boolean": "true or false", "null": "null"}[
        kind
    ]
    signs = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}
    bounds = [f"{sign} {_value(of[bound])}" for bound, sign in signs.items() if bound in of]
    return " ".join([words, ", ".join(bounds)]).strip()
