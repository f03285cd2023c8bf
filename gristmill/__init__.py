"""Gristmill from Python: web crawls in, a trained language model out.

import gristmill
report = gristmill.pipeline("demo")
report.result["heldout/bits_per_byte"]

`load` reads a recipe; `corpus`, `tokens` and `pretrain` are the parts of `pipeline`. All return a `Run`. `open` is
for a finished run, of which it makes nothing: its `Run` has documents, scores, ledger, and the way of each document.
`ablate` compares recipes, and returns a `DecisionReport`; `mix` looks for a mixture of sources (`MixtureResult`),
`scale` fits a scaling law (`ScalingReport`), `agreement` says whether recipes keep their order at another size
(`AgreementReport`), `study` answers a question about training (`StudyReport`), `plan` says what a training takes on
devices that are named (`TrainingPlan`). `diff` says what
differs between two finished corpora (`Difference`). `open_index` gives the index of a recipe (`PhraseIndex`), in which
`find` looks for a phrase (`PhraseMatches`), `trace` for the spans of a text (`Trace`), and by which `memorized` says
what the recipe's model has memorized (`Memorized`); `open_words` that of its words (`WordIndex`), by which `find_words`
ranks documents (`WordMatches`). Within a block of `remake`, flows make finished stages again.
Each is imported when it is asked for: the flows take seconds, since Prefect does.
"""

import importlib
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gristmill.flows.experiments.decisions.report import DecisionReport
    from gristmill.flows.experiments.mixtures import MixtureResult
    from gristmill.flows.experiments.planning.plan import TrainingPlan
    from gristmill.flows.experiments.scaling.ladder import AgreementReport
    from gristmill.flows.experiments.scaling.report import ScalingReport
    from gristmill.flows.experiments.studies.report import StudyReport
    from gristmill.flows.explore.search.indexes import find, find_words, open_index, open_words, trace
    from gristmill.flows.explore.search.memorized import Memorized, memorized
    from gristmill.flows.machine.remaking import remake
    from gristmill.flows.recipe.recipe import load
    from gristmill.flows.reports.diff.difference import Difference
    from gristmill.flows.reports.diff.targets import diff
    from gristmill.flows.reports.run import Run
    from gristmill.flows.reports.run.rows import Rows
    from gristmill.flows.reports.search.opened import PhraseIndex
    from gristmill.flows.reports.search.phrases import PhraseMatches, Trace
    from gristmill.flows.reports.search.words import WordIndex, WordMatches

    # a stub, since the code makes the parameters of these: tests/public/signatures.py writes it
    from gristmill.functions import (
        RecipeArgument,
        ablate,
        agreement,
        corpus,
        mix,
        pipeline,
        plan,
        pretrain,
        scale,
        study,
        tokens,
    )

    __version__: str


__all__ = [
    "AgreementReport",
    "DecisionReport",
    "Difference",
    "Memorized",
    "MixtureResult",
    "PhraseIndex",
    "PhraseMatches",
    "Rows",
    "Run",
    "ScalingReport",
    "StudyReport",
    "Trace",
    "TrainingPlan",
    "WordIndex",
    "WordMatches",
    "__version__",
    "ablate",
    "agreement",
    "corpus",
    "diff",
    "find",
    "find_words",
    "load",
    "memorized",
    "mix",
    "open",
    "open_index",
    "open_words",
    "pipeline",
    "plan",
    "pretrain",
    "remake",
    "scale",
    "study",
    "tokens",
    "trace",
]

_MODULES = {
    "AgreementReport": "gristmill.flows.experiments.scaling.ladder",
    "DecisionReport": "gristmill.flows.experiments.decisions.report",
    "Difference": "gristmill.flows.reports.diff.difference",
    "Memorized": "gristmill.flows.explore.search.memorized",
    "MixtureResult": "gristmill.flows.experiments.mixtures",
    "PhraseIndex": "gristmill.flows.reports.search.opened",
    "PhraseMatches": "gristmill.flows.reports.search.phrases",
    "Rows": "gristmill.flows.reports.run.rows",
    "Run": "gristmill.flows.reports.run",
    "ScalingReport": "gristmill.flows.experiments.scaling.report",
    "StudyReport": "gristmill.flows.experiments.studies.report",
    "Trace": "gristmill.flows.reports.search.phrases",
    "TrainingPlan": "gristmill.flows.experiments.planning.plan",
    "WordIndex": "gristmill.flows.reports.search.words",
    "WordMatches": "gristmill.flows.reports.search.words",
    "ablate": "gristmill.flows.experiments.decisions.ablate",
    "agreement": "gristmill.flows.experiments.scaling.scale",
    "corpus": "gristmill.flows.pipeline",
    "diff": "gristmill.flows.reports.diff.targets",
    "find": "gristmill.flows.explore.search.indexes",
    "find_words": "gristmill.flows.explore.search.indexes",
    "load": "gristmill.flows.recipe.recipe",
    "memorized": "gristmill.flows.explore.search.memorized",
    "mix": "gristmill.flows.experiments.mixtures",
    "open_index": "gristmill.flows.explore.search.indexes",
    "open_words": "gristmill.flows.explore.search.indexes",
    "pipeline": "gristmill.flows.pipeline",
    "plan": "gristmill.flows.experiments.planning.plan",
    "pretrain": "gristmill.flows.pipeline",
    "remake": "gristmill.flows.machine.remaking",
    "scale": "gristmill.flows.experiments.scaling.scale",
    "study": "gristmill.flows.experiments.studies.study",
    "tokens": "gristmill.flows.pipeline",
    "trace": "gristmill.flows.explore.search.indexes",
}


def open(recipe: "RecipeArgument", home: str = "", settings: "Sequence[str]" = ()) -> "Run":
    """The finished run of a recipe: its documents, scores and ledger, and its training as far as it is finished.

    Nothing is made, and no flow is run; the sources may be elsewhere by now. `recipe`: a YAML file, the name of one
    that ships, or a mapping; `home`: where the stages are, a folder or an address (default: `GRISTMILL_HOME`, or
    `.gristmill`); `settings`: those that the run was made with, such as `["training.batch=32"]`. Raises
    NotFinishedError, a LookupError that names the remedy, where the corpus is not finished.

    >>> run = gristmill.open("recipe.yaml")
    >>> run.summary
    ['7 of 10 documents kept']
    """
    from gristmill.flows.machine.settings import MachineSettings
    from gristmill.flows.recipe.recipe import load
    from gristmill.flows.recipe.variants import changed
    from gristmill.flows.reports.finished import finished

    found = changed(load(recipe), settings) if settings else recipe
    return finished(found, MachineSettings(home=home) if home else MachineSettings())


# Names in release 0.1.0, which work for one more release.
_RENAMED = {"Report": "Run"}


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        warnings.warn(f"gristmill.{name} is now gristmill.{_RENAMED[name]}", DeprecationWarning, stacklevel=2)
        name = _RENAMED[name]
    if name == "__version__":
        from importlib.metadata import version

        return version("gristmill")
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
