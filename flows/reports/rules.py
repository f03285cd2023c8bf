"""The rules there are: what each document step measures, where the definition comes from, and its thresholds."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

from flows.recipe import Step
from tasks.documents.step import DocumentStep
from tasks.rules.rule import RuleStep


@dataclass(frozen=True)
class Book:
    """A step: (signal, unit, thresholds, what it counts) for each of its signals."""

    title: str
    rows: tuple[tuple[str, str, str, str], ...]


def books(wanted: str) -> Iterator[Book]:
    """The step that is called `wanted`, or all. Raises LookupError, naming those that there are."""
    union, _ = get_args(Step)
    steps = {step.model_fields["step"].default: step for step in get_args(union) if issubclass(step, DocumentStep)}
    if wanted and wanted not in steps:
        raise LookupError(f"no document step is called {wanted}; there are {', '.join(steps)}")
    for name, step in steps.items():
        if wanted in ("", name):
            sources = dict.fromkeys(field.metadata[b"source"].decode() for field in step.signals)
            yield Book(f"{name}: {'; '.join(sources)}", tuple(_rows(step)))


def _rows(step: type[DocumentStep]) -> Iterator[tuple[str, str, str, str]]:
    rules = step.rules if issubclass(step, RuleStep) else ()
    by_signal = {f"{step.model_fields['step'].default}_{rule.name}": rule for rule in rules}
    for field in step.signals:
        rule = by_signal.get(field.name)
        thresholds = ", ".join(f"{end} {value}" for end, value in rule.ends.items()) if rule else ""
        yield field.name, field.metadata[b"unit"].decode(), thresholds, rule.says if rule else ""
