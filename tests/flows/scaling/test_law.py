"""Scaling laws against planted ones, against a search over all five parameters, and intervals against simulations."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import least_squares
from scipy.stats import binom

from gristmill.flows.stats.law import Fit, ScalingRuns, bootstrap, fit
from tests.flows.scaling.grids import LAWS, SQUARE, TARGETS, capped, simulated


@pytest.mark.parametrize("law", LAWS)
def test_a_planted_law_without_noise_is_found(law):
    found = fit(simulated(law, 0, 0)).law
    assert [found.E, found.alpha, found.beta] == pytest.approx([law.E, law.alpha, law.beta], abs=2e-3)
    assert found.loss(*TARGETS[0]) == pytest.approx(law.loss(*TARGETS[0]), rel=1e-4)


def huber(found: Fit) -> float:
    """What the fit minimises, written down anew."""
    size, bound = (
        np.abs(found.law.loss(found.runs.parameters, found.runs.tokens) / found.runs.loss - 1),
        found.threshold,
    )
    return np.where(size <= bound, size**2 / 2, bound * (size - bound / 2)).sum()


@pytest.mark.parametrize("seed", range(2))
def test_no_search_over_all_five_parameters_finds_a_better_law(seed):
    found = fit(simulated(LAWS[seed % 3], 0.01, seed))
    runs = found.runs
    log_n, log_d = np.log(runs.parameters / 1e5), np.log(runs.tokens / 3e5)

    def losses(x):
        constant, size, data = np.exp(x[:3])
        return constant + size * np.exp(-x[3] * log_n) + data * np.exp(-x[4] * log_d)

    rng = np.random.default_rng(seed)
    starts = np.column_stack([rng.uniform(-2, 1, (6, 3)), rng.uniform(0.1, 1, (6, 2))])
    direct = [
        least_squares(
            lambda x: losses(x) / runs.loss - 1, start, loss="huber", f_scale=found.threshold, xtol=1e-12, ftol=1e-12
        )
        for start in starts
    ]
    best = min(direct, key=lambda one: one.cost)
    assert huber(found) <= best.cost * (1 + 1e-3)
    # E is known least; the law where there are runs is the same
    assert found.law.loss(runs.parameters, runs.tokens) == pytest.approx(losses(best.x), rel=1e-3)


def test_a_run_that_went_wrong_moves_the_law_little():
    runs = simulated(LAWS[0], 0.003, 1)
    loss = runs.loss.copy()
    loss[5] *= 1.3
    honest, spoilt = fit(runs), fit(ScalingRuns(runs.parameters, runs.tokens, loss))
    moved = [abs(spoilt.law.loss(n, d) / honest.law.loss(n, d) - 1) for n, d in zip(*SQUARE, strict=True)]
    assert max(moved) < 0.01
    assert np.abs(spoilt.errors).argmax() == 5


@settings(max_examples=5, deadline=None)
@given(unit=st.floats(0.01, 100), sizes=st.floats(0.01, 1e4), tokens=st.floats(0.01, 1e4))
def test_units_do_not_matter(unit, sizes, tokens):
    runs = simulated(LAWS[0], 0.01, 3)
    other = ScalingRuns(runs.parameters * sizes, runs.tokens * tokens, runs.loss * unit)
    first, second = fit(runs), fit(other)
    n, d = TARGETS[1]
    here, there = first.prediction(n, d), second.prediction(n * sizes, d * tokens)
    assert [there.value, there.low, there.high] == pytest.approx(
        [here.value * unit, here.low * unit, here.high * unit], rel=1e-3
    )
    assert second.law.alpha == pytest.approx(first.law.alpha, rel=1e-2)


def test_the_noise_of_a_run_is_found():
    found = [fit(simulated(LAWS[0], 0.01, seed)).deviation for seed in range(12)]
    # 11 degrees of freedom: one estimate is off by a fifth, their root mean square by a sixteenth
    assert np.sqrt(np.mean(np.square(found))) == pytest.approx(0.01, rel=0.2)


def test_runs_that_determine_no_law_are_refused():
    n, d = SQUARE
    whole = simulated(LAWS[0], 0.01, 0)
    with pytest.raises(ValueError, match="6 runs are too few"):
        fit(whole.take(np.arange(6)))
    with pytest.raises(ValueError, match="2 different sizes"):
        fit(whole.take(n <= 0.06e6))
    with pytest.raises(ValueError, match="2 different token budgets"):
        fit(whole.take(d <= 0.2e6))
    with pytest.raises(ValueError, match="not positive"):
        fit(ScalingRuns(n, d, np.where(n < 1e5, np.nan, whole.loss)))


def test_a_bootstrap_draws_whole_runs_and_is_the_same_each_time():
    found = fit(simulated(LAWS[1], 0.01, 2))
    laws = bootstrap(found, 10, seed=5)
    assert laws == bootstrap(found, 10, seed=5)
    assert len({one.alpha for one in laws}) == 10


def covered(law, noise, where, seeds, targets=TARGETS):
    """For each seed and target whether a run with noise of its own lies inside the 90% interval."""
    found = []
    for seed in seeds:
        fitted = fit(simulated(law, noise, seed, where))
        rng = np.random.default_rng([seed, 1])
        for n, d in targets:
            one, loss = fitted.prediction(n, d), law.loss(n, d) * np.exp(noise * rng.standard_normal())
            found.append(one.low <= loss <= one.high)
    return np.reshape(found, (len(seeds), len(targets)))


@pytest.mark.extended
def test_intervals_of_forecasts_hold():
    inside = covered(LAWS[0], 0.01, SQUARE, range(40), TARGETS[1:2])
    assert binom.cdf(inside.sum(), 40, 0.9) > 1e-3
    assert inside.sum() < 40  # an interval in which everything lies says nothing


@pytest.mark.slow
def test_coverage_of_forecasts_at_ten_times_the_compute():
    shares = []
    for law in LAWS:
        for noise in (0.003, 0.01):
            for name, where in (("square", SQUARE), ("capped", capped())):
                inside = covered(law, noise, where, range(100))
                shares.append(inside)
                print(f"alpha {law.alpha} noise {noise} {name}: {inside.mean(axis=0).round(3)}", flush=True)
    whole = np.concatenate(shares)
    print(f"{len(whole)} grids, {whole.size} forecasts: {whole.mean():.3f}; by target {whole.mean(axis=0).round(3)}")
    assert 0.87 <= whole.mean() <= 0.93
