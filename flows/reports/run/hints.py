"""Hints about a finished run: thresholds with many documents just beyond them.

A hint names a rule that dropped many documents, a slightly looser threshold, and what that threshold would have kept.
The counts come from `whatif`, which replays the decisions over the signals of all documents of the run, so they are
exact for this run and no estimate. There is no hint without such a count.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from math import ceil, floor
from typing import Literal, NamedTuple

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.recipe.steps import thresholds_of
from gristmill.flows.reports import whatif as replaying
from gristmill.flows.reports.funnel import FunnelRow
from gristmill.flows.stages.corpus import NothingLeftError
from gristmill.tasks.documents.step import Bound, DocumentStep
from gristmill.tasks.engine.make import NotFinishedError

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
            f"`{self.step}.{self.rule}` dropped {self.dropped / self.arrived:.0%} of {self.arrived:,} documents; with "
            f"{self.setting} {self.looser:g} instead of {self.threshold:g} it would drop "
            f"{self.looser_dropped / self.arrived:.0%}, and {self.kept:,} more documents would pass (replayed on the "
            "signals of this run)"
        )

    def command(self, recipe: str) -> str:
        """The command that shows the whole funnel with the looser threshold. `recipe`: the argument of commands."""
        return f"gristmill decide whatif {recipe} --set {self.setting}={self.looser:g}"


class _Candidate(NamedTuple):
    row: FunnelRow
    rule: str
    setting: str
    threshold: float
    looser: float


def hints(recipe: Recipe, settings: MachineSettings, steps: Iterable[FunnelRow]) -> list[Hint]:
    """Up to MAX_HINTS hints about a finished run, the largest gain first; none where no count supports one.

    `steps`: the funnel of the run. Replays at most MAX_REPLAYS thresholds, each of which reads the signals of every
    shard. Returns no hint about steps whose signals are not in the home any more.
    """
    candidates = sorted(_candidates(recipe, steps), key=lambda one: -one.row.drops[one.rule])[:MAX_REPLAYS]
    supported = [hint for one in candidates if (hint := _replayed(recipe, settings, one)) is not None]
    return sorted(supported, key=lambda hint: -hint.kept)[:MAX_HINTS]


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


def _candidates(recipe: Recipe, steps: Iterable[FunnelRow]) -> Iterator[_Candidate]:
    """Thresholds of rules that dropped a large share of what reached their step."""
    rows = {row.step: row for row in steps if row.drops}
    for step in recipe.after:
        row = rows.get(step.step)
        if not isinstance(step, DocumentStep) or row is None or row.documents_in < MIN_ARRIVED:
            continue
        for bound in step.decisions():
            if not isinstance(bound, Bound) or row.drops.get(bound.rule, 0) < MIN_DROPPED_SHARE * row.documents_in:
                continue
            ends: tuple[tuple[End, float | None], ...] = (("min", bound.low), ("max", bound.high))
            for end, threshold in ends:
                setting = f"{end}_{bound.rule}"
                if threshold is None or setting not in thresholds_of(step):
                    continue
                looser = looser_threshold(threshold, end, isinstance(getattr(step, setting), int))
                if looser is not None:
                    yield _Candidate(row, bound.rule, f"{step.step}.{setting}", threshold, looser)


def _replayed(recipe: Recipe, settings: MachineSettings, one: _Candidate) -> Hint | None:
    """The hint, if the run's own signals support it."""
    try:
        replaying.changed(recipe, {one.setting: one.looser})
    except ValueError:  # a setting that cannot be replayed, or a value that the recipe refuses
        return None
    with suppress(NotFinishedError, NothingLeftError):  # signals that were removed to free the disk
        replay = replaying.whatif(recipe, {one.setting: one.looser}, settings)
        compared = [step for step in replaying.funnel(replay) if step.position == "replayed"]
        last = compared[-1]
        assert last.recorded is not None and last.replayed is not None, "replayed steps have both counts"
        kept = last.replayed.documents_out - last.recorded.documents_out
        [step] = [step for step in compared if step.step == one.row.step]
        dropped, looser_dropped = step.rules[one.rule]
        if step.recorded != one.row:  # the home has a newer run of the recipe, which was replayed
            return None
        names = one.row.step, one.rule, one.setting, one.threshold, one.looser
        hint = Hint(*names, one.row.documents_in, dropped, looser_dropped, kept)
        return hint if _is_supported(hint) else None
    return None


def _is_supported(hint: Hint) -> bool:
    released = hint.dropped - hint.looser_dropped
    least = max(MIN_KEPT, MIN_DROPPED_SHARE * hint.arrived)
    return released >= MIN_RELEASED_SHARE * hint.dropped and hint.kept >= least
