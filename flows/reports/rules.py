"""The rules there are: what each document step measures, where the definition comes from, and its thresholds."""

from collections.abc import Iterator
from dataclasses import dataclass

from flows import own_steps
from flows.steps import BUILT_IN, document_steps
from tasks.documents.step import DocumentStep
from tasks.rules.rule import RuleStep


@dataclass(frozen=True)
class Book:
    """A step: (signal, unit, thresholds, what it counts) for each of its signals."""

    title: str
    rows: tuple[tuple[str, str, str, str], ...]


def books(wanted: str) -> Iterator[Book]:
    """The step that is called `wanted`, or is at the address `module:Class`, or all.

    Raises LookupError, naming those that there are, and StepError for a step of a user's that cannot be used.
    """
    steps = document_steps()
    if ":" in wanted:
        kind = own_steps.find(wanted, BUILT_IN)
        assert kind is not None, "an address finds a class, or raises StepError"
        steps = {wanted: kind}
    if wanted and wanted not in steps:
        raise LookupError(f"no document step is called {wanted}; there are {', '.join(steps)}")
    for name, step in steps.items():
        if wanted in ("", name):
            sources = dict.fromkeys(signal.source for signal in step.signals)
            title = step.model_fields["step"].default
            yield Book(f"{title}: {'; '.join(sources)}", tuple(_rows(step)))


def _rows(step: type[DocumentStep]) -> Iterator[tuple[str, str, str, str]]:
    rules = step.rules if issubclass(step, RuleStep) else ()
    by_signal = {f"{step.model_fields['step'].default}_{rule.name}": rule for rule in rules}
    for signal in step.signals:
        rule = by_signal.get(signal.name)
        thresholds = ", ".join(f"{end} {value}" for end, value in rule.ends.items()) if rule else ""
        yield signal.name, signal.unit, thresholds, rule.description if rule else ""
