"""The difference of two finished recipes, or of two stages, by their names. Separate: a run compares itself without."""

import re
from typing import Any

from gristmill.flows.machine.runs import runs_of
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import argument_of, load
from gristmill.flows.reports.diff.difference import Difference, between
from gristmill.flows.reports.diff.matching import Side, side_of_corpus, side_of_stage
from gristmill.flows.reports.finished import finished
from gristmill.flows.reports.recorded import is_same_but, is_same_but_defaults
from gristmill.storage import files
from gristmill.storage.home import Home
from gristmill.tasks.engine.make import NotFinishedError

_LABEL = re.compile(r"[a-z][a-z0-9_]*-[0-9a-f]{8,}")


def diff(a: Any, b: Any, settings: MachineSettings | None = None) -> Difference:
    """Compare two finished recipes, or stages of the home named `name-key`.

    Raises NotFinishedError for a recipe that is not finished, LookupError and ValueError as `side_of` does. Cost as for
    `gristmill.flows.reports.diff.difference.between`.
    """
    settings = settings or MachineSettings()
    return between(side_of(a, settings), side_of(b, settings))


def side_of(target: Any, settings: MachineSettings) -> Side:
    """The side of a recipe, as `run` takes it, or of a stage of the home, named `name-key`.

    Raises NotFinishedError for a recipe whose corpus is not finished; LookupError for a stage that is not in the home,
    ValueError for one that keeps no documents.
    """
    if isinstance(target, str) and _LABEL.fullmatch(target) and not files.exists(target):
        found = Home(settings.home).stages(target)
        if not found:
            raise LookupError(f"{settings.home} has no finished stage {target}; `gristmill home status` lists them")
        return side_of_stage(found[0])
    return _side_of_recipe(target, settings)


def _side_of_recipe(target: Any, settings: MachineSettings) -> Side:
    report = finished(target, settings)
    given = load(target)
    runs = (run for run in runs_of(settings.home, given.name) if is_same_but((), run.recipe, report.recipe))
    # a model and its training change no document
    if (read := next(runs, None)) and not is_same_but_defaults({"limit", "model", "training"}, read, given):
        raise NotFinishedError(
            f"the recipe {given.name} has changed since its run, so there is nothing of it to compare: run `gristmill "
            f"corpus {argument_of(target)}` with it, or name a stage of its run (`gristmill home status` lists them)"
        )
    tokens = report.data.tokens if report.data else None
    return side_of_corpus(target if isinstance(target, str) else report.recipe.name, report.corpus, tokens)
