"""The rules of document steps: signals, thresholds, settings, and what a step only measures."""

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gristmill.flows.recipe import own_steps
from gristmill.flows.recipe.steps import BUILT_IN, document_steps, thresholds_of
from gristmill.tasks.documents.step import Bound, Clause, DocumentStep, EditStep, Member, StepError

Thresholded = Bound | Member
End = Literal["low", "high", "allowed", "excluded"]


@dataclass(frozen=True)
class Threshold:
    """An end of a decision: the lowest or highest value that is kept, or the allowed or excluded values; `value`: the
    default, None for no limit; `setting`: the recipe key that sets it, None if the step fixes it."""

    end: End
    value: float | tuple[str, ...] | None
    setting: str | None


@dataclass(frozen=True)
class Row:
    """A signal and the rule that uses it, None if no rule does. `groups`: settings, with their defaults, that apply to
    documents of some languages, or of other groups that the rule distinguishes."""

    rule: str | None
    signal: str
    unit: str
    source: str
    description: str
    thresholds: tuple[Threshold, ...] = ()
    groups: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class CutRow:
    """A rule that cuts parts out of texts, and the defaults of its settings."""

    rule: str
    settings: dict[str, Any]
    description: str


@dataclass(frozen=True)
class Book:
    """A step: the rules that cut parts out of texts, and the rules that drop documents, each in the order in which they
    are checked, followed by signals that no rule uses."""

    step: str
    cuts: tuple[CutRow, ...]
    rows: tuple[Row, ...]


def books(wanted: str) -> Iterator[Book]:
    """The step named `wanted`, or at the address `module:Class`; all steps if it is empty.

    Raises LookupError, which lists the steps, and StepError for a custom step that cannot be used.
    """
    steps = document_steps()
    if ":" in wanted:
        kind = own_steps.find(wanted, BUILT_IN)
        assert kind is not None, "an address finds a class, or raises StepError"
        if not issubclass(kind, DocumentStep):
            raise LookupError(f"{wanted} is a learned filter, whose only rules are its limits; give a document step")
        steps = {wanted: kind}
    if wanted and wanted not in steps:
        raise LookupError(f"unknown document step {wanted}; the steps are {', '.join(steps)}")
    for name, step in steps.items():
        if wanted in ("", name):
            yield Book(step.model_fields["step"].default, tuple(_cuts(step)), tuple(_rows(step)))


def _cuts(kind: type[DocumentStep]) -> Iterator[CutRow]:
    for cut in kind.cuts if issubclass(kind, EditStep) else ():
        settings = {name: kind.model_fields[name].default for name in cut.settings}
        yield CutRow(cut.rule, settings, cut.description)


def _rows(kind: type[DocumentStep]) -> Iterator[Row]:
    step = kind.model_construct(step=kind.model_fields["step"].default)
    decisions = _decisions(step)
    settings, of_groups = _settings(step, decisions)
    own = {signal.name: signal for signal in kind.signals}
    # rules may use the signals of another step, and may use a signal twice
    others = {signal.name: signal for other in document_steps().values() for signal in other.signals}
    decided = {decision.signal for decision in decisions}
    for decision in decisions:
        signal = own.get(decision.signal) or others[decision.signal]
        thresholds = tuple(
            Threshold(end, _shown(step, setting, value), setting)
            for end, value in _ends(decision).items()
            if (setting := settings.get((decision.rule, end))) or value is not None
        )
        groups = tuple((name, getattr(step, name)) for name in of_groups[decision.rule])
        yield Row(decision.rule, signal.name, signal.unit, signal.source, signal.description, thresholds, groups)
    for signal in own.values():
        if signal.name in decided:
            continue
        yield Row(None, signal.name, signal.unit, signal.source, signal.description)


def _settings(
    step: DocumentStep, decisions: Sequence[Thresholded]
) -> tuple[Mapping[tuple[str, End], str], Mapping[str, list[str]]]:
    """The setting of each end of each rule, and the settings of each rule that apply to groups of documents. A setting
    belongs to a rule if changing it changes the rule."""
    setting_of_end: dict[tuple[str, End], str] = {}
    of_groups: dict[str, list[str]] = {decision.rule: [] for decision in decisions}
    for name in thresholds_of(step) if decisions else ():
        changed = _decisions(step.model_copy(update={name: _another(getattr(step, name))}))
        for old, new in zip(decisions, changed, strict=True):
            ends = _ends(new)
            setting_of_end |= {(old.rule, end): name for end, value in _ends(old).items() if ends[end] != value}
            if isinstance(old, Bound) and isinstance(new, Bound) and old.languages != new.languages:
                of_groups[old.rule].append(name)
    return setting_of_end, of_groups


def _shown(step: DocumentStep, setting: str | None, value: Any) -> Any:
    """An end of a rule as a recipe writes it: a switch is true or false, whatever limit it represents."""
    own = getattr(step, setting) if setting else value
    return own if isinstance(own, bool) else value


def _another(value: Any) -> Any:
    """A different value of the same type; the same value if it is not a threshold, such as a mapping of thresholds."""
    if isinstance(value, bool):
        return not value
    if value is None or isinstance(value, (int, float)):
        return (value or 0) + 1
    return (*value, "another") if isinstance(value, tuple) else value


def _ends(decision: Thresholded) -> dict[End, Any]:
    if isinstance(decision, Member):
        return {"allowed": decision.allowed, "excluded": decision.excluded}
    return {"low": decision.low, "high": decision.high}


def _decisions(step: DocumentStep) -> Sequence[Thresholded]:
    try:
        return [each for each in step.decisions() if not isinstance(each, Clause)]  # an expression has no signal
    except AttributeError as error:
        raise StepError(f"the decisions of {step.step} read a setting that has no default ({error})") from error


ORDER = (
    "The rules of a step are checked in numerical order. The ledger and the funnel record the first rule that a "
    "document fails as the reason for its drop. The recipe's keys are shown with their defaults; null means no limit."
)
_FIXED = {"low": "at least", "high": "at most", "allowed": "must be", "excluded": "must not be"}


def lines(books: Iterable[Book], width: int) -> Iterator[str]:
    """Text about each step: its cuts, its rules, and signals without rules, in lines of at most `width` characters."""
    yield _wrapped(ORDER, width)
    for book in books:
        yield f"\n{book.step}"
        yield from (_wrapped(line, width) for line in _book_lines(book))


def _book_lines(book: Book) -> Iterator[str]:
    sources = {row.source for row in book.rows}
    if len(sources) <= 1:
        yield f"  {''.join(sources)}"
    if book.cuts:
        yield "  cuts from texts:"
    for number, cut in enumerate(book.cuts, 1):
        yield _head(f"{number:2} {cut.rule}", [f"{name} {_written(value)}" for name, value in cut.settings.items()])
        yield f"     {cut.description}"
    if book.cuts:
        yield "  drops documents:"
    for number, row in enumerate(book.rows, 1):
        yield from _row(number, row, f"; {row.source}" if len(sources) > 1 else "")


def _row(number: int, row: Row, source: str) -> Iterator[str]:
    if row.rule:
        of_groups = [f"{name} {_written(value)} (for some languages)" for name, value in row.groups]
        # an end that a recipe can set, or a fixed limit of the step
        ends = [f"{each.setting or _FIXED[each.end]} {_written(each.value)}" for each in row.thresholds]
        yield _head(f"{number:2} {row.rule}", [*ends, *of_groups])
        yield f"     {row.description}"
        yield f"     {row.signal} ({row.unit}){source}"
    else:
        yield f"   - {row.signal} ({row.unit}), measured only{source}"
        yield f"     {row.description}"


def _head(name: str, settings: list[str]) -> str:
    return f"  {name}: {', '.join(settings)}" if settings else f"  {name}"


def _written(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) if any(value) else "empty"
    return json.dumps(value)


def _wrapped(line: str, width: int) -> str:
    text = line.lstrip(" ")
    indent, further = (" " * (len(line) - len(text)), " " * 5) if line != text else ("", "")
    return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=further, break_on_hyphens=False)
