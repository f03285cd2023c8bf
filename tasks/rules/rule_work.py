"""Rules at work: the functions of a rule set called on the scan of a batch, each once.

A function has the name of its rule and gets the scan of a batch. Of the parameters `settings` (the step) and
`language` (the column of that name, or None) it gets those that it names. It gives an array with a number for each
document, or `Parts`, by which a dropped document can be marked.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from gristmill.tasks.documents.batch import Batch, schema
from gristmill.tasks.documents.step import work_of
from gristmill.tasks.kernels.scan import Scan
from gristmill.tasks.rules.rule import Rule, RuleStep

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

    def values(self, text: Scan) -> np.ndarray:
        """The rule's value for each document of the batch."""
        if self.value is not None:
            return self.value
        counted = self.where if self.weights is None else np.where(self.where, self.weights, 0)
        total = text.sum(self.bounds(text), counted)
        return total if self.of is None else ratio(total, self.of)

    def bounds(self, text: Scan) -> np.ndarray:
        """The units of document d are bounds[d]:bounds[d + 1]."""
        return self.unit.bounds if isinstance(self.unit, Spans) else getattr(text, self.unit)

    def spans(self, text: Scan) -> tuple[np.ndarray, np.ndarray]:
        """Where the units begin and stop in the data of the batch."""
        return (self.unit.start, self.unit.stop) if isinstance(self.unit, Spans) else text.spans(self.unit)


def ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole, float64; 0 where the whole is 0."""
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole != 0)


def measure(step: RuleStep, documents: Batch) -> dict[str, pa.Array]:
    """A column for each rule of the step."""
    columns = {}
    for rule, field in zip(step.rules, schema(step), strict=True):
        found = counted(step, rule, documents)
        values = found.values(documents.scan) if isinstance(found, Parts) else found
        columns[field.name] = pa.array(np.ascontiguousarray(values), field.type)
    return columns


def counted(step: RuleStep, rule: Rule, documents: Batch) -> np.ndarray | Parts:
    """What the rule's function gives for a batch. Raises AttributeError if the work module has no such function."""
    work = work_of(step)
    if not callable(function := getattr(work, rule.name, None)):
        raise AttributeError(f"{work.__name__} has no function `{rule.name}` for the rule that {step.step} declares")
    wanted = inspect.signature(function).parameters
    given: dict[str, Any] = {}
    if "settings" in wanted:
        given["settings"] = step
    if "language" in wanted:
        given["language"] = documents["language"] if "language" in step.reads else None
    return function(documents.scan, **given)
