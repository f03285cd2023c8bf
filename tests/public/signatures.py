"""The signatures of `gristmill`'s functions as a type checker reads them. Options are declared once, as fields of
dataclasses that `spread` makes parameters of, and Prefect turns what a user gives into a recipe: neither is visible
without running the code.

python -m tests.public.signatures > gristmill/functions.pyi
"""

import inspect
from collections.abc import Iterator
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from prefect import Flow

import gristmill
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe

FUNCTIONS = ("corpus", "tokens", "pretrain", "pipeline", "ablate", "agreement", "mix", "plan", "scale", "study")
HEAD = '''"""Signatures of functions whose parameters the code makes. Written by `python -m tests.public.signatures`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from prefect import flow

from gristmill.flows.experiments.decisions.report import DecisionReport
from gristmill.flows.experiments.mixtures import MixtureResult
from gristmill.flows.experiments.planning.plan import TrainingPlan
from gristmill.flows.experiments.scaling.ladder import AgreementReport
from gristmill.flows.experiments.scaling.report import ScalingReport
from gristmill.flows.experiments.studies.report import StudyReport
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.reports.run import Run

RecipeArgument = str | Path | Mapping[str, Any] | Recipe
'''
_NAMES = {NoneType: "None", Any: "Any", Recipe: "RecipeArgument", MachineSettings: "MachineSettings"}


def signatures() -> str:
    """The text of the stub."""
    return "\n".join([HEAD, *(line for name in FUNCTIONS for line in _function(name))])


def _function(name: str) -> Iterator[str]:
    value = getattr(gristmill, name)
    if isinstance(value, Flow):
        yield "@flow"
        value = value.fn
    signature = inspect.signature(value, eval_str=True)
    yield f"def {name}("
    for parameter in signature.parameters.values():
        kind = "RecipeArgument" if parameter.name == "recipe" else written(parameter.annotation)
        yield f"    {parameter.name}: {kind}{'' if parameter.default is parameter.empty else ' = ...'},"
    yield f") -> {signature.return_annotation.__name__}: ..."


def written(annotation: Any) -> str:
    """A type as a stub names it. Raises LookupError for one that the stub does not import."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return written(inner[0])
    if origin in (Union, UnionType):
        return " | ".join(map(written, inner))
    if origin is list:  # a list of texts would not be one of what else names a recipe
        return f"Sequence[{written(inner[0])}]"
    if origin is dict:
        return f"Mapping[{', '.join(map(written, inner))}]"
    if annotation in (str, int, float, bool):
        return annotation.__name__
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return f"Literal[{', '.join(repr(str(each.value)) for each in annotation)}]".replace("'", '"')
    if annotation in _NAMES:
        return _NAMES[annotation]
    raise LookupError(f"{annotation} has no name in gristmill/functions.pyi: add it to tests/public/signatures.py")


if __name__ == "__main__":
    print(signatures())
