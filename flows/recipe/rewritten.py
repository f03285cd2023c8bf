"""Recipes whose documents a source rewrites: read, checked, and refused if they rewrite each other."""

import os
from collections.abc import Callable, Iterable, Iterator

from gristmill.flows.machine.context import RunContext
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.errors import Finding, RecipeError
from gristmill.flows.recipe.recipe import Recipe, load
from gristmill.tasks.documents.step import Problem
from gristmill.tasks.reading.sources import Rewrites


def recipe_of(context: RunContext, source: Rewrites) -> Recipe:
    """The recipe that a source rewrites, as its file is now; for a reader as the run that is read saw it. Raises as
    `load`, and RecipeError for recipes that rewrite each other."""
    path = source.rewrite.recipe

    def look() -> dict:
        recipe = load(path)
        if (circle := _circle(recipe, (_real(path),), context.settings)) is not None:
            raise RecipeError([Finding(path, "sources", circle)])
        return recipe.model_dump(mode="json")

    return Recipe.model_validate(context.outside({"recipe": path}, look))


def rewrite_problems(
    recipe: Recipe, settings: MachineSettings, findings: Callable[[Recipe], Iterable[Finding]]
) -> Iterator[Problem]:
    """What is wrong with the recipes that sources rewrite. `findings`: of a recipe."""
    for index, source in enumerate(map(settings.placed, recipe.sources)):
        if not isinstance(source, Rewrites):
            continue
        path, key = source.rewrite.recipe, ("sources", index, "rewrite", "recipe")
        try:
            other = load(path)
        except RecipeError as error:
            yield from ((key, f"is {path}, which has a problem: {finding}") for finding in error.findings)
            continue
        except (OSError, ValueError) as error:
            yield key, f"is {path}, which cannot be read: {' '.join(str(error).split())}"
            continue
        if (circle := _circle(other, (_real(path),), settings)) is not None:
            yield key, circle
            continue
        yield from ((key, f"is {path}, which has a problem: {finding}") for finding in findings(other))


def _circle(recipe: Recipe, path: tuple[str, ...], settings: MachineSettings) -> str | None:
    """A sentence about recipes that rewrite each other; None if they do not. `path`: the files that led here."""
    for source in map(settings.placed, recipe.sources):
        if not isinstance(source, Rewrites):
            continue
        here = _real(source.rewrite.recipe)
        if here in path:
            named = " → ".join(os.path.basename(each) for each in (*path[path.index(here) :], here))
            return f"the recipes rewrite each other ({named}); rewrite a recipe without this source"
        try:
            other = load(source.rewrite.recipe)
        except (OSError, ValueError):
            continue  # a finding of its own
        if (found := _circle(other, (*path, here), settings)) is not None:
            return found
    return None


def _real(path: str) -> str:
    return path if "://" in path else os.path.realpath(os.path.expanduser(path))
