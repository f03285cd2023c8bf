"""Which runs follow a law: budgets planted on a plateau, and grids without fault."""

import numpy as np
import pytest

from gristmill.flows.experiments.scaling.report import plateau
from gristmill.flows.stats.law import ScalingRuns, bootstrap, fit, optimum, optimum_intervals, token_cost
from tests.flows.scaling.grids import LAWS, SIZES, simulated

GRID = tuple(axis.ravel() for axis in np.meshgrid(SIZES, np.array([0.05, 0.1, 0.2, 0.4, 0.8, 1.6]) * 1e6))
SHORT = 0.1e6  # tokens of the longest run on the plateau


def on_plateau(law, noise: float, seed: int) -> ScalingRuns:
    """The shortest runs know how frequent tokens are, and nothing else: their loss is one whatever their size."""
    runs = simulated(law, noise, seed, GRID)
    level = float(law.loss(0.12e6, 0.2e6)) * 1.25
    factor = np.exp(noise * np.random.default_rng([seed, 1]).standard_normal(len(runs)))
    return ScalingRuns(runs.parameters, runs.tokens, np.where(runs.tokens <= SHORT, level * factor, runs.loss))


@pytest.mark.parametrize("law", LAWS)
def test_runs_on_the_plateau_are_left_out(law):
    runs = on_plateau(law, 0.003, 0)
    found = plateau(runs)
    assert np.array_equal(found.kept, runs.tokens > SHORT)
    assert abs(found.error) > 0.01
    assert fit(runs.take(found.kept)).law.beta == pytest.approx(law.beta, abs=0.08)
    assert abs(fit(runs).law.beta - law.beta) > 0.1, "with them the exponent is wrong"


@pytest.mark.extended
def test_runs_of_a_law_are_kept():
    kept = [plateau(simulated(LAWS[seed % 3], 0.005, seed, GRID)).kept.all() for seed in range(12)]
    assert sum(kept) >= 11


def test_three_budgets_are_too_few_to_test_one():
    three = tuple(axis.ravel() for axis in np.meshgrid(SIZES, np.array([0.2, 0.4, 0.8]) * 1e6))
    found = plateau(simulated(LAWS[0], 0.01, 0, three))
    assert found.tested == 0 and found.kept.all()


@pytest.mark.slow
def test_optima_are_covered_in_spite_of_a_plateau():
    """Of 90% intervals; with the runs of the plateau in the fit they are narrow around a wrong optimum."""
    cost = token_cost(SIZES, 6 * SIZES)
    held = {"all": [], "kept": []}
    dropped = []
    for law in LAWS:
        truth = optimum(law, cost, 1e13)
        for seed in range(20):
            clean = simulated(law, 0.003, seed, GRID)
            dropped.append(not plateau(clean).kept.all())
            runs = on_plateau(law, 0.003, seed)
            for name, some in (("all", runs), ("kept", runs.take(plateau(runs).kept))):
                fitted = fit(some)
                interval = optimum_intervals(fitted.law, bootstrap(fitted, 100, 0), cost, 1e13).tokens
                held[name].append(interval.low <= truth.tokens <= interval.high)
    print({name: np.mean(inside) for name, inside in held.items()}, "clean grids cut", np.mean(dropped))
    assert np.mean(held["kept"]) >= 0.8 and np.mean(held["all"]) < 0.5
    assert np.mean(dropped) <= 0.05
