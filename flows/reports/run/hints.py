"""Hints about a finished run: thresholds with many documents just beyond them.

A hint names a rule that dropped many documents, a slightly looser threshold, and what that threshold would have kept.
The counts come from a replay of the recorded decisions over the signals of all documents of the run, as `decide whatif`
replays them, so they are exact for this run and no estimate. There is no hint without such a count.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from decimal import Decimal
from math import ceil, floor
from typing import Literal, NamedTuple, TypeGuard

import pyarrow.compute as pc

from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.recipe.steps import thresholds_of
from gristmill.flows.reports import whatif as replaying
from gristmill.flows.reports.funnel import FunnelRow, funnel
from gristmill.flows.reports.whatif import arriving_documents, decisions_about, decisions_of, inputs_of
from gristmill.flows.stages.corpus import Corpus
from gristmill.tasks.documents.decisions import decide
from gristmill.tasks.documents.step import Bound, DocumentStep
from gristmill.tasks.engine.make import StageResult

End = Literal["min", "max"]

MAX_HINTS = 3
MAX_REPLAYS = 6  # each reads the signals of all shards
MIN_ARRIVED = 100  # documents that reached the step
MIN_DROPPED_SHARE = 0.05  # of these, dropped by the rule
MIN_RELEASED_SHARE = 0.5  # of what the rule dropped, within the looser threshold
MIN_KEPT = 20  # documents, and at least MIN_DROPPED_SHARE of those that reached the step
NEAREST, FARTHEST = Decimal("0.05"), Decimal("0.2")  # of the looser threshold, as a share of the threshold


@dataclass(frozen=True)
class Hint:
    """A rule, and what a looser threshold would have kept in the same run.

    `setting`: the recipe's key, as `decide whatif --set` takes it; `arrived`: documents that reached the step;
    `dropped`, `looser_dropped`: documents that the rule drops with `threshold` and with `looser`; `kept`: more
    documents that would pass the step and the steps that are decided with it.
    """

    step: str
    rule: str
    setting: str
    threshold: float
    looser: float
    arrived: int
    dropped: int
    looser_dropped: int
    kept: int

    @property
    def sentence(self) -> str:
        """The counts, and what they are based on."""
        return (
            f"`{self.step}.{self.rule}` dropped {self.dropped / self.arrived:.0%} of {self.arrived:,} "
            f"documents. With {self.setting} {self.looser:g} instead of {self.threshold:g}, it would drop "
            f"{self.looser_dropped / self.arrived:.0%}, and {self.kept:,} more documents would pass the "
            "step (replayed on the signals of this run)"
        )

    def command(self, recipe: str) -> str:
        """The command that shows the whole funnel with the looser threshold. `recipe`: the argument of commands."""
        return f"gristmill decide whatif {recipe} --set {self.setting}={self.looser:g}"


class _Candidate(NamedTuple):
    stage: StageResult
    row: FunnelRow
    setting: str
    threshold: float
    looser: float
    bound: Bound
    changed: Bound

    @property
    def dropped(self) -> int:
        """Documents that the rule dropped in the run."""
        return self.row.drops[self.bound.rule]


def hints(recipe: Recipe, corpus: Corpus) -> list[Hint]:
    """Up to MAX_HINTS hints about a finished corpus, the largest gain first; none where no count supports one.

    Replays at most MAX_REPLAYS thresholds, each of which reads the signals of every shard, in threads. Returns no hint
    about steps whose signals were removed from the home.
    """
    candidates = sorted(_candidates(recipe, corpus), key=lambda one: -one.dropped)[:MAX_REPLAYS]
    replayed = [_replay(corpus, one) for one in candidates]
    return sorted(filter(_is_supported, replayed), key=lambda hint: -hint.kept)[:MAX_HINTS]


def looser_threshold(threshold: float, end: End, is_whole: bool) -> float | None:
    """The roundest number between 5% and 20% beyond a threshold: below a `min` one, above a `max` one.

    `is_whole`: only integers. None where there is no such number, as for 0, or for the integer 2.
    """
    exact = abs(Decimal(repr(threshold)))
    if not exact:
        return None
    outward = 1 if (end == "max") == (threshold > 0) else -1
    near, far = (exact * (1 + outward * share) for share in (NEAREST, FARTHEST))
    place = Decimal(1).scaleb(exact.adjusted())
    for size in (place / divisor for divisor in (1, 2, 10, 20, 100)):
        if is_whole and size != size.to_integral_value():
            continue
        number = size * (floor(far / size) if outward > 0 else ceil(far / size))
        if min(near, far) <= number <= max(near, far):
            value = float(number.copy_sign(Decimal(repr(threshold))))
            return int(value) if is_whole else value
    return None


def _candidates(recipe: Recipe, corpus: Corpus) -> Iterator[_Candidate]:
    """Thresholds of rules that dropped a large share of what reached their step."""
    steps = {step.step: step for step in recipe.after if isinstance(step, DocumentStep)}
    for stage in corpus.stages:
        if not (decisions := decisions_of(stage)):
            continue
        rows = {row.step: row for row in funnel([stage])}
        for name, rules in decisions:
            step, row = steps.get(name), rows[name]
            if step is None or row.documents_in < MIN_ARRIVED:
                continue
            for bound in rules:
                if isinstance(bound, Bound) and row.drops.get(bound.rule, 0) >= MIN_DROPPED_SHARE * row.documents_in:
                    yield from _looser_candidates(recipe, step, stage, row, bound)


def _looser_candidates(
    recipe: Recipe, step: DocumentStep, stage: StageResult, row: FunnelRow, bound: Bound
) -> Iterator[_Candidate]:
    """The looser thresholds of a rule that `decide whatif` can replay."""
    ends: tuple[tuple[End, float | None], ...] = (("min", bound.low), ("max", bound.high))
    for end, threshold in ends:
        setting = f"{end}_{bound.rule}"
        if threshold is None or setting not in thresholds_of(step):
            continue
        looser = looser_threshold(threshold, end, isinstance(getattr(step, setting), int))
        if looser is None:
            continue
        try:
            replaying.changed(recipe, {f"{step.step}.{setting}": looser})
        except ValueError:  # a setting that cannot be replayed, or a value that the recipe refuses
            continue
        changed = replace(bound, low=looser) if end == "min" else replace(bound, high=looser)
        yield _Candidate(stage, row, setting, threshold, looser, bound, changed)


def _replay(corpus: Corpus, one: _Candidate) -> Hint | None:
    """What the looser threshold does to the documents; None where their signals were removed."""
    recorded = decisions_of(one.stage)
    assert recorded is not None, "a candidate is one of them"
    decisions = tuple(
        (step, tuple(one.changed if step == one.row.step and rule == one.bound else rule for rule in rules))
        for step, rules in recorded
    )
    kept, measured = inputs_of(corpus, one.stage, decisions)
    if any(stage.is_collected for stage in (kept, *measured)):
        return None

    def count(shard: int) -> tuple[int, int]:
        own = decisions_about(one.stage, decisions, corpus.sources[shard])
        table = arriving_documents(kept, measured, shard, own)
        drops = dict(decide(table, own))
        by_rule = pc.sum(pc.equal(drops[one.row.step]["rule"], one.bound.rule)).as_py() or 0
        return by_rule, len(table) - sum(map(len, drops.values()))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        counts = list(pool.map(count, range(len(corpus.sources))))
    dropped, passed = (sum(each) for each in zip(*counts, strict=True))
    setting = f"{one.row.step}.{one.setting}"
    names = one.row.step, one.bound.rule, setting, one.threshold, one.looser
    more = passed - funnel([one.stage])[-1].documents_out
    return Hint(*names, one.row.documents_in, one.dropped, dropped, more)


def _is_supported(hint: Hint | None) -> TypeGuard[Hint]:
    if hint is None:
        return False
    released = hint.dropped - hint.looser_dropped
    least = max(MIN_KEPT, MIN_DROPPED_SHARE * hint.arrived)
    return released >= MIN_RELEASED_SHARE * hint.dropped and hint.kept >= least
