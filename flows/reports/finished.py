"""What is finished of a recipe, looked up in the home without making any, and whether its files are whole."""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from gristmill.flows.curation import Outputs
from gristmill.flows.machine.context import job_options
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.check import before_run
from gristmill.flows.recipe.errors import RecipeError
from gristmill.flows.recipe.recipe import Recipe, argument_of, load
from gristmill.flows.reports.recorded import open_run
from gristmill.flows.reports.run import Run
from gristmill.storage.home import Damage, Home, Verified, verify
from gristmill.storage.printable import redact_url
from gristmill.tasks.engine import options
from gristmill.tasks.engine.make import NotFinishedError, StageResult
from gristmill.tasks.engine.spec import StageSpec
from gristmill.training.checkpoint.keeping import verify_checkpoints


def finished(recipe: Any, settings: MachineSettings | None = None) -> Run:
    """The report of a recipe's finished corpus, with data and training as far as they are finished. Makes nothing.

    Raises NotFinishedError, with the command to run, where the corpus is not finished.
    """
    argument = argument_of(recipe)
    recipe = load(recipe)
    settings = settings or MachineSettings()
    options.configure(job_options(settings))
    outputs = Outputs(*open_run(settings, recipe))
    try:
        outputs.make("corpus")
    except NotFinishedError as error:
        raise NotFinishedError(
            f"the corpus of {recipe.name} is not finished in {redact_url(settings.home)}: run `gristmill "
            f"corpus {argument}`, which resumes it"
        ) from error
    if outputs.recipe.mixture is not None:
        with suppress(NotFinishedError):
            outputs.make("pretrain")
    return Run.of(outputs)


def check_run(recipe: Recipe, settings: MachineSettings) -> bool:
    """Whether a recipe can be run from the files that it names; False where some are gone, but its corpus is finished
    as its last run saw them. Raises RecipeError for what would fail later."""
    try:
        before_run(recipe, settings)
    except RecipeError as error:
        gone = all(re.match("(sources|steps|takedowns)\\b", finding.key) for finding in error.findings)
        if not (gone and _is_curated(recipe, settings)):
            raise
        return False
    return True


def _is_curated(recipe: Recipe, settings: MachineSettings) -> bool:
    try:
        _ = Outputs(*open_run(settings, recipe)).corpus
    except (OSError, ValueError, RuntimeError, NotFinishedError):
        return False
    return True


def verify_stages(target: Any, settings: MachineSettings | None = None) -> Iterator[Verified]:
    """Verify the stages that are called `target` (`rules`, or `rules-KEY`), or those of a recipe, as far as the recipe
    has been run, and their checkpoints, also those of a training that is not finished. Each is read when it is asked
    for. Raises NotFinishedError where nothing of the recipe is finished.
    """
    settings = settings or MachineSettings()
    options.configure(job_options(settings))
    if isinstance(target, str):
        home = Home(settings.home)
        named, unreadable = home.stages(target), home.unreadable(target)
        for folder in [stage.folder for stage in named]:
            yield from _verify_folder(folder)
        yield from (Verified(stage.folder, 0, 0, (Damage(stage.folder, stage.trouble),)) for stage in unreadable)
        is_named = bool(named or unreadable)
        for unfinished in home.unfinished(target):
            for checkpoint in verify_checkpoints(unfinished.folder):
                is_named = True
                yield checkpoint
        if is_named:
            return
    any_finished, begun = False, list[str]()
    try:
        for stage in _finished(load(target), settings, begun):
            any_finished = True
            yield from _verify_folder(stage.folder)
    except NotFinishedError:
        if not any_finished:
            raise
        for folder in begun:
            yield from verify_checkpoints(folder)


def _verify_folder(folder: str) -> Iterator[Verified]:
    yield verify(folder)
    yield from verify_checkpoints(folder)


def _finished(recipe: Recipe, settings: MachineSettings, begun: list[str]) -> Iterator[StageResult]:
    """The stages of a recipe in their order. Raises NotFinishedError at the first that is not finished, whose folder is
    then in `begun`."""
    context, recipe = open_run(settings, recipe)

    def build(spec: StageSpec) -> StageResult:
        try:
            return context.build(spec)
        except NotFinishedError:
            begun.append(spec.folder(settings.home))
            raise

    outputs = Outputs(replace(context, build=build), recipe)
    try:
        outputs.make()
    finally:
        yield from (each.stage for each in outputs.stages)
