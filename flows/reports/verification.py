"""Stages of a finished run, or stages by name, read whole and compared with what was written."""

from collections.abc import Iterator
from typing import Any

from flows.context import job_options, lookup
from flows.curation import curate
from flows.machine import MachineSettings
from flows.recipe import Recipe, load
from flows.stages.data import Data
from flows.stages.grouped_tokens import grouped_tokens
from flows.stages.heldout import before_takedowns, heldout
from flows.stages.mixture import mixture
from flows.stages.tokenizer import tokenizer
from flows.stages.tokens import tokens
from storage.home import Home
from tasks.engine import options
from tasks.engine.make import NotFinishedError, StageResult
from tasks.engine.verify import Damage, Verified, verify


def verify_stages(target: Any, settings: MachineSettings | None = None) -> Iterator[Verified]:
    """Verify the stages that are called `target` (`rules`, or `rules-KEY`), or those of a recipe, as far as the recipe
    has been run. Each is read when it is asked for. Raises NotFinishedError where nothing of the recipe is finished.
    """
    settings = settings or MachineSettings()
    options.configure(job_options(settings))
    if isinstance(target, str):
        home = Home(settings.home)
        named, unreadable = home.stages(target), home.unreadable(target)
        yield from (verify(stage.folder) for stage in named)
        yield from (Verified(stage.folder, 0, 0, (Damage(stage.folder, stage.trouble),)) for stage in unreadable)
        if named or unreadable:
            return
    found = False
    try:
        for stage in _finished(load(target), settings):
            found = True
            yield verify(stage.folder)
    except NotFinishedError:
        if not found:
            raise


def _finished(recipe: Recipe, settings: MachineSettings) -> Iterator[StageResult]:
    """The stages of a recipe in their order. Raises NotFinishedError at the first that is not finished."""
    context = lookup(settings, recipe.name)
    seen = 0
    for passed in curate(context, recipe):
        yield from passed.left.stages[seen:]
        seen = len(passed.left.stages)
    corpus = passed.left
    if recipe.mixture is None:
        return
    # a corpus is verified without the libraries of training
    from flows.stages.model import model_spec

    split = heldout(context, recipe, corpus)
    yield split.stage
    model = tokenizer(context, recipe, before_takedowns(context, recipe, split))
    yield model
    shards = tokens(context, split, model)
    yield shards
    groups = grouped_tokens(context, recipe, split.train, model, shards)
    if groups is not None:
        yield groups
    plan = mixture(context, recipe, corpus.sources, model, shards, groups)
    yield plan
    yield context.build(model_spec(settings, recipe, Data(corpus, split, model, shards, plan, groups)))
