"""The default plan of a decision beside the one before it, on normal pairs; forty thousand decisions a row.

Runs vary as those of the demo that were recorded first: .00956 bits per byte by their sample of text, which two
learning rates share, and .0051 by the run. The plans are written out here; only the boundaries are the package's.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import nct
from scipy.stats import t as student

from gristmill.flows.stats.protocol import LOOKS, Protocol
from gristmill.flows.stats.sequential import (
    Noise,
    conditional_power,
    declared,
    expected_pairs,
    smallest_effect,
    t_value,
)

SAMPLE, RUN = 0.00956, 0.0051
DECISIONS = 40_000


@dataclass(frozen=True)
class Plan:
    """`rates`: runs of an arm in a pair; 1: the learning rate alternates over pairs."""

    looks: tuple[int, ...]
    rates: int
    futility: float

    @property
    def variance(self) -> float:
        return 2 * (SAMPLE**2 + RUN**2 / self.rates)


BEFORE = Plan((4, 8, 16), 2, 0.0)
DEFAULT = Plan(LOOKS, 1, 0.2)
DETECTED = smallest_effect(BEFORE.looks, declared(BEFORE.looks, 0.05), Noise(BEFORE.variance))


def boundaries(plan: Plan) -> list[float]:
    lost = 1 if plan.rates == 2 else 2
    return [t_value(z, n - lost) for n, z in zip(plan.looks, declared(plan.looks, 0.05), strict=True)]


def decided(plan: Plan, effect: float) -> tuple[float, float, float]:
    """Mean runs of a decision, and the shares of decisions that say better, and worse."""
    rng, last, bounds = np.random.default_rng(7), plan.looks[-1], boundaries(plan)
    values = rng.normal(effect, np.sqrt(plan.variance), (DECISIONS, last))
    outcome, pairs = np.zeros(DECISIONS), np.zeros(DECISIONS)
    for n, bound in zip(plan.looks, bounds, strict=True):
        seen = values[:, :n]
        mean = seen.mean(axis=1)
        squares = ((seen - mean[:, None]) ** 2).sum(axis=1) / (n - 1)
        if plan.rates == 1:
            both = [seen[:, one::2] for one in (0, 1)]
            squares = sum(((one - one.mean(axis=1, keepdims=True)) ** 2).sum(axis=1) for one in both) / (n - 2)
        error = np.sqrt(squares / n)
        crossed = (pairs == 0) & (np.abs(mean) > bound * error)
        outcome[crossed], pairs[crossed] = np.sign(mean[crossed]), n
        if n == last:
            pairs[pairs == 0] = n
        elif plan.futility:
            # what the sum of the pairs to come must reach, if each has the effect that the last look detects at .8
            unit = np.sqrt(squares / last)
            wanted = bounds[-1] * unit * last - n * np.abs(mean)
            mean_of_rest = (last - n) * (bounds[-1] + 0.8416) * unit
            chance = 1 - ndtr((wanted - mean_of_rest) / np.sqrt((last - n) * squares))
            pairs[(pairs == 0) & (chance < plan.futility)] = n
    return float(2 * plan.rates * pairs.mean()), float((outcome > 0).mean()), float((outcome < 0).mean())


def test_the_default_needs_under_half_of_the_runs_at_the_same_error_and_power():
    for times, most, least_power in ((0, 27.5, 0), (1, 29, 0.80), (2, 19, 0.995)):
        runs, better, worse = decided(DEFAULT, times * DETECTED)
        before, better_before, _ = decided(BEFORE, times * DETECTED)
        print(times, runs, before, better, better_before, worse)
        assert runs < most and runs < before * 0.52
        if times:
            assert better >= least_power and better >= better_before - 0.01
        else:
            assert better + worse <= 0.0575


def test_the_announced_power_is_that_of_the_default():
    """Futility costs one or two verdicts in a hundred, which the announcement leaves out."""
    announced = smallest_effect(LOOKS, declared(LOOKS, 0.05), Noise(DEFAULT.variance, rates=2))
    assert decided(DEFAULT, announced)[1] == pytest.approx(0.8, abs=0.025)


def test_the_expected_runs_of_the_plan_are_those_of_decisions():
    limits, reach = declared(LOOKS, 0.05), boundaries(DEFAULT)[-1]
    effect = (reach + 0.8416) * np.sqrt(DEFAULT.variance / LOOKS[-1])
    for detected, truth in ((False, 0.0), (True, effect)):
        pairs, of_base = expected_pairs(LOOKS, limits, 0.2, detected, 2)
        assert pairs == of_base == pytest.approx(decided(DEFAULT, truth)[0] / 2, rel=0.02)
    _, of_two = expected_pairs(LOOKS, limits, 0.2, False, 2, 2)
    assert pairs < of_two < LOOKS[-1]


@pytest.mark.parametrize("shared", [0.0, 0.3])
def test_conditional_power_is_that_of_continued_decisions(shared):
    """Decisions with the detected effect that have seen nearly .4: how many cross at the end?"""
    rng, last, seen = np.random.default_rng(0), 20, 6
    reach = student.isf(0.02, 18)
    detected = (reach + 0.8416) * np.sqrt(1 / last + shared)
    common = rng.normal(detected, np.sqrt(shared), 2_000_000)
    first = rng.normal(common, np.sqrt(1 / seen))
    near = np.abs(first - 0.4) < 0.02
    rest = rng.normal(common[near], np.sqrt(1 / (last - seen)))
    mean = (seen * first[near] + (last - seen) * rest) / last
    truth = (mean > reach * np.sqrt(1 / last + shared)).mean()
    assert near.sum() > 5_000
    assert conditional_power(0.4, seen, last, reach, 1.0, shared) == pytest.approx(truth, abs=0.02)
    assert conditional_power(-0.4, seen, last, reach, 1.0, shared) == conditional_power(
        0.4, seen, last, reach, 1.0, shared
    )


def test_the_effect_by_which_futility_is_judged_has_the_wanted_power_at_the_last_look():
    reach = student.isf(0.02, 18)
    assert 1 - nct.cdf(reach, 18, reach + 0.8416) == pytest.approx(0.8, abs=0.02)
    assert Protocol(learning_rates=(1e-3, 4e-3)).looks == LOOKS
