"""A rule is one function: from the scan of a batch to a number for each document.

The decorator of its rule set says the unit and the published thresholds; the docstring says what is counted. What
follows from it: a signal (the column `<step>_<rule>`), its thresholds in the recipe (`min_<rule>`, `max_<rule>`), the
rule's name in the ledger, and what is marked where a dropped document is shown.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, create_model, field_validator

from tasks.documents.step import Batch, Bound, DocumentStep, signal
from tasks.kernels.scan import Scan

Unit = Literal["words", "lines", "paragraphs", "sentences"]


@dataclass(frozen=True)
class Parts:
    """The units of the documents that a rule counts.

    counted: bool, one entry for each unit of the batch, read as `where`; weights: integers, what one counts for
    (default 1); of: one number a document, by which the sum is divided, 0/0 being 0 (default: it is not divided);
    value: one number a document, where the published value is another, and `where` only says what to mark: `counted`
    may then be a function, which is called if something is marked.
    """

    unit: Unit
    counted: np.ndarray | Callable[[], np.ndarray]
    weights: np.ndarray | None = None
    of: np.ndarray | None = None
    value: np.ndarray | None = None

    @cached_property
    def where(self) -> np.ndarray:
        return self.counted() if callable(self.counted) else self.counted

    def values(self, text: Scan) -> np.ndarray:
        """The rule's value for each document of the batch."""
        if self.value is not None:
            return self.value
        counted = self.where if self.weights is None else np.where(self.where, self.weights, 0)
        total = text.sum(getattr(text, self.unit), counted)
        return total if self.of is None else ratio(total, self.of)


def ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole, float64; 0 where the whole is 0."""
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole != 0)


@dataclass(frozen=True)
class Rule:
    """`ends`: the recipe's fields of the thresholds, `min_...` or `max_...` or both, with the published values.

    `wants`: the parameters of the function.
    """

    name: str
    function: Callable[..., np.ndarray | Parts]
    unit: str
    ends: dict[str, float | None]
    kind: type
    says: str
    wants: frozenset[str]

    def found(self, documents: Batch, settings: "RuleStep") -> np.ndarray | Parts:
        """What the rule's function gives; of its parameters `settings` and `language` it gets those that it names."""
        given: dict[str, Any] = {}
        if "settings" in self.wants:
            given["settings"] = settings
        if "language" in self.wants:
            given["language"] = documents["language"] if "language" in settings.reads else None
        return self.function(documents.scan, **given)


class RuleStep(DocumentStep):
    """A rule set in a recipe: a threshold that is null does not bind."""

    rules: ClassVar[tuple[Rule, ...]] = ()

    languages: dict[str, dict[str, float | None]] = Field(
        {}, description="thresholds that hold instead for documents of a language: {fr: {max_...: 0.5}}"
    )

    @field_validator("languages")
    @classmethod
    def _known(cls, languages: dict) -> dict:
        known = [end for rule in cls.rules for end in rule.ends]
        for language, thresholds in languages.items():
            if strange := sorted(set(thresholds) - set(known)):
                raise ValueError(
                    f"{language}: no threshold is called {', '.join(strange)}; there are {', '.join(known)}"
                )
        return languages

    def measure(self, documents: Batch) -> dict[str, pa.Array]:
        columns = {}
        for rule, field in zip(self.rules, self.signals, strict=True):
            found = rule.found(documents, self)
            values = found.values(documents.scan) if isinstance(found, Parts) else found
            columns[field.name] = pa.array(np.ascontiguousarray(values), field.type)
        return columns

    def decisions(self) -> list[Bound]:
        return [self._bound(rule, field.name) for rule, field in zip(self.rules, self.signals, strict=True)]

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


class Rules:
    """A rule set that is being written: `rule` adds to it, `step` closes it."""

    def __init__(self, step: str, source: str):
        self.name = step
        self.source = source
        self.rules: list[Rule] = []

    def rule(self, unit: str, **ends: float | None) -> Callable[[Callable], Callable]:
        """Add a function as a rule. `low` and `high`: the published thresholds that it has; None: off by default.

        The signal is an integer if the thresholds are, else float64.
        """

        def add(function: Callable) -> Callable:
            name = function.__name__
            given = [end for end in ends.values() if end is not None]
            kind = int if given and all(isinstance(end, int) for end in given) else float
            fields = {{"low": "min_", "high": "max_"}[end] + name: value for end, value in ends.items()}
            wants = frozenset(inspect.signature(function).parameters)
            self.rules.append(Rule(name, function, unit, fields, kind, inspect.cleandoc(function.__doc__), wants))
            return function

        return add

    def step(self, name: str, base: type[RuleStep] = RuleStep) -> type[RuleStep]:
        """The rule set as a step of recipes; `base` declares further settings."""
        fields: dict[str, Any] = {"step": (Literal[self.name], self.name)}
        for rule in self.rules:
            for end, value in rule.ends.items():
                what = "least" if end.startswith("min_") else "most"
                said = f"{what} ({rule.unit}): {rule.says.splitlines()[0]} null: not bound"
                fields[end] = (rule.kind | None, Field(value, ge=0, description=said))
        module = inspect.getmodule(self.rules[0].function)
        made = create_model(name, __base__=base, __module__=module.__name__, __doc__=module.__doc__, **fields)
        made.rules = tuple(self.rules)
        made.signals = pa.schema(
            [
                signal(
                    f"{self.name}_{rule.name}", pa.int64() if rule.kind is int else pa.float64(), rule.unit, self.source
                )
                for rule in self.rules
            ]
        )
        return made
