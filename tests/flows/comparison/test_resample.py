"""Halves of the training hosts: the variance of the mean effect against planted halves and seeds."""

import numpy as np
import pytest

from gristmill.flows.stats.crossed import SEED_SHARE, estimate
from gristmill.flows.stats.runs import EvaluationSet
from gristmill.flows.stats.sequential import t_value

ALIKE = EvaluationSet(("a",), np.zeros(2, np.int64), np.array([1, 1]), ("a",))


def both(values: np.ndarray) -> np.ndarray:
    """The same difference on both documents."""
    return np.repeat(values[:, None], 2, axis=1)


def test_halves_vary_about_the_pool_as_the_pool_about_all_hosts():
    rng = np.random.default_rng(0)
    hosts = rng.standard_normal((6000, 40))
    halves = np.array([row[rng.permutation(40)[:20]].mean() for row in hosts])
    assert (halves - hosts.mean(axis=1)).var() == pytest.approx(hosts.mean(axis=1).var(), rel=0.08)
    assert np.corrcoef(halves - hosts.mean(axis=1), hosts.mean(axis=1))[0, 1] == pytest.approx(0, abs=0.04)


def test_what_halves_add_is_not_averaged_away():
    values = np.random.default_rng(1).normal(0.2, 1, 12)
    own = values.var(ddof=1)
    alone = estimate(both(values), ALIKE, resample=True)
    assert (alone.pair_variance, alone.half_variance, alone.degrees) == pytest.approx((own, own, 11))
    assert alone.variance_at(1000) == pytest.approx(own * 1.001)
    known = estimate(both(values), ALIKE, (own / 4, 7, 7), resample=True)
    assert known.half_variance == pytest.approx(own * (1 - SEED_SHARE / 4))
    loud = estimate(both(values), ALIKE, (own * 3, 7, 7), resample=True)
    assert (loud.pair_variance, loud.half_variance) == pytest.approx((own * 3, 0.0))


def shares(pairs: int, bank: int, halves: float, repeats: int) -> tuple[float, float]:
    """False verdicts at 5% and coverage at 90% of one look; `halves`: variance beside that of seeds, 1."""
    rng = np.random.default_rng([pairs, bank, round(100 * halves)])
    false = covered = 0
    for _ in range(repeats):
        base, candidate, sample = rng.standard_normal((3, max(pairs, bank))) * np.sqrt(0.5)
        pool, of_half = rng.standard_normal() * np.sqrt(halves), rng.standard_normal(pairs) * np.sqrt(halves)
        known = float((base - sample)[:bank].var(ddof=1)), bank - 1, min(pairs, bank)
        found = estimate(both((base - candidate)[:pairs] + of_half + pool), ALIKE, known, resample=True)
        t = abs(found.effect) / np.sqrt(found.variance)
        false += t > t_value(1.95996, found.degrees)
        covered += t < t_value(1.64485, found.degrees)
    return false / repeats, covered / repeats


def test_false_verdicts_and_coverage_where_halves_differ_as_seeds():
    false, covered = shares(6, 8, 1.0, 600)
    # Five standard errors
    assert false <= 0.06 + 5 * 0.01 and covered >= 0.88 - 5 * 0.013


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [6, 12])
@pytest.mark.parametrize("halves", [0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0])
def test_false_verdicts_and_coverage_with_planted_halves(pairs, halves):
    false, covered = shares(pairs, 8, halves, 10_000)
    print(pairs, halves, false, covered)
    assert false <= 0.06 + 2 * 0.0024
    assert covered >= 0.88
