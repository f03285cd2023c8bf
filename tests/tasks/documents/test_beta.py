"""The beta distribution and what follows from it, against scipy's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats
from scipy.integrate import quad

from gristmill.tasks.documents import beta

SHAPES = st.floats(0.5, 5000, allow_nan=False)


@settings(max_examples=200, deadline=None)
@given(SHAPES, SHAPES, st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_the_cumulative_function_is_that_of_scipy(a, b, x):
    x = np.array(x)
    expected = special.betainc(a, b, x)
    assert np.allclose(beta.beta_cdf(a, b, x), expected, rtol=1e-8, atol=1e-13)


@pytest.mark.parametrize(("a", "b"), [(1e5, 2e5), (1e6, 3.0), (0.5, 1e6)])
def test_large_shapes_converge(a, b):
    x = stats.beta(a, b).ppf([1e-6, 0.01, 0.5, 0.99])
    assert np.allclose(beta.beta_cdf(a, b, x), special.betainc(a, b, x), rtol=1e-6)


@pytest.mark.parametrize("freedom", [1.0, 2.59, 10.0, 999.0])
def test_students_t_is_that_of_scipy(freedom):
    t = np.array([-np.inf, -50, -6, -1, -1e-3, 0, 0.5, 7, np.inf])
    assert np.allclose(beta.student_cdf(t, freedom), stats.t.cdf(t, freedom), rtol=1e-9, atol=0)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 3000).flatmap(lambda draws: st.tuples(st.integers(0, draws), st.just(draws))))
def test_intervals_are_those_of_scipy(counts):
    test = stats.binomtest(*counts)
    for name, interval in (("exact", beta.exact_interval), ("wilson", beta.wilson_interval)):
        expected = test.proportion_ci(0.95, name)
        assert np.allclose(interval(*counts, 0.95), (expected.low, expected.high), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("hits", "draws", "middle", "spread", "freedom"),
    [
        (0, 10, -1.0, 0.5, 3.0),
        (7, 100, 0.5, 1.0, 1.0),
        (30, 1000, 1.5, 0.7, 12.0),
        (900, 90_000, -2.0, 0.6, 7.4),
        (214_227, 923_860, -0.4, 0.3, 10.7),
    ],
)
def test_the_chance_of_few_hits_is_the_integral_over_shares(hits, draws, middle, spread, freedom):
    def integrand(t):
        return stats.binom.cdf(hits, draws, special.expit(middle + spread * t)) * stats.t.pdf(t, freedom)

    edge = (special.logit((hits + 0.5) / draws) - middle) / spread
    expected = sum(
        quad(integrand, low, high, epsabs=0, epsrel=1e-9, limit=500)[0]
        for low, high in [(-np.inf, edge - 3), (edge - 3, edge), (edge, edge + 3), (edge + 3, np.inf)]
    )
    assert beta.chance_of_few(hits, draws, middle, spread, freedom) == pytest.approx(expected, rel=1e-4)


def test_a_share_without_spread_is_the_binomial_distribution():
    found = beta.chance_of_few(2, 100, -2.0, 0.0, 5.0)
    assert found == pytest.approx(stats.binom.cdf(2, 100, special.expit(-2.0)), rel=0.05)
    assert beta.chance_of_few(5, 5, 0.0, 1.0, 3.0) == 1
