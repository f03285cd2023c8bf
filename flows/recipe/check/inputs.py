"""The files that a recipe names: whether they are there, and can be read. Sources and steps answer for theirs.

Remote files are asked for only by a deep check.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping

from gristmill.flows.machine.engine_python import engine_python
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.given_files import check_tokenizer_file, initial_folder, tasks_folder
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.recipe.variants import texts_alone
from gristmill.storage import files
from gristmill.tasks.documents.step import Problem, Step
from gristmill.tasks.reading.formats.source import Inspection
from gristmill.tasks.reading.sources import Source
from gristmill.tasks.url.lists import list_problems
from gristmill.training.evaluate.tasks import read_tasks
from gristmill.training.hub.weight_files import check_fits


def sources(
    given: Mapping[int, Source], settings: MachineSettings, deep: bool
) -> tuple[list[Inspection], list[Problem]]:
    """What is known of sources, given by their places in the recipe, and the problems with their files."""
    inspections = {at: settings.placed(source).inspect(deep) for at, source in given.items()}
    problems = [
        (("sources", at, *key), what) for at, inspection in inspections.items() for key, what in inspection.problems
    ]
    return [*inspections.values()], problems


def steps(given: Mapping[int, Step], settings: MachineSettings, deep: bool) -> Iterator[Problem]:
    """Problems with the files that steps name, given by their places in the recipe."""
    for at, step in given.items():
        for key, what in settings.placed(step).problems(deep):
            yield ("steps", at, *key), what


def takedowns(recipe: Recipe, settings: MachineSettings, deep: bool) -> Iterator[Problem]:
    """What is wrong with the takedown lists of the recipe itself."""
    for nth, address in enumerate(settings.placed(recipe).takedowns):
        yield from list_problems(address, ("takedowns", nth), deep)


def evaluation(recipe: Recipe, settings: MachineSettings, deep: bool) -> Iterator[Problem]:
    """What is wrong with the texts that models are evaluated on."""
    for source in texts_alone(recipe, settings.placed(recipe).evaluation).sources if recipe.evaluation else ():
        for _, what in source.inspect(deep).problems:
            yield ("evaluation", source.name), what


def training(recipe: Recipe, settings: MachineSettings) -> Iterator[Problem]:
    """What is wrong with the tokenizer's file, the weights that a training begins with, its tasks, and the environment
    of its engine."""
    try:
        engine_python(settings, recipe.training.engine)
    except ValueError as error:
        yield ("training", "engine"), f"{error}"
    try:
        check_tokenizer_file(settings, recipe)
    except (OSError, ValueError) as error:
        yield ("tokenizer", "path"), f"{error}".removeprefix("tokenizer.path ")
    try:
        folder = initial_folder(settings, recipe)
        if folder is not None:
            check_fits(folder, recipe.model)
    except (OSError, ValueError, KeyError) as error:
        yield ("training", "init_from"), f"{error}".removeprefix("training.init_from ")
    try:
        tasks = tasks_folder(settings, recipe)
        if tasks is not None:
            read_tasks(tasks)
    except (OSError, ValueError) as error:
        yield ("training", "eval_tasks"), f"{error}".removeprefix("training.eval_tasks ")


def home(settings: MachineSettings) -> Iterator[str]:
    """Why the home, or the local folder, cannot be written. A remote home is not asked."""
    for variable, folder in {"GRISTMILL_HOME": settings.home, "GRISTMILL_LOCAL": settings.local_folder}.items():
        if variable == "GRISTMILL_LOCAL" and folder == settings.home:
            continue
        if not files.is_local(folder):
            continue
        above = existing(folder)
        if not os.path.isdir(above):
            yield f"{variable} is {folder}, but {above} is a file; give a folder"
        else:
            try:
                # rights alone do not say it: the disk may be mounted to be read only
                with tempfile.TemporaryFile(dir=above):
                    pass
            except OSError as error:
                yield f"{variable} is {folder}, but {above} cannot be written: {error.strerror}; give another folder"


def existing(folder: str) -> str:
    """The folder, or the nearest one above it that is there."""
    while not os.path.exists(folder) and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
    return folder
