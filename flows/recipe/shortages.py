"""Finds missing packages of a recipe before a run: of steps, sources, addresses and indexes.

Steps and sources declare what they need; `gristmill.tasks.engine.extras` knows what is installed, and how to install
it.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe
from gristmill.tasks.documents.step import Problem
from gristmill.tasks.engine import extras

_REMOTE = re.compile("(?:https?|s3a?)://.+", re.IGNORECASE)


def shortages(recipe: Recipe, settings: MachineSettings) -> Iterator[Problem]:
    """A problem, with the fix, for each step, source and index whose packages are missing, and one for the first
    address in each part of the recipe that cannot be read without them."""
    for index, step in enumerate(recipe.steps):
        if sentence := step.shortage():
            yield ("steps", index, "step"), sentence
    for index, source in enumerate(recipe.sources):
        if sentence := extras.shortage(f"source {source.name}", (*source.libraries, *source.packages)):
            yield ("sources", index, "name"), sentence
    for key, distribution in (("index", "pydivsufsort"), ("word_index", "tantivy")):
        if getattr(recipe, key) and (sentence := extras.shortage(f"`{key}: true`", [distribution])):
            yield (key,), sentence
    yield from _of_addresses(recipe, settings)


def is_remote_short(recipe: Recipe, settings: MachineSettings) -> bool:
    """Whether an address in the recipe or the home cannot be read because packages are missing."""
    return any(_of_addresses(recipe, settings))


def _of_addresses(recipe: Recipe, settings: MachineSettings) -> Iterator[Problem]:
    if not extras.missing(extras.EXTRAS["remote"]):
        return
    for variable, folder in {"GRISTMILL_HOME": settings.home, "GRISTMILL_LOCAL": settings.local_folder}.items():
        if _REMOTE.fullmatch(folder):
            yield (), _sentence(variable, folder)
    values = recipe.model_dump(mode="json")
    for key, value in values.items():
        for index, part in enumerate(value) if key in ("sources", "steps") else [(None, value)]:
            if (address := next(_addresses(part), "")) != "":
                yield (key,) if index is None else (key, index), _sentence("an address", address)


def _sentence(what: str, address: str) -> str:
    return extras.shortage(f"{what}, {address.partition('://')[0].lower()}://...,", extras.EXTRAS["remote"])


def _addresses(value: Any) -> Iterator[str]:
    """The remote addresses in a part of a recipe. `url_prefixes` are addresses of pages, which are not opened."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            if key != "url_prefixes":
                yield from _addresses(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _addresses(each)
    elif isinstance(value, str) and _REMOTE.fullmatch(value):
        yield value
