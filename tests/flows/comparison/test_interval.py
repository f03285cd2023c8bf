"""Intervals after stopping, against scipy and against simulated experiments."""

import numpy as np
import pytest
from scipy import stats

from gristmill.flows.stats.sequential import Look, declared, normal_score, p_value, stagewise, t_value, tail


def test_at_the_first_look_it_is_the_t_interval():
    values = np.random.default_rng(0).normal(0.3, 1, 5)
    error = values.std(ddof=1) / np.sqrt(5)
    look = Look(5, values.mean(), error, 4, 1.0, 2.0)
    low, effect, high = stagewise([look], 0.9)
    assert (low, high) == pytest.approx(stats.t.interval(0.9, 4, values.mean(), error))
    assert effect == pytest.approx(values.mean())
    assert p_value([look]) == pytest.approx(stats.ttest_1samp(values, 0).pvalue)


@pytest.mark.parametrize("degrees", [2, 11.5, 200])
@pytest.mark.parametrize("t", [-6.0, -0.3, 0.0, 2.2, 30.0])
def test_a_t_value_and_its_normal_score_have_one_tail(t, degrees):
    assert stats.norm.sf(abs(normal_score(t, degrees))) == pytest.approx(stats.t.sf(abs(t), degrees))
    assert t_value(normal_score(t, degrees), degrees) == pytest.approx(t, rel=1e-6, abs=1e-12)


def looks_of(values: np.ndarray, counts: tuple[int, ...], limits: tuple[float, ...]) -> list[Look]:
    """An experiment of known variance 1, up to where it stops."""
    looks = []
    for n, limit in zip(counts, limits, strict=True):
        looks.append(Look(n, float(values[:n].mean()), float(n**-0.5), 1e9, float(n), limit))
        if looks[-1].crossed:
            break
    return looks


@pytest.mark.parametrize("effect", [0.0, 0.6])
def test_tails_are_those_of_simulated_experiments(effect):
    """If an effect is the true one, the tail of what comes out is uniform: so intervals hold what they say."""
    counts, limits = (3, 6, 12), declared((3, 6, 12), 0.05)
    rng = np.random.default_rng(1)
    tails = [tail(looks_of(rng.normal(effect, 1, 12), counts, limits), effect) for _ in range(800)]
    assert stats.kstest(tails, "uniform").pvalue > 0.01


def test_ends_and_middle_have_their_tails():
    limits = declared((3, 6, 12), 0.05)
    looks = [Look(3, 0.9, 0.6, 7, 3.0, limits[0]), Look(6, 1.2, 0.4, 10, 6.0, limits[1])]
    low, effect, high = stagewise(looks, 0.9)
    assert [tail(looks, x) for x in (low, effect, high)] == pytest.approx([0.05, 0.5, 0.95], abs=2e-3)
    # Stopping early selects high estimates.
    assert low < effect < looks[-1].effect < high


def test_a_mirrored_experiment_has_the_mirrored_interval():
    limits = declared((3, 6), 0.05)
    looks = [Look(3, 0.5, 0.5, 8, 3.0, limits[0]), Look(6, 1.1, 0.35, 11, 6.0, limits[1])]
    mirrored = [Look(x.pairs, -x.effect, x.standard_error, x.degrees, x.information, x.limit) for x in looks]
    assert stagewise(mirrored, 0.9) == pytest.approx([-x for x in reversed(stagewise(looks, 0.9))], abs=1e-3)
    assert p_value(mirrored) == pytest.approx(p_value(looks), abs=1e-6)
