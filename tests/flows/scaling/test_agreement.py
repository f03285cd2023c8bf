"""Rank agreement against scipy, planted orders, and arms that are equal."""

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import kendalltau

from gristmill.flows.experiments.scaling.ladder import rank_agreement


def losses(means, noise, seed, seeds=3):
    """Of each arm and seed; a seed moves all arms alike, as paired runs do."""
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal(seeds)
    return np.asarray(means)[:, None] + shared + noise * rng.standard_normal((len(means), seeds))


def test_pairs_are_counted_one_by_one():
    small, large = losses([1.0, 1.2, 1.1, 1.5, 1.3], 0.02, 0), losses([1.0, 1.1, 1.2, 1.5, 1.4], 0.02, 1, 2)
    found = rank_agreement(small, large)
    first, second = small.mean(axis=1), large.mean(axis=1)
    same = sum((first[a] - first[b]) * (second[a] - second[b]) > 0 for a, b in combinations(range(5), 2))
    assert found.counted(small=False, large=False) == (same, 10)
    assert found.tau == pytest.approx(kendalltau(first, second).statistic)
    assert found.tau == pytest.approx((same - (10 - same)) / 10)  # without ties


def test_arms_that_are_far_apart_are_told_apart_and_keep_their_order():
    found = rank_agreement(losses([1, 2, 3, 4], 0.01, 0), losses([0.5, 0.7, 0.9, 1.1], 0.01, 1))
    assert found.counted(small=True, large=True) == (6, 6)
    turned = rank_agreement(losses([1, 2, 3, 4], 0.01, 0), losses([4, 3, 2, 1], 0.01, 1))
    assert turned.counted(small=True, large=True) == (0, 6)
    assert turned.tau == -1


def test_equal_arms_are_told_apart_in_a_tenth_of_the_cases():
    told = [
        pair.told_apart[0]
        for seed in range(100)
        for pair in rank_agreement(losses([1] * 4, 0.1, seed), losses([1] * 4, 0.1, seed + 1000)).pairs
    ]
    assert np.mean(told) == pytest.approx(0.1, abs=0.05)


def test_what_has_no_ranks_or_no_noise_is_refused():
    with pytest.raises(ValueError, match="no ranks"):
        rank_agreement(np.ones((2, 3)), np.ones((2, 3)))
    with pytest.raises(ValueError, match="one run"):
        rank_agreement(np.ones((3, 1)), np.ones((3, 2)))
