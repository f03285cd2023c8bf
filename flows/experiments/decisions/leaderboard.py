"""The decisions of a home side by side: which change gained most, and which gained most for what it costs."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gristmill.flows.stats.verdict import Conditions
from gristmill.storage import checked_json, files

VERDICTS = ("better", "worse")  # outcomes that are verdicts


@dataclass(frozen=True)
class LeaderboardRow:
    """A candidate of a decision. `effect`, `low`, `high`: bits per byte of the base minus the candidate's, None without
    runs; `worth`: share of the training tokens; `documents`, `cpu_hours`: what the candidate has, or its stages take,
    more than the base's; `judge`, `parameters`, `tokens`: what the verdict is by, `file`: where all of it is."""

    base: str
    candidate: str
    outcome: str
    effect: float | None
    low: float | None
    high: float | None
    worth: float | None
    documents: int
    cpu_hours: float | None
    judge: str
    parameters: int
    tokens: int
    file: str

    @property
    def order(self) -> tuple[bool, float]:
        """Verdicts first, the largest gain first."""
        return self.outcome not in VERDICTS, -(self.effect or 0.0)


def leaderboard(home: str, base: str | None = None, by_cost: bool = False) -> list[LeaderboardRow]:
    """The candidates of all decisions, or of those with one base. Verdicts come first, by effect; or with `by_cost` by
    the CPU time that the candidate's stages take more than the base's, the least first, unknown times last.

    Decisions of versions that did not record what judged are left out: they must be asked again. Raises
    DamagedFileError for a decision that is not what was written.
    """
    found = [one for one in _all(home) if base is None or one.base == base]
    if by_cost:
        return sorted(found, key=lambda one: (one.cpu_hours is None, one.cpu_hours or 0.0, one.order))
    return sorted(found, key=lambda one: (one.order, one.base, one.candidate))


def _all(home: str) -> Iterator[LeaderboardRow]:
    folder = files.join(home, "decisions")
    for name in files.names(folder):
        if not name.endswith(".json"):
            continue
        path = files.join(folder, name)
        decision = checked_json.read(path)
        if given := decision.get("conditions"):
            yield from _rows(decision, Conditions(**given), path)


def _rows(decision: dict[str, Any], conditions: Conditions, path: str) -> Iterator[LeaderboardRow]:
    base = decision["arms"][decision["base"]]
    for verdict in decision["verdicts"]:
        arm = decision["arms"][verdict["candidate"]]
        times = arm["cpu_seconds"], base["cpu_seconds"]
        known = None not in times
        yield LeaderboardRow(
            base=decision["base"],
            candidate=verdict["candidate"],
            outcome=verdict["outcome"],
            effect=verdict["effect"],
            low=verdict["low"],
            high=verdict["high"],
            worth=(verdict["worth"] or {}).get("share"),
            documents=arm["documents"] - base["documents"],
            cpu_hours=(times[0] - times[1]) / 3600 if known else None,
            judge=conditions.judge,
            parameters=conditions.parameters,
            tokens=conditions.tokens,
            file=path,
        )
