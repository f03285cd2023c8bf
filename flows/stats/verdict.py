"""Verdicts and their sentences, with an interval for every number, and the worth of an effect in training tokens.

Near its number of tokens T the base's loss falls by a slope for each factor e of tokens, which runs at T/2 and at T
measure. An effect is then worth a factor exp(effect / slope) of tokens. The interval of the ratio follows from the
intervals of both by the method of variance estimates recovery (Donner and Zou 2012, Closed-form confidence intervals
for functions of the normal mean and standard deviation), which keeps asymmetric intervals.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import stdtrit


@dataclass(frozen=True)
class Worth:
    """Shares of the base's training tokens: at .11 the base needs 11% more for the same loss, at -.11 11% fewer.

    None, with a reason, if the learning curve does not identify the worth.
    """

    share: float | None
    low: float | None
    high: float | None
    reason: str = ""

    def sentence(self, level: float) -> str:
        if self.share is None or self.low is None or self.high is None:
            return f"its worth in training tokens is unknown: {self.reason}"
        gained = self.share >= 0
        low, high = (self.low, self.high) if gained else (-self.high, -self.low)
        interval = f"{level:.0%} interval {_percent(low)} to {_percent(high)}"
        if gained and self.share > 1:
            return f"worth more than twice the training tokens ({interval} more)"
        if not gained and self.share < -0.5:
            return f"costing more than half of the training tokens ({interval})"
        return f"{'worth' if gained else 'costing'} {abs(self.share):.0%} of the training tokens ({interval})"


def _percent(share: float) -> str:
    return "over 1000%" if share > 10 else f"{share:.0%}"


def worth(effect: tuple[float, float, float], half: np.ndarray, full: np.ndarray, level: float) -> Worth:
    """Worth of an effect (low, effect, high), in bits per byte.

    half, full: the base's bits per byte, float64 (pairs,), at half and at all tokens, pair by pair.
    """
    slopes = (half - full) / np.log(2)
    if len(slopes) < 2:
        return Worth(None, None, None, f"the base has {len(slopes)} pairs at half of the tokens, but 2 are needed")
    slope = float(slopes.mean())
    reach = float(stdtrit(len(slopes) - 1, (1 + level) / 2) * slopes.std(ddof=1) / np.sqrt(len(slopes)))
    if slope - reach <= 0:
        gap, noise = slope * np.log(2), reach * np.log(2)
        return Worth(
            None,
            None,
            None,
            f"from half to all tokens, the base gains {gap:.4f} bits per byte, plus or minus {noise:.4f}",
        )
    low, middle, high = ratio(effect, (slope - reach, slope, slope + reach))
    with np.errstate(over="ignore"):
        return Worth(float(np.expm1(middle)), float(np.expm1(low)), float(np.expm1(high)))


def ratio(above: tuple[float, float, float], below: tuple[float, float, float]) -> tuple[float, float, float]:
    """Interval (low, estimate, high) of a ratio of two independent estimates; the denominator's must be above 0."""
    (l1, a, u1), (l2, b, u2) = above, below

    def end(of: float, denominator: float, sign: int) -> float:
        product = a * b
        root = np.sqrt(max(product**2 - of * denominator * (2 * a - of) * (2 * b - denominator), 0.0))
        return float((product + sign * root) / (denominator * (2 * b - denominator)))

    return end(l1, u2, -1), a / b, end(u1, l2, 1)


Outcome = Literal["better", "worse", "inconclusive", "withheld", "identical", "screened out"]


@dataclass(frozen=True)
class AtLearningRate:
    """The effect at one learning rate, with a plain t interval: it is not adjusted for stopping."""

    learning_rate: float
    effect: float
    low: float
    high: float


@dataclass(frozen=True)
class Conditions:
    """The conditions that a verdict applies to. judge: evaluation documents, such as "100 documents of 61 hosts of
    `clean`"; parameters and trained tokens of the proxy; resampled: whether pairs read halves of the training hosts. If
    not, the verdict applies only to these training documents, not to others that the same recipes would produce. costs:
    differences between the arms' costs, such as "arms differ in cost: ...", or empty."""

    judge: str
    parameters: int
    tokens: int
    resampled: bool
    costs: str = ""

    def __str__(self) -> str:
        return f"judged by {self.judge}, {_amount(self.parameters)} parameters, {_amount(self.tokens)} tokens"


def _amount(count: int) -> str:
    """Format as 0.3M, 15M or 1.3B; below 100,000 in full."""
    for unit, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if count >= unit or (letter == "M" and count >= 1e5):
            return f"{count / unit:.1f}{letter}" if count < 10 * unit else f"{count / unit:.0f}{letter}"
    return f"{count:,}"


# With fewer hosts of equal weight, the sentence warns that they are few.
FEW_HOSTS = 20


@dataclass(frozen=True)
class Verdict:
    """The result of a decision for one candidate.

    effect, low, high: bits per byte of the base minus the candidate's, so above 0 the candidate is better; the
    interval is adjusted for stopping, the effect is median-unbiased. All are None for a candidate that was screened
    out, which has only its `rank` among `candidates`, from one run each. look: the look (from 1) at which the boundary
    was crossed, or None. pairs_needed: for "inconclusive", the pairs of a new decision that would detect an effect of
    this size with probability .8; None if no reasonable number would, with `limited_by_documents` if more documents are
    needed, or if the probability of a verdict is below a half given the noise of the measured effect (`may_be_noise`;
    `sequential.chance_to_tell`). chance: the probability of a verdict that ended the decision before its `most_pairs`,
    or None. first_pair: the number of its first pair. hosts: the effective number of hosts of the evaluation documents,
    or of `host_unit` instead of hosts; one_host: judged sets whose documents are all from one host; hostless: judged
    sets with unknown hosts. conditions: None without a model, as in a simulation.
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
    may_be_noise: bool = False
    chance: float | None = None
    most_pairs: int = 0
    hosts: float | None = None
    host_unit: str = "hosts"
    one_host: tuple[str, ...] = ()
    hostless: tuple[str, ...] = ()
    conditions: Conditions | None = None
    rank: int | None = None
    candidates: int = 1
    worth: Worth | None = None

    def sentence(self) -> str:
        """The verdict as text: the result, its conditions, and its caveats."""
        text, remarks = self._result()
        if self.conditions is not None:
            text = f"{text}, {self.conditions}"
        return "; ".join([text, *remarks, *self._caveats()])

    def _result(self) -> tuple[str, list[str]]:
        """The result, and remarks on it."""
        if self.effect is None or self.low is None or self.high is None:
            rates = _counted(len(self.learning_rates), "learning rate")
            return (
                f"{self.candidate} was screened out: with one run of each candidate at {rates}, it ranks "
                f"{self.rank} of {self.candidates}"
            ), ["there is no verdict"]
        if self.outcome == "identical":
            return (
                f"{self.candidate} does not differ from {self.base}: all losses are the same"
                f" ({_counted(self.pairs, 'pair')}, {_counted(len(self.learning_rates), 'learning rate')})"
            ), []
        if self.outcome in ("better", "worse"):
            sign = 1 if self.outcome == "better" else -1
            low, high = sorted((sign * self.low, sign * self.high))
            value, low_, high_ = _rounded(sign * self.effect, low, high)
            difference = f"{value} bits per byte ({self._interval(low_, high_)})"
            text = f"{self.candidate} is {self.outcome} than {self.base} by {difference}"
            return (text if self.worth is None else f"{text}, {self.worth.sentence(self.level)}"), []
        value, low_, high_ = _rounded(self.effect, self.low, self.high)
        if self.outcome == "withheld":
            return (
                f"withheld: {self.candidate} and {self.base} differ by {value} bits per byte"
                f" ({self._interval(low_, high_)})"
            ), [f"the learning rates disagree on which is better ({self._each_rate()})"]
        return (
            f"inconclusive: {self.candidate} compared with {self.base}, the difference is {value} bits per byte"
            f" ({self._interval(low_, high_)})"
        ), [*self._futile(), self._remedy()]

    def _futile(self) -> list[str]:
        if self.chance is None:
            return []
        return [
            f"it stopped early, after {self.pairs} of at most {self.most_pairs} pairs, because a verdict had become "
            f"unlikely (probability {self.chance:.2f})"
        ]

    def _caveats(self) -> list[str]:
        """Warnings: different costs, few or unknown hosts, and limits to these training documents."""
        sentences, tested = [], self.outcome not in ("identical", "screened out")
        if tested and self.conditions is not None and self.conditions.costs:
            sentences.append(self.conditions.costs)
        if tested and self.hosts is not None and self.hosts < FEW_HOSTS:
            sentences.append(f"few {self.host_unit} judge it: they count as {self.hosts:.0f} of equal weight")
        if tested and self.one_host:
            sets = " and ".join(f"`{name}`" for name in self.one_host)
            sentences.append(f"all documents of {sets} are from one host, so the verdict applies only to this host")
        if tested and self.hostless:
            sets = " and ".join(f"`{name}`" for name in self.hostless)
            separate = ", so each document counts separately" if self.host_unit == "documents" else ""
            sentences.append(f"the hosts of {sets} are unknown{separate}")
        if self.conditions is not None and not self.conditions.resampled:
            sentences.append("it applies to these training documents")
        return sentences

    def _interval(self, low: str, high: str) -> str:
        counts = f"{_counted(self.pairs, 'pair')}, {_counted(len(self.learning_rates), 'learning rate')}"
        return f"{self.level:.0%} interval {low} to {high}, {counts}"

    def _each_rate(self) -> str:
        rates = self.by_learning_rate
        return ", ".join(f"{_rounded(one.effect, one.low, one.high)[0]} at {one.learning_rate:g}" for one in rates)

    def _remedy(self) -> str:
        rates = self.by_learning_rate
        if rates and max(one.low for one in rates) > min(one.high for one in rates):
            return (
                f"the effect depends on the learning rate ({self._each_rate()}), so its mean says little: find the "
                "best rate, and decide with `learning_rates` of the proxy near it"
            )
        if self.pairs_needed is not None:
            fresh = f"--pairs {self.pairs_needed} --first-pair {self.first_pair + self.pairs}"
            return f"if the true effect is the measured one, {self.pairs_needed} new pairs would detect it ({fresh})"
        if self.may_be_noise:
            return "the measured effect may be noise, so no number of new pairs is recommended"
        if self.limited_by_documents:
            of_training = " or the training hosts" if self.conditions and self.conditions.resampled else ""
            return f"more pairs would not help: the evaluation documents{of_training} are too few"
        return "no reasonable number of pairs would detect a difference as small as this one"


def _counted(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _rounded(effect: float, low: float, high: float) -> tuple[str, str, str]:
    """Format with two digits of the interval's half width, and at least four decimals."""
    width = (high - low) / 2
    decimals = 4
    while decimals < 10 and width * 10**decimals < 10:
        decimals += 1
    return f"{effect:.{decimals}f}", f"{low:.{decimals}f}", f"{high:.{decimals}f}"
