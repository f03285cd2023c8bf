"""Thresholds for languages, proposed from a finished run's stored signals by matching a reference language's quantiles.

Thresholds that were found on English drop too much or too little elsewhere: words are longer, lines shorter. Proposed
is the value that drops the same share of a language's documents, to be looked at, not believed. It is one of the ways
that FineWeb-2 compares of fitting filters to a language (Penedo et al. 2025, arXiv 2506.20920): the quantile of the
reference language's threshold is looked up in the other language's own distribution.
"""

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from operator import methodcaller
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.flows.curation import Passed, curate
from gristmill.flows.machine.context import job_options
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe, load
from gristmill.flows.reports.recorded import open_run
from gristmill.flows.reports.tables import Table, listed
from gristmill.tasks.documents.decisions import decide, wanted
from gristmill.tasks.documents.selection import gather
from gristmill.tasks.documents.step import LANGUAGE, UNKNOWN, Bound, DocumentStep
from gristmill.tasks.engine import options

End = Literal["low", "high"]


class Matched(NamedTuple):
    """A threshold, and the share of the documents that it drops, in [0, 1]."""

    threshold: float
    drops: float


def share(values: np.ndarray, threshold: float, end: End) -> float:
    """The share of the values that a threshold drops: those below a `low` one, above a `high` one."""
    lost = values < threshold if end == "low" else values > threshold
    return float(np.count_nonzero(lost) / len(values))


def match(values: np.ndarray, wanted: float, end: End) -> Matched:
    """The threshold on `values`, of at least one, that drops a share as near to `wanted` as ties allow.

    Of two shares that are as near, the smaller. Among the thresholds that drop the same documents it is the one with
    the fewest digits; of integers, an integer. Holds the values sorted, and one entry for each different one.
    """
    # a high threshold is a low one on the mirrored values
    sign = 1 if end == "low" else -1
    different, counts = np.unique(sign * values, return_counts=True)
    dropped = np.append(0, np.cumsum(counts)[:-1])
    # in documents, of which halves are exact, and rounded: a share is not
    at = int(np.argmin(np.abs(dropped - round(wanted * len(values), 6))))
    inner = float(different[at])
    outer = float(different[at - 1]) if at else -math.inf
    return Matched(
        _shortest(inner, outer, sign, np.issubdtype(values.dtype, np.integer)), float(dropped[at] / len(values))
    )


def _shortest(inner: float, outer: float, sign: int, whole: bool) -> float:
    """The number of the fewest significant digits in (outer, inner], times the sign: `inner` rounded down as far as it
    stays above `outer`."""
    number = Decimal(repr(inner * sign))
    direction = ROUND_FLOOR if sign > 0 else ROUND_CEILING
    last = number.as_tuple().exponent
    assert isinstance(last, int), "the number is finite"
    for place in range(number.adjusted() + 1, last - 1, -1):
        if whole and place < 0:
            break
        rounded = number.quantize(Decimal(1).scaleb(place), rounding=direction)
        if outer < float(rounded) * sign <= inner and (math.isfinite(outer) or place < number.adjusted()):
            return float(rounded) + 0.0
    return inner * sign


_COLUMNS = 4  # signals of all documents that are held at once
_ENDS: tuple[tuple[str, End], ...] = (("min_", "low"), ("max_", "high"))


@dataclass(frozen=True)
class Proposal:
    """A threshold of a step for a language. Shares of documents that it drops, in [0, 1]: `reference`, of the reference
    language by its own threshold; `now`, of this one by the recipe's; `then`, by the one proposed."""

    step: str
    setting: str
    language: str
    threshold: float
    proposed: float
    reference: float
    now: float
    then: float


@dataclass(frozen=True)
class Proposals:
    """`idle`: settings whose threshold drops nothing of the reference, from which nothing follows for others;
    `few`: languages with too few documents, and how many they have; `unmatched`: other settings without a proposal, or
    steps, each with the reason; `without`: steps that have no thresholds for languages."""

    rows: list[Proposal]
    idle: list[str]
    few: dict[str, int]
    unmatched: list[str]
    without: list[str]

    @property
    def table(self) -> Table:
        """A row for each proposal."""
        columns = ("setting", "language", "#threshold|g", "#drops of the reference|.2%", "#drops here|.2%")
        rows = [
            (f"{row.step}.{row.setting}", row.language, row.threshold, row.reference, row.now, row.proposed, row.then)
            for row in self.rows
        ]
        return Table((*columns, "#proposed|g", "#drops then|.2%"), rows)

    def remarks(self, least: int) -> list[str]:
        """What the proposals do not cover; `least`: documents that a language needs."""
        idle, without = (
            f"No proposal, because they {why}: {', '.join(names)}." if names else ""
            for why, names in (
                ("drop nothing of the reference", self.idle),
                ("have no thresholds for languages", self.without),
            )
        )
        few = f"Omitted, with fewer than {least:,} documents: {listed(self.few)}." if self.few else ""
        return [*filter(None, (few, idle, without)), *(f"No proposal: {reason}." for reason in self.unmatched)]

    def recipe_part(self) -> dict[str, list[dict[str, Any]]]:
        """The `steps` of a recipe, each with only its `languages`."""
        steps: dict[str, dict[str, dict[str, float]]] = {}
        for row in self.rows:
            steps.setdefault(row.step, {}).setdefault(row.language, {})[row.setting] = row.proposed
        return {"steps": [{"step": step, "languages": languages} for step, languages in steps.items()]}


class _TooFewError(LookupError):
    """The reference language has too few documents."""


@dataclass(frozen=True)
class _Threshold:
    step: str
    setting: str
    bound: Bound
    end: End

    def of(self, language: str) -> float | None:
        low, high = self.bound.languages.get(language, (self.bound.low, self.bound.high))
        return low if self.end == "low" else high


def propose(recipe: Any, reference: str, least: int = 1000, settings: MachineSettings | None = None) -> Proposals:
    """Thresholds for all languages of which at least `least` documents were measured, by the column `language`.

    Documents of whose language the step `language` is not sure (its bounds) are left out. Holds four signals of all
    documents at once. Raises NotFinishedError where the recipe was not run; LookupError for a reference that is not
    there, or has too few documents.
    """
    recipe = load(recipe)
    settings = settings or MachineSettings()
    options.configure(job_options(settings))
    found = Proposals([], [], {}, [], [])
    context, recipe = open_run(settings, recipe)
    for passed in curate(context, recipe):
        thresholds = _thresholds(passed.steps)
        by_language = {threshold.step for threshold in thresholds}
        found.without.extend(step.step for step in passed.steps if step.step not in by_language)
        if thresholds:
            try:
                _propose(found, passed, recipe, thresholds, reference, least)
            except _TooFewError as error:
                steps = ", ".join(dict.fromkeys(threshold.step for threshold in thresholds))
                found.unmatched.append(f"{steps}: {error}")
    if not found.rows and not found.idle:
        nothing = f"no step of the recipe {recipe.name} has thresholds for languages"
        raise LookupError("; ".join(found.unmatched) or nothing)
    return found


def _thresholds(steps: tuple) -> list[_Threshold]:
    """Those that the steps' setting `languages` can hold for each language."""
    return [
        _Threshold(step.step, f"{prefix}{bound.rule}", bound, end)
        for step in steps
        if isinstance(step, DocumentStep) and "languages" in type(step).model_fields
        for bound in step.decisions()
        if isinstance(bound, Bound)
        for prefix, end in _ENDS
        if f"{prefix}{bound.rule}" in type(step).model_fields
    ]


def _propose(
    found: Proposals, passed: Passed, recipe: Recipe, thresholds: list[_Threshold], reference: str, least: int
) -> None:
    languages = _languages(passed, recipe)
    names, counts = np.unique(languages[languages != ""], return_counts=True)
    there = dict(sorted(zip(names.tolist(), counts.tolist(), strict=True), key=lambda item: -item[1]))
    if there.get(reference, 0) < least:
        known = listed(there)
        raise _TooFewError(
            f"{there.get(reference, 0)} documents in {reference}, but {least} are needed; the languages are {known}"
        )
    found.few.update({name: count for name, count in there.items() if count < least})
    places = {name: np.flatnonzero(languages == name) for name, count in there.items() if count >= least}
    signals = list(dict.fromkeys(threshold.bound.signal for threshold in thresholds))
    for start in range(0, len(signals), _COLUMNS):
        some = signals[start : start + _COLUMNS]
        columns = _gathered(passed, recipe, some, methodcaller("select", some))
        for threshold in thresholds:
            if threshold.bound.signal in columns.column_names:
                _match(found, threshold, columns[threshold.bound.signal].to_numpy(), places, reference)


def _match(found: Proposals, threshold: _Threshold, values: np.ndarray, places: dict, reference: str) -> None:
    own = threshold.of(reference)
    if own is None:
        found.unmatched.append(f"{threshold.step}.{threshold.setting}: null for {reference}, so it drops nothing")
        return
    drops = share(values[places[reference]], own, threshold.end)
    if not drops:
        found.idle.append(f"{threshold.step}.{threshold.setting}")
        return
    for language, at in places.items():
        if language != reference:
            here, now = values[at], threshold.of(language)
            if (here == here[0]).all():
                found.unmatched.append(
                    f"{threshold.step}.{threshold.setting}, {language}: all {len(here):,} documents have the value "
                    f"{here[0]:g}, so no threshold drops a share of them"
                )
                continue
            matched = match(here, drops, threshold.end)
            proposed = int(matched.threshold) if np.issubdtype(values.dtype, np.integer) else matched.threshold
            lost = 0.0 if now is None else share(here, now, threshold.end)
            names = threshold.step, threshold.setting, language
            found.rows.append(Proposal(*names, own, proposed, drops, lost, matched.drops))


def _languages(passed: Passed, recipe: Recipe) -> np.ndarray:
    """The language of each document that was measured; empty where it is unknown, or `language` is not sure of it."""
    steps = [step for step in recipe.after if step.step == LANGUAGE]
    sure = [(step.step, [rule for rule in step.decisions() if isinstance(rule, Bound)]) for step in steps]

    def named(table: pa.Table) -> pa.Table:
        language = pc.if_else(pc.equal(table[LANGUAGE], UNKNOWN), "", table[LANGUAGE])
        for _, unsure in decide(table, sure):
            language = pc.if_else(pc.is_in(table["id"], unsure["id"].combine_chunks()), "", language)
        return pa.table({LANGUAGE: language})

    return _gathered(passed, recipe, [LANGUAGE, *wanted(sure)], named)[LANGUAGE].to_numpy().astype(str)


def _gathered(passed: Passed, recipe: Recipe, columns: list[str], of: Callable[[pa.Table], pa.Table]) -> pa.Table:
    """What `of` makes of the columns of each shard, in the order of the shards; one shard a core is held whole. Without
    the sources that one of the steps, or `language`, does not apply to."""

    places = passed.arriving.places
    exempt = {name for step in recipe.after if step.base_name == LANGUAGE for name in step.exempt(places.sources)}
    exempt |= {name for step in passed.steps for name in step.exempt(places.sources)}

    def read(shard: int) -> pa.Table:
        return of(gather(places.signals[shard], places.kept[shard], columns))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return pa.concat_tables(pool.map(read, places.shards(without=tuple(exempt))))
