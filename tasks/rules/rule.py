"""A rule is a declaration and a function of the same name in the module of its rule set; each is called once a batch.

The declaration describes what is counted, in which unit, and which thresholds were published. What follows from it: a
signal (the column `<step>_<rule>`), its thresholds in the recipe (`min_<rule>`, `max_<rule>`), which may differ by
language, the rule's name in the ledger, and its row in `gristmill recipe rules`. The function of the same name gives a
number for each document of a batch (`gristmill.tasks.rules.rule`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, create_model, field_validator, model_validator

from gristmill.tasks import kernels
from gristmill.tasks.documents.measure import Batch, schema
from gristmill.tasks.documents.step import Bound, DocumentStep, Signal, work_of
from gristmill.tasks.engine import own_code

# Whose code decides what a rule counts, where the papers leave it open.
Definition = Literal["datatrove", "dclm"]
DEFINITION = "Implementation to follow. dclm: DCLM's, also for RefinedWeb, which DCLM reproduced."


@dataclass(frozen=True)
class Rule:
    """`ends`: the recipe's fields of the thresholds, `min_...` or `max_...` or both, with the published values.

    `description`: what is counted; its first line stands beside the thresholds.
    """

    name: str
    unit: str
    description: str
    ends: Mapping[str, float | None]

    @property
    def kind(self) -> type[int] | type[float]:
        """The type of the signal and of its thresholds: integers if the published thresholds are."""
        ends = [end for end in self.ends.values() if end is not None]
        return int if ends and all(isinstance(end, int) for end in ends) else float


def rule(name: str, unit: str, description: str, **ends: float | None) -> Rule:
    """Declare a rule. `low` and `high`: the published thresholds that it has; None: off by default."""
    fields = {{"low": "min_", "high": "max_"}[end] + name: value for end, value in ends.items()}
    return Rule(name, unit, inspect.cleandoc(description), fields)


class RuleStep(DocumentStep):
    """A rule set in a recipe: a threshold that is null does not bind."""

    rules: ClassVar[tuple[Rule, ...]] = ()

    languages: dict[str, dict[str, float | None]] = Field(
        {}, description="Different thresholds for documents of a language: {fr: {max_...: 0.5}}."
    )

    @field_validator("languages")
    @classmethod
    def _known(cls, languages: dict) -> dict:
        thresholds_of = [end for rule in cls.rules for end in rule.ends]
        for language, thresholds in languages.items():
            if strange := sorted(set(thresholds) - set(thresholds_of)):
                raise ValueError(
                    f"{language}: no threshold {', '.join(strange)}; the thresholds are {', '.join(thresholds_of)}"
                )
        return languages

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        for where, thresholds in (("", {}), *((f"languages.{code}: ", own) for code, own in self.languages.items())):
            for rule in self.rules:
                ends = {end: thresholds.get(end, getattr(self, end)) for end in rule.ends}
                low, high = ends.get(f"min_{rule.name}"), ends.get(f"max_{rule.name}")
                if low is not None and high is not None and low > high:
                    raise ValueError(
                        f"{where}min_{rule.name} {low:g} is above max_{rule.name} {high:g}, so every "
                        "document is dropped; swap or change them"
                    )
                if low is not None and low > 1 and rule.unit.startswith("fraction"):
                    raise ValueError(
                        f"{where}min_{rule.name} {low:g} is a {rule.unit}, so every document is dropped; give a number "
                        "from 0 to 1"
                    )
        return self

    def decisions(self) -> list[Bound]:
        return [self._bound(rule, signal.name) for rule, signal in zip(self.rules, self.signals, strict=True)]

    def _bound(self, rule: Rule, name: str) -> Bound:
        own = {end: getattr(self, end) for end in rule.ends}

        def ends(thresholds: dict) -> tuple[float | None, float | None]:
            return thresholds.get(f"min_{rule.name}"), thresholds.get(f"max_{rule.name}")

        languages = {
            language: ends(own | thresholds)
            for language, thresholds in self.languages.items()
            if own.keys() & thresholds.keys()
        }
        return Bound(rule.name, name, *ends(own), languages)


def rule_set(source: str, rules: Sequence[Rule]) -> Callable[[type[RuleStep]], type[RuleStep]]:
    """Decorate a class with rules: it gets their thresholds as fields behind its own, and their signals.

    `source`: of the definitions.
    """

    def add(base: type[RuleStep]) -> type[RuleStep]:
        fields: dict[str, Any] = {}
        for each in rules:
            for end, value in each.ends.items():
                what = "Minimum" if end.startswith("min_") else "Maximum"
                described = f"{what} ({each.unit}): {each.description.splitlines()[0]} null: no limit."
                fields[end] = (each.kind | None, Field(value, ge=0, description=described))
        name = base.model_fields["step"].default
        model = create_model(base.__name__, __base__=base, __module__=base.__module__, __doc__=base.__doc__, **fields)
        model.rules = tuple(rules)
        model.signals = tuple(
            Signal(
                f"{name}_{each.name}",
                "int64" if each.kind is int else "float64",
                each.unit,
                source,
                description=each.description.splitlines()[0],
            )
            for each in rules
        )
        return model

    return add


# A function has the name of its rule and gets the scan of a batch. Of the parameters `settings` (the step) and
# `language` (the column of that name, or None) it gets those that it names. It gives an array with a number for each
# document, or `Parts`, by which a dropped document can be marked.


Unit = Literal["words", "lines", "paragraphs", "sentences"]


@dataclass(frozen=True, eq=False)
class Spans:
    """Pieces of the texts of a batch: those of document d are bounds[d]:bounds[d + 1], at `data[start[i]:stop[i]]`.

    bounds, start, stop: int64; chars: int32, code points.
    """

    bounds: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    chars: np.ndarray

    @cached_property
    def count(self) -> np.ndarray:
        """How many each document has."""
        return np.diff(self.bounds)


@dataclass(frozen=True)
class Parts:
    """The units of the documents that a rule counts.

    unit: a unit of the scan, or pieces that a definition cuts otherwise; counted: bool, one entry for each unit of the
    batch, read as `where`; weights: integers, what one counts for (default 1); of: one number a document, by which the
    sum is divided, 0/0 being 0 (default: it is not divided); value: one number a document, where the published value is
    another, and `where` is only what to mark: `counted` may then be a function, which is called if something is marked.
    """

    unit: Unit | Spans
    counted: np.ndarray | Callable[[], np.ndarray]
    weights: np.ndarray | None = None
    of: np.ndarray | None = None
    value: np.ndarray | None = None

    @cached_property
    def where(self) -> np.ndarray:
        return self.counted() if callable(self.counted) else self.counted

    def values(self, text: kernels.scan.Scan) -> np.ndarray:
        """The rule's value for each document of the batch."""
        if self.value is not None:
            return self.value
        weights = self.where if self.weights is None else np.where(self.where, self.weights, 0)
        total = text.sum(self.bounds(text), weights)
        return total if self.of is None else ratio(total, self.of)

    def bounds(self, text: kernels.scan.Scan) -> np.ndarray:
        """The units of document d are bounds[d]:bounds[d + 1]."""
        return self.unit.bounds if isinstance(self.unit, Spans) else getattr(text, self.unit)

    def spans(self, text: kernels.scan.Scan) -> tuple[np.ndarray, np.ndarray]:
        """Where the units begin and stop in the data of the batch."""
        return (self.unit.start, self.unit.stop) if isinstance(self.unit, Spans) else text.spans(self.unit)


def ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole, float64; 0 where the whole is 0."""
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole != 0)


def measure(step: RuleStep, documents: Batch) -> dict[str, pa.Array]:
    """A column for each rule of the step."""
    columns = {}
    for rule, field in zip(step.rules, schema(step), strict=True):
        result = counted(step, rule, documents)
        values = result.values(documents.scan) if isinstance(result, Parts) else result
        columns[field.name] = pa.array(np.ascontiguousarray(values), field.type)
    return columns


def counted(step: RuleStep, rule: Rule, documents: Batch) -> np.ndarray | Parts:
    """What the rule's function gives for a batch. Raises AttributeError if the work module has no such function."""
    work = work_of(step)
    if not callable(function := getattr(work, rule.name, None)):
        raise AttributeError(f"{work.__name__} has no function `{rule.name}` for the rule that {step.step} declares")
    parameters = inspect.signature(function).parameters
    arguments: dict[str, Any] = {}
    if "settings" in parameters:
        arguments["settings"] = step
    if "language" in parameters:
        arguments["language"] = documents["language"] if "language" in step.reads else None
    accept = partial(_accepted_counts, rule.name, len(documents))
    return own_code.call(f"step {step.step}", function, documents.scan, accept=accept, **arguments)


def _accepted_counts(rule: str, rows: int, result: Any) -> np.ndarray | Parts:
    """What a user's rule returned: a value for each document, or parts."""
    if isinstance(result, Parts):
        return result
    if not isinstance(result, np.ndarray):
        raise own_code.Unacceptable(f"returned {own_code.shown(result)}; return a NumPy array, or Parts")
    if result.shape != (rows,):
        raise own_code.Unacceptable(f"returned an array of shape {result.shape} for {rows:,} documents")
    return result
