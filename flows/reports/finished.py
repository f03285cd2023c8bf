"""What is finished of a recipe, looked up in the home without making any, and whether its files are whole."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gristmill.flows.check.run import before_run
from gristmill.flows.curation import curate
from gristmill.flows.machine.context import RunContext, job_options
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.errors import RecipeError
from gristmill.flows.recipe.recipe import Recipe, load
from gristmill.flows.reports.recorded import open_run
from gristmill.flows.reports.run import Report
from gristmill.flows.stages.corpus import Corpus
from gristmill.flows.stages.evaluation.heldout import Data
from gristmill.flows.stages.group_losses import group_losses_spec
from gristmill.flows.stages.indexes import search_index_spec, word_index_spec
from gristmill.flows.stages.mixture import training_data
from gristmill.storage.home import Home
from gristmill.tasks.engine import options
from gristmill.tasks.engine.make import NotFinishedError, StageResult
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.engine.verify import Damage, Verified, verify


def finished(recipe: Any, settings: MachineSettings | None = None) -> Report:
    """The report of a recipe's finished corpus, with data and training as far as they are finished. Makes nothing.

    Raises NotFinishedError, which names the remedy, where the corpus is not finished.
    """
    recipe = load(recipe)
    settings = settings or MachineSettings()
    options.configure(job_options(settings))
    context, recipe = open_run(settings, recipe)
    *_, passed = curate(context, recipe)
    corpus = passed.left
    data = _data(context, recipe, corpus)
    if data is None:
        return Report(recipe, settings, corpus)
    from gristmill.flows.stages.model import Trained, model_spec

    model = context.find(model_spec(settings, recipe, data))
    trained = None if model is None else Trained(model, model.result["result"], mlflow_run="")
    return Report(recipe, settings, corpus, data, trained)


def check_run(recipe: Recipe, settings: MachineSettings) -> bool:
    """Whether a recipe can be run from the files that it names; False where some are gone, but its corpus is finished
    as its last run saw them. Raises RecipeError for what would fail later."""
    try:
        before_run(recipe, settings)
    except RecipeError as error:
        gone = all(re.match("(sources|steps|takedowns)\\b", finding.key) for finding in error.findings)
        if not (gone and _curated(recipe, settings)):
            raise
        return False
    return True


def _curated(recipe: Recipe, settings: MachineSettings) -> bool:
    try:
        context, recipe = open_run(settings, recipe)
        for _ in curate(context, recipe):
            pass
    except (OSError, ValueError, RuntimeError, NotFinishedError):
        return False
    return True


def _data(context: RunContext, recipe: Recipe, corpus: Corpus) -> Data | None:
    if recipe.mixture is None:
        return None
    try:
        return training_data(context, recipe, corpus)
    except NotFinishedError:
        return None


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
    context, recipe = open_run(settings, recipe)
    seen = 0
    for passed in curate(context, recipe):
        yield from passed.left.stages[seen:]
        seen = len(passed.left.stages)
    corpus = passed.left
    spec = group_losses_spec(recipe, corpus)
    if spec is not None and (found := context.find(spec)) is not None:
        yield found
    if recipe.word_index:
        yield context.build(word_index_spec(context, recipe, corpus))
    if recipe.mixture is None:
        return
    # a corpus is verified without the libraries of training
    from gristmill.flows.stages.model import model_spec

    built: dict[str, StageResult] = {}

    def noted(spec: StageSpec) -> StageResult:
        return built.setdefault(spec.key, context.build(spec))

    try:
        data = training_data(replace(context, build=noted), recipe, corpus)
    except NotFinishedError:
        yield from built.values()
        raise
    yield from built.values()
    if recipe.index:
        yield context.build(search_index_spec(context, recipe, data))
    yield context.build(model_spec(settings, recipe, data))
