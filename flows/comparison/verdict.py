"""Verdicts, and their sentences: never a number without its interval."""

from dataclasses import dataclass
from typing import Literal

from flows.comparison.worth import Worth

Outcome = Literal["better", "worse", "cannot tell", "withheld", "identical", "screened out"]


@dataclass(frozen=True)
class AtLearningRate:
    """The effect at one learning rate, with a plain t interval: it is not adjusted for stopping."""

    learning_rate: float
    effect: float
    low: float
    high: float


@dataclass(frozen=True)
class Verdict:
    """What a decision says of one candidate.

    effect, low, high: bits per byte of the base minus the candidate's, so above 0 the candidate is better; the
    interval is adjusted for stopping, the effect is median-unbiased. Both are None for a candidate that was screened
    out, whose `rank` among `candidates` is all that one run each says. look: the look (from 1) at which the boundary
    was crossed, or None. pairs_needed: for "cannot tell", the pairs of a new decision that would see an effect as large
    as this one with probability .8; None if no reasonable number would do, and `limited_by_documents` if more
    documents are needed. first_pair: the number of its first pair.
    """

    candidate: str
    base: str
    outcome: Outcome
    level: float
    pairs: int
    learning_rates: tuple[float, ...]
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    look: int | None = None
    by_learning_rate: tuple[AtLearningRate, ...] = ()
    pairs_needed: int | None = None
    first_pair: int = 1
    limited_by_documents: bool = False
    rank: int | None = None
    candidates: int = 1
    worth: Worth | None = None

    def sentence(self) -> str:
        if self.effect is None or self.low is None or self.high is None:
            rates = _counted(len(self.learning_rates), "learning rate")
            return (
                f"{self.candidate} was screened out: one run of each candidate at {rates} ranks it {self.rank} of"
                f" {self.candidates}; there is no verdict"
            )
        if self.outcome == "identical":
            return (
                f"{self.candidate} does not differ from {self.base}: all losses are the same"
                f" ({_counted(self.pairs, 'pair')}, {_counted(len(self.learning_rates), 'learning rate')})"
            )
        if self.outcome in ("better", "worse"):
            sign = 1 if self.outcome == "better" else -1
            low, high = sorted((sign * self.low, sign * self.high))
            value, low_, high_ = _rounded(sign * self.effect, low, high)
            difference = f"{value} bits per byte ({self._interval(low_, high_)})"
            said = f"{self.candidate} is {self.outcome} than {self.base} by {difference}"
            return said if self.worth is None else f"{said}, {self.worth.sentence(self.level)}"
        value, low_, high_ = _rounded(self.effect, self.low, self.high)
        if self.outcome == "withheld":
            each = ", ".join(
                f"{_rounded(one.effect, one.low, one.high)[0]} at {one.learning_rate:g}"
                for one in self.by_learning_rate
            )
            return (
                f"withheld: {self.candidate} and {self.base} differ by {value} bits per byte"
                f" ({self._interval(low_, high_)}), but the learning rates disagree on which is better ({each})"
            )
        return (
            f"cannot tell whether {self.candidate} is better than {self.base}: the difference is {value} bits per byte"
            f" ({self._interval(low_, high_)}); {self._remedy()}"
        )

    def _interval(self, low: str, high: str) -> str:
        counts = f"{_counted(self.pairs, 'pair')}, {_counted(len(self.learning_rates), 'learning rate')}"
        return f"{self.level:.0%} interval {low} to {high}, {counts}"

    def _remedy(self) -> str:
        if self.pairs_needed is not None:
            fresh = f"--pairs {self.pairs_needed} --first-pair {self.first_pair + self.pairs}"
            return f"a new decision with {self.pairs_needed} pairs would ({fresh})"
        if self.limited_by_documents:
            return "no number of pairs would, the evaluation documents are too few"
        return "no reasonable number of pairs would see a difference as small as this one"


def _counted(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _rounded(effect: float, low: float, high: float) -> tuple[str, str, str]:
    """With two digits of the interval's half width, four decimals at least."""
    width = (high - low) / 2
    decimals = 4
    while decimals < 10 and width * 10**decimals < 10:
        decimals += 1
    return f"{effect:.{decimals}f}", f"{low:.{decimals}f}", f"{high:.{decimals}f}"
