"""Recipes whose documents a source rewrites: read, checked, and refused if they rewrite each other."""

import os
from collections.abc import Callable, Iterable, Iterator

from gristmill.flows.machine.context import RunContext
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.errors import Finding, RecipeError
from gristmill.flows.recipe.recipe import Recipe, load
from gristmill.tasks.documents.step import Problem
from gristmill.tasks.engine.options import LanguageModelServer
from gristmill.tasks.reading.sources import Rewrites

_CHARACTERS_A_TOKEN = 4  # of English, about


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


def rewrite_remarks(recipe: Recipe, settings: MachineSettings) -> Iterator[str]:
    """Where texts go, and what the answers may cost."""
    for source in map(settings.placed, recipe.sources):
        if isinstance(source, Rewrites):
            yield f"sources.{source.name}: {_sentence(source, settings.lm)}"


def _sentence(source: Rewrites, server: LanguageModelServer) -> str:
    settings = source.rewrite
    if not server.base_url:
        return (
            f"no language model server is set, so only finished rewrites can be read; set GRISTMILL_LM__BASE_URL to "
            f"one that serves {settings.model}"
        )
    where = "this machine" if server.is_loopback else f"the host {server.host}"
    count = "all" if settings.of is None else f"{settings.of:,}"
    sentence = f"texts of {count} documents of {settings.recipe} go to {where}, to be rewritten by {settings.model}"
    if settings.of is None:
        return sentence
    prompt, answer = settings.of * settings.characters // _CHARACTERS_A_TOKEN, settings.of * settings.max_tokens
    sentence += f"; at most about {prompt:,} prompt tokens and {answer:,} completion tokens"
    return sentence + (f", price {server.price(prompt, answer):,.2f}" if server.price_in or server.price_out else "")


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
