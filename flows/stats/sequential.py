"""Group-sequential decisions: boundaries by look, an interval that is adjusted for stopping, and power.

The statistics of the looks are jointly normal with independent increments of information (the canonical distribution
of Jennison and Turnbull, Group Sequential Methods, 2000, section 3.1). Probabilities follow by recursive integration
(their chapter 19; Armitage, McPherson and Rowe 1969). Limits follow from the error that may have been spent by each
look (Lan and DeMets 1983).

The interval follows the stage-wise ordering of outcomes: an earlier crossing of the upper limit is a higher outcome
than a later one; at one look a higher statistic is (Tsiatis, Rosner and Mehta 1984; Jennison and Turnbull 2000,
section 8.5). Without early stopping it is the t interval.

`power`, `smallest_effect` and `pairs_needed` say what a budget of pairs can detect, `conditional_power` what is left of
it after some of them, and `expected_pairs` how many a decision takes.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import chdtri, nctdtr, ndtr, ndtri, stdtr, stdtrit

from gristmill.flows.stats.crossed import pooled_degrees

WANTED_POWER = 0.8
_WANTED_SCORE = float(ndtri(WANTED_POWER))
# Decisions that are drawn for `expected_pairs`, whose standard error is then a hundredth.
_DRAWN = 10_000
# Beyond it the normal density is under 1e-19.
_FAR = 9.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
# Looks between which information grows by less count as growing by it: the kernel would be narrower than any grid.
_MIN_GROWTH = 1e-3


class Path:
    """The part of the probability that has crossed no limit so far, look by look."""

    def __init__(self) -> None:
        self._information, self._nodes, self._mass = 0.0, np.zeros(1), np.ones(1)

    def beyond(self, information: float, limit: float, above: bool) -> float:
        """Probability to reach the look of this information and to be above (or below) the limit there."""
        information = self._later(information)
        spread = np.sqrt(information - self._information)
        z = (limit * np.sqrt(information) - self._nodes * np.sqrt(self._information)) / spread
        return float(self._mass @ ndtr(-z if above else z))

    def go_on(self, information: float, lower: float, upper: float, growth: float) -> None:
        """Pass a look between two limits; `growth` is the next look's information over this one's."""
        information = self._later(information)
        spread = np.sqrt(information - self._information)
        low, high = max(lower, -_FAR), min(upper, _FAR)
        if high <= low:
            self._nodes, self._mass, self._information = np.zeros(1), np.zeros(1), information
            return
        # The density must be followed at the scale of the kernels before and after.
        scale = np.sqrt(min(max(growth - 1, _MIN_GROWTH), spread**2 / information, 1.0))
        edges = np.linspace(low, high, int(np.ceil((high - low) / (3 * scale))) + 1)
        half = np.diff(edges) / 2
        nodes = ((edges[:-1] + half)[:, None] + half[:, None] * _NODES).ravel()
        steps = (half[:, None] * _WEIGHTS).ravel()
        z = (nodes[:, None] * np.sqrt(information) - self._nodes * np.sqrt(self._information)) / spread
        density = np.exp(-(z**2) / 2) @ self._mass * np.sqrt(information / (2 * np.pi)) / spread
        self._nodes, self._mass, self._information = nodes, density * steps, information

    def _later(self, information: float) -> float:
        return max(information, self._information * (1 + _MIN_GROWTH))


def crossing(information: Sequence[float], lower: Sequence[float], upper: Sequence[float]) -> np.ndarray:
    """Probabilities (looks, 2) that a statistic of mean 0 leaves the limits first at each look: below, above."""
    path, probabilities = Path(), []
    for k, (now, low, high) in enumerate(zip(information, lower, upper, strict=True)):
        probabilities.append((path.beyond(now, low, above=False), path.beyond(now, high, above=True)))
        if k + 1 < len(information):
            path.go_on(now, low, high, information[k + 1] / now)
    return np.array(probabilities)


def spent(alpha: float, fraction: float) -> float:
    """Two-sided error that may be spent at a fraction of the information: alpha t^2 (Kim and DeMets 1987, rho = 2).

    Between the two common choices: O'Brien and Fleming's would hardly ever stop at a quarter of the pairs, Pocock's
    costs a fifth more pairs in the end.
    """
    return alpha * fraction**2


@lru_cache(maxsize=256)
def limits(information: tuple[float, ...], error: tuple[float, ...]) -> tuple[float, ...]:
    """Symmetric limits of the standard normal statistic at each look.

    error: two-sided error spent up to each look, rising. ValueError if it or the information does not rise.
    """
    if any(b <= a for row in (information, error) for a, b in zip((0.0, *row), row, strict=False)):
        raise ValueError(
            f"looks: information {information} and spent error {error} must increase from one "
            "interim analysis to the next."
        )
    path, values, before = Path(), [], 0.0
    for k, (now, total) in enumerate(zip(information, error, strict=True)):
        # Symmetric: half of the error is above.
        share = (total - before) / 2
        values.append(brentq(lambda z, now=now, share=share: path.beyond(now, z, above=True) - share, 0.0, _FAR))
        before = total
        if k + 1 < len(information):
            path.go_on(now, -values[-1], values[-1], information[k + 1] / now)
    return tuple(values)


def declared(looks: tuple[int, ...], alpha: float) -> tuple[float, ...]:
    """The limits of a decision, known before its first run: information in proportion to pairs.

    What evaluation documents add to the variance is shared by all looks, so the statistics are at least as correlated
    as assumed here, and the error is at most alpha.
    """
    fractions = tuple(n / looks[-1] for n in looks)
    return limits(fractions, tuple(spent(alpha, t) for t in fractions))


@dataclass(frozen=True)
class Look:
    """What was known at a look. `information` is in one unit for all looks; `limit` is standard normal."""

    pairs: int
    effect: float
    standard_error: float
    degrees: float
    information: float
    limit: float

    @property
    def statistic(self) -> float:
        return normal_score(self.effect / self.standard_error, self.degrees)

    @property
    def crossed(self) -> bool:
        return abs(self.statistic) >= self.limit


def normal_score(t: float, degrees: float) -> float:
    """The standard normal value with the same tail as a t value (significance level method; section 3.8)."""
    tail = float(ndtri(max(stdtr(degrees, -abs(t)), 1e-300)))
    return -tail if t > 0 else tail


def t_value(z: float, degrees: float) -> float:
    """The t value with the same tail as a standard normal value."""
    t = float(stdtrit(degrees, ndtr(-abs(z))))
    return -t if z > 0 else t


def tail(looks: Sequence[Look], effect: float) -> float:
    """Probability of an outcome at least as high as the last look's if this were the true effect."""
    path, above = Path(), 0.0
    for k, look in enumerate(looks[:-1]):
        reach = t_value(look.limit, look.degrees)
        high = normal_score(reach - effect / look.standard_error, look.degrees)
        low = normal_score(-reach - effect / look.standard_error, look.degrees)
        above += path.beyond(look.information, high, above=True)
        path.go_on(look.information, low, high, looks[k + 1].information / look.information)
    last = looks[-1]
    here = normal_score((last.effect - effect) / last.standard_error, last.degrees)
    return above + path.beyond(last.information, here, above=True)


def stagewise(looks: Sequence[Look], level: float) -> tuple[float, float, float]:
    """Lower end, median-unbiased effect, upper end of the interval of this level; `looks` up to where it stopped."""
    last = looks[-1]
    if len(looks) == 1:
        reach = float(stdtrit(last.degrees, (1 + level) / 2)) * last.standard_error
        return last.effect - reach, last.effect, last.effect + reach
    low, middle, high = (_where(looks, p) for p in ((1 - level) / 2, 0.5, (1 + level) / 2))
    return low, middle, high


def _where(looks: Sequence[Look], probability: float) -> float:
    """The effect under which an outcome at least as high as the observed one has this probability."""
    last = looks[-1]
    step = last.standard_error * max(1.0, abs(t_value(float(ndtri(probability)), last.degrees)))
    low = high = last.effect
    while tail(looks, low) > probability:
        low, step = low - step, step * 2
    step = last.standard_error
    while tail(looks, high) < probability:
        high, step = high + step, step * 2
    if low == high:
        return float(low)
    return float(brentq(lambda effect: tail(looks, effect) - probability, low, high, xtol=1e-3 * last.standard_error))


def p_value(looks: Sequence[Look]) -> float:
    """Two-sided, by the same ordering."""
    above = tail(looks, 0.0)
    return float(np.clip(2 * min(above, 1 - above), 0.0, 1.0))


# More pairs than this are not advised: another measure, or more tokens a run, would help more.
MAX_PAIRS = 200
_VARIANCE_NODES, _VARIANCE_WEIGHTS = np.polynomial.legendre.leggauss(24)


@dataclass(frozen=True)
class Noise:
    """pair_variance: of a pair's difference. degrees: with which a bank knows it (0: no bank). shared_variance: of the
    effect, by what all pairs share: the sample of evaluation documents, and with halves of the training hosts that of
    these; shared_degrees: with which it will be known. rates: learning rates, within which pairs vary."""

    pair_variance: float
    degrees: int = 0
    shared_variance: float = 0.0
    shared_degrees: float = np.inf
    rates: int = 1

    def variance(self, pairs: int) -> float:
        """Of the effect after so many pairs."""
        return self.pair_variance / pairs + self.shared_variance

    def freedom(self, pairs: int) -> float:
        """Degrees of freedom after so many pairs, of a bank that shares its base runs with them (Satterthwaite)."""
        of_pairs = pooled_degrees(pairs - self.rates, self.degrees, min(pairs, self.degrees + 1))
        scale = (self.pair_variance / pairs) ** 2 / of_pairs + self.shared_variance**2 / self.shared_degrees
        return self.variance(pairs) ** 2 / scale if scale > 0 else of_pairs


def power(effect: float, looks: tuple[int, ...], limits: tuple[float, ...], noise: Noise) -> float:
    """Probability that a boundary is crossed on the side of the effect, averaged over the estimated variance."""
    variances = [noise.variance(n) for n in looks]
    errors = np.sqrt(variances)
    information = [variances[-1] / v for v in variances]
    degrees = [noise.freedom(n) for n in looks]
    reach = [t_value(z, nu) for z, nu in zip(limits, degrees, strict=True)]
    total = 0.0
    for node, weight in zip((_VARIANCE_NODES + 1) / 2, _VARIANCE_WEIGHTS / 2, strict=True):
        # The estimated standard error over the true one, at the same quantile for all looks: they share the bank.
        ratio = [float(np.sqrt(chdtri(nu, 1 - node) / nu)) for nu in degrees]
        high = [t * s - abs(effect) / e for t, s, e in zip(reach, ratio, errors, strict=True)]
        low = [-t * s - abs(effect) / e for t, s, e in zip(reach, ratio, errors, strict=True)]
        total += weight * float(crossing(information, low, high)[:, 1].sum())
    return total


def smallest_effect(
    looks: tuple[int, ...], limits: tuple[float, ...], noise: Noise, wanted: float = WANTED_POWER
) -> float:
    """The effect in bits per byte that is seen with the wanted probability."""
    scale = float(np.sqrt(noise.variance(looks[-1])))
    if scale == 0:
        return 0.0
    root = brentq(lambda x: power(x * scale, looks, limits, noise) - wanted, 0.1, 40.0, xtol=1e-3)
    return float(root) * scale


def pairs_needed(effect: float, alpha: float, noise: Noise, wanted: float = WANTED_POWER) -> int | None:
    """Pairs after which one test at the end sees this effect with the wanted probability; None if MAX_PAIRS do not."""

    def seen(pairs: int) -> bool:
        error, degrees = np.sqrt(noise.variance(pairs)), noise.freedom(pairs)
        reach = float(stdtrit(degrees, 1 - alpha / 2))
        return 1 - float(nctdtr(degrees, abs(effect) / error, reach)) >= wanted

    fewest = noise.rates + 1
    needed = bisect_left(range(fewest, MAX_PAIRS + 1), True, key=seen) + fewest
    return needed if needed <= MAX_PAIRS else None


def chance_to_tell(effect: float, variance: float, alpha: float, noise: Noise, pairs: int) -> float:
    """Probability that one test after so many new pairs finds the sign of the effect that was seen.

    variance: of the effect that was seen. A decision without a verdict has seen an effect near its noise, and the true
    one is likelier smaller than larger. So effects are taken as normal around 0, with the variance under which what was
    seen is likeliest (effect^2 - variance, at least 0: empirical Bayes, as James and Stein 1961 shrink), and the
    probability is averaged over the effects that are left. New pairs are judged by the same documents, and with halves
    drawn from the same training hosts: what these add is the same again.
    """
    true = max(effect**2 - variance, 0.0)
    kept = (true + noise.shared_variance) / (true + variance)
    spread = kept * max(variance - noise.shared_variance, 0.0) + noise.pair_variance / pairs
    reach = float(stdtrit(noise.freedom(pairs), 1 - alpha / 2)) * np.sqrt(noise.variance(pairs))
    return float(ndtr((kept * abs(effect) - reach) / np.sqrt(spread)))


def conditional_power(
    effect: Any, pairs: int, last: int, reach: float, pair_variance: Any, shared_variance: Any = 0.0
) -> Any:
    """Probability that the last look crosses its boundary on the side of the effect that was seen after some pairs, if
    the true effect is the one that the last look detects with probability WANTED_POWER.

    effect, pair_variance, shared_variance: floats, or arrays of one shape; variances of one pair, and of what all pairs
    share. last: pairs at the last look. reach: its boundary as a t value. The effect that is detected follows from the
    variances as they were seen, so the rule is the same for any noise. What all pairs share moves those to come as it
    moved those that were seen.
    """
    error = np.sqrt(pair_variance / last + shared_variance)
    detected, boundary, seen = (reach + _WANTED_SCORE) * error, reach * error, np.abs(effect)
    of_pairs, rest = pair_variance / pairs, last - pairs
    share = shared_variance / (shared_variance + of_pairs)
    expected = (pairs * seen + rest * (detected + share * (seen - detected))) / last
    spread = rest / last * np.sqrt(pair_variance / rest + share * of_pairs)
    return ndtr((expected - boundary) / spread)


@lru_cache(maxsize=64)
def expected_pairs(
    looks: tuple[int, ...],
    limits: tuple[float, ...],
    futility: float,
    detected: bool,
    rates: int = 1,
    candidates: int = 1,
) -> tuple[float, float]:
    """Mean pairs of a candidate without an effect, or with the one that the last look detects with probability
    WANTED_POWER, and mean pairs of the base that so many such candidates share.

    If only pairs vary, and there is no bank. By simulation, with the same draws at each call.
    """
    last = looks[-1]
    reach = [t_value(limit, pairs - rates) for limit, pairs in zip(limits, looks, strict=True)]
    effect = (reach[-1] + _WANTED_SCORE) / np.sqrt(last) if detected else 0.0
    values = np.random.default_rng(0).normal(effect, 1.0, (_DRAWN, last))
    needed = np.full(_DRAWN, last)
    for pairs, boundary in zip(looks[:-1], reach, strict=False):
        going, drawn = needed == last, values[:, :pairs]
        mean = drawn.mean(axis=1)
        by_rate = [drawn[:, rate::rates] for rate in range(rates)]
        variance = sum(one.var(axis=1) * one.shape[1] for one in by_rate) / (pairs - rates)
        ends = np.abs(mean) >= boundary * np.sqrt(variance / pairs)
        ends |= conditional_power(mean, pairs, last, reach[-1], variance) < futility
        needed[going & ends] = pairs
    together = needed[: _DRAWN // candidates * candidates].reshape(-1, candidates)
    return float(needed.mean()), float(together.max(axis=1).mean())
