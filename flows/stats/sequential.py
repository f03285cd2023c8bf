"""Group-sequential decisions: boundaries for each look, intervals adjusted for stopping, and power.

The statistics of the looks are jointly normal with independent increments of information (the canonical distribution
of Jennison and Turnbull, Group Sequential Methods, 2000, section 3.1). Probabilities follow by recursive integration
(their chapter 19; Armitage, McPherson and Rowe 1969). Limits follow from the error that may have been spent by each
look (Lan and DeMets 1983).

The interval follows the stage-wise ordering of outcomes: an earlier crossing of the upper limit is a higher outcome
than a later one; at one look a higher statistic is (Tsiatis, Rosner and Mehta 1984; Jennison and Turnbull 2000,
section 8.5). Without early stopping it is the t interval.

`power`, `smallest_effect` and `pairs_needed` compute what a budget of pairs can detect, `conditional_power` the power
that remains after some of the pairs, and `expected_pairs` how many pairs a decision takes.
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
# Decisions that `expected_pairs` simulates, for a relative standard error of a hundredth.
_SIMULATIONS = 10_000
# Beyond it the normal density is under 1e-19.
_FAR = 9.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
# Information grows at least by this share between looks; with less the kernel would be narrower than any grid.
_MIN_GROWTH = 1e-3


class Path:
    """The probability distribution of paths that have not crossed a limit, updated look by look."""

    def __init__(self) -> None:
        self._information, self._nodes, self._mass = 0.0, np.zeros(1), np.ones(1)

    def beyond(self, information: float, limit: float, above: bool) -> float:
        """Probability of reaching the look at this information and being above (or below) its limit."""
        information = self._later(information)
        spread = np.sqrt(information - self._information)
        z = (limit * np.sqrt(information) - self._nodes * np.sqrt(self._information)) / spread
        return float(self._mass @ ndtr(-z if above else z))

    def advance(self, information: float, lower: float, upper: float, growth: float) -> None:
        """Pass a look between two limits; `growth` is the next look's information divided by this one's."""
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
    """Probabilities (looks, 2) that a statistic of mean 0 first crosses a limit at each look: below, above."""
    path, probabilities = Path(), []
    for k, (now, low, high) in enumerate(zip(information, lower, upper, strict=True)):
        probabilities.append((path.beyond(now, low, above=False), path.beyond(now, high, above=True)))
        if k + 1 < len(information):
            path.advance(now, low, high, information[k + 1] / now)
    return np.array(probabilities)


def spent(alpha: float, fraction: float) -> float:
    """Two-sided error that may be spent up to a fraction of the information: alpha t^2 (Kim and DeMets 1987, rho = 2).

    It is between the two common choices: O'Brien and Fleming's rarely stops at a quarter of the pairs, and Pocock's
    requires a fifth more pairs.
    """
    return alpha * fraction**2


@lru_cache(maxsize=256)
def limits(information: tuple[float, ...], error: tuple[float, ...]) -> tuple[float, ...]:
    """Symmetric limits of the standard normal statistic at each look.

    error: two-sided error spent up to each look. Raises ValueError unless it and the information increase.
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
            path.advance(now, -values[-1], values[-1], information[k + 1] / now)
    return tuple(values)


def declared(looks: tuple[int, ...], alpha: float) -> tuple[float, ...]:
    """The limits of a decision, known before its first run: information in proportion to pairs.

    All looks share the variance from evaluation documents, so the statistics are at least as correlated as assumed
    here, and the error is at most alpha.
    """
    fractions = tuple(n / looks[-1] for n in looks)
    return limits(fractions, tuple(spent(alpha, t) for t in fractions))


@dataclass(frozen=True)
class Look:
    """The data of a look. `information` has the same unit in all looks; `limit` is standard normal."""

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
    """Probability of an outcome at least as high as the last look's if `effect` is the true effect."""
    path, above = Path(), 0.0
    for k, look in enumerate(looks[:-1]):
        reach = t_value(look.limit, look.degrees)
        high = normal_score(reach - effect / look.standard_error, look.degrees)
        low = normal_score(-reach - effect / look.standard_error, look.degrees)
        above += path.beyond(look.information, high, above=True)
        path.advance(look.information, low, high, looks[k + 1].information / look.information)
    last = looks[-1]
    here = normal_score((last.effect - effect) / last.standard_error, last.degrees)
    return above + path.beyond(last.information, here, above=True)


def stagewise(looks: Sequence[Look], level: float) -> tuple[float, float, float]:
    """Lower end, median-unbiased effect and upper end of the interval; `looks`: all up to the end of the decision."""
    last = looks[-1]
    if len(looks) == 1:
        reach = float(stdtrit(last.degrees, (1 + level) / 2)) * last.standard_error
        return last.effect - reach, last.effect, last.effect + reach
    low, middle, high = (_effect_at(looks, p) for p in ((1 - level) / 2, 0.5, (1 + level) / 2))
    return low, middle, high


def _effect_at(looks: Sequence[Look], probability: float) -> float:
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
    """Two-sided p value by the stage-wise ordering."""
    above = tail(looks, 0.0)
    return float(np.clip(2 * min(above, 1 - above), 0.0, 1.0))


# More pairs are not recommended: another measure, or more tokens per run, would help more.
MAX_PAIRS = 200
_VARIANCE_NODES, _VARIANCE_WEIGHTS = np.polynomial.legendre.leggauss(24)


@dataclass(frozen=True)
class Noise:
    """pair_variance: of a pair's difference. degrees: degrees of freedom of a bank (0: no bank). shared_variance: the
    variance of the effect that all pairs share: from the sample of evaluation documents, and with `resample` from the
    sample of training hosts; shared_degrees: its degrees of freedom. rates: learning rates, within which pairs vary."""

    pair_variance: float
    degrees: int = 0
    shared_variance: float = 0.0
    shared_degrees: float = np.inf
    rates: int = 1

    def variance(self, pairs: int) -> float:
        """Variance of the effect after `pairs` pairs."""
        return self.pair_variance / pairs + self.shared_variance

    def freedom(self, pairs: int) -> float:
        """Degrees of freedom after `pairs` pairs, with a bank that shares its base runs (Satterthwaite)."""
        of_pairs = pooled_degrees(pairs - self.rates, self.degrees, min(pairs, self.degrees + 1))
        scale = (self.pair_variance / pairs) ** 2 / of_pairs + self.shared_variance**2 / self.shared_degrees
        return self.variance(pairs) ** 2 / scale if scale > 0 else of_pairs


def power(effect: float, looks: tuple[int, ...], limits: tuple[float, ...], noise: Noise) -> float:
    """Probability of crossing a boundary on the side of the effect, averaged over the estimated variance."""
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
    """The effect in bits per byte that is detected with the wanted probability."""
    scale = float(np.sqrt(noise.variance(looks[-1])))
    if scale == 0:
        return 0.0
    root = brentq(lambda x: power(x * scale, looks, limits, noise) - wanted, 0.1, 40.0, xtol=1e-3)
    return float(root) * scale


def pairs_needed(effect: float, alpha: float, noise: Noise, wanted: float = WANTED_POWER) -> int | None:
    """Pairs with which a single test detects this effect with the wanted probability; None if above MAX_PAIRS."""

    def is_detected(pairs: int) -> bool:
        error, degrees = np.sqrt(noise.variance(pairs)), noise.freedom(pairs)
        reach = float(stdtrit(degrees, 1 - alpha / 2))
        return 1 - float(nctdtr(degrees, abs(effect) / error, reach)) >= wanted

    fewest = noise.rates + 1
    needed = bisect_left(range(fewest, MAX_PAIRS + 1), True, key=is_detected) + fewest
    return needed if needed <= MAX_PAIRS else None


def chance_to_tell(effect: float, variance: float, alpha: float, noise: Noise, pairs: int) -> float:
    """Probability that one test after `pairs` new pairs confirms the sign of the measured effect.

    variance: of the measured effect. A decision without a verdict has measured an effect near its noise, and the true
    effect is more likely smaller than larger. So effects have a normal prior around 0, with the variance that maximizes
    the likelihood of the measured one (effect^2 - variance, at least 0: empirical Bayes, the shrinkage of James and
    Stein 1961), and the probability is averaged over the posterior. New pairs have the same evaluation documents, and
    halves of the same training hosts, so the deviation from these stays the same.
    """
    true = max(effect**2 - variance, 0.0)
    kept = (true + noise.shared_variance) / (true + variance)
    spread = kept * max(variance - noise.shared_variance, 0.0) + noise.pair_variance / pairs
    reach = float(stdtrit(noise.freedom(pairs), 1 - alpha / 2)) * np.sqrt(noise.variance(pairs))
    return float(ndtr((kept * abs(effect) - reach) / np.sqrt(spread)))


def conditional_power(
    effect: Any, pairs: int, last: int, reach: float, pair_variance: Any, shared_variance: Any = 0.0
) -> Any:
    """Probability that the last look crosses its boundary on the side of the effect measured after `pairs` pairs, if
    the true effect is the one that the last look detects with probability WANTED_POWER.

    effect, pair_variance, shared_variance: floats, or arrays of one shape; the variances are of one pair, and of the
    deviation that all pairs share. last: pairs at the last look. reach: its boundary as a t value. The detectable
    effect follows from the measured variances, so the rule is the same for any noise. The shared deviation is the same
    in past and in future pairs.
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
    """Mean pairs of a candidate without an effect, or (`detected`) with the effect that the last look detects with
    probability WANTED_POWER, and mean pairs of a base that `candidates` such candidates share.

    Assumes that only pairs vary and that there is no bank. A simulation, with the same draws in each call.
    """
    last = looks[-1]
    reach = [t_value(limit, pairs - rates) for limit, pairs in zip(limits, looks, strict=True)]
    effect = (reach[-1] + _WANTED_SCORE) / np.sqrt(last) if detected else 0.0
    values = np.random.default_rng(0).normal(effect, 1.0, (_SIMULATIONS, last))
    needed = np.full(_SIMULATIONS, last)
    for pairs, boundary in zip(looks[:-1], reach, strict=False):
        going, drawn = needed == last, values[:, :pairs]
        mean = drawn.mean(axis=1)
        by_rate = [drawn[:, rate::rates] for rate in range(rates)]
        variance = sum(one.var(axis=1) * one.shape[1] for one in by_rate) / (pairs - rates)
        ends = np.abs(mean) >= boundary * np.sqrt(variance / pairs)
        ends |= conditional_power(mean, pairs, last, reach[-1], variance) < futility
        needed[going & ends] = pairs
    together = needed[: _SIMULATIONS // candidates * candidates].reshape(-1, candidates)
    return float(needed.mean()), float(together.max(axis=1).mean())
