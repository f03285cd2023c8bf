"""Group-sequential boundaries against published tables and an independent integral."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from gristmill.flows.stats.sequential import crossing, declared, limits, spent


# Jennison and Turnbull (2000), tables 2.1 and 2.3: two-sided tests of .05 at equal steps.
@pytest.mark.parametrize(("looks", "constant"), [(2, 2.178), (3, 2.289), (4, 2.361), (5, 2.413), (10, 2.555)])
def test_pocock_constants_spend_a_twentieth(looks, constant):
    z = [constant] * looks
    assert crossing(range(1, looks + 1), [-x for x in z], z).sum() == pytest.approx(0.05, abs=1e-4)


@pytest.mark.parametrize(("looks", "constant"), [(2, 1.977), (3, 2.004), (4, 2.024), (5, 2.040), (10, 2.087)])
def test_obrien_fleming_constants_spend_a_twentieth(looks, constant):
    z = [constant * np.sqrt(looks / k) for k in range(1, looks + 1)]
    assert crossing(range(1, looks + 1), [-x for x in z], z).sum() == pytest.approx(0.05, abs=1e-4)


def test_limits_are_those_of_the_published_program():
    """Reboussin, DeMets, Kim and Lan (2000), the program ld98: five equal looks, O'Brien-Fleming-like spending."""
    times = np.arange(1, 6) / 5
    error = 4 * norm.sf(norm.isf(0.0125) / np.sqrt(times))
    assert limits(tuple(times), tuple(error)) == pytest.approx((4.8769, 3.3569, 2.6803, 2.2898, 2.0310), abs=2e-4)


def test_declared_limits_spend_what_they_may():
    looks = (3, 6, 12)
    z = declared(looks, 0.05)
    probabilities = crossing(looks, [-x for x in z], z)
    assert probabilities.sum(axis=1).cumsum() == pytest.approx([spent(0.05, n / 12) for n in looks], abs=1e-6)
    assert probabilities[:, 0] == pytest.approx(probabilities[:, 1])


def test_one_look_is_the_plain_test():
    assert declared((5,), 0.05) == pytest.approx((norm.isf(0.025),))


@pytest.mark.parametrize("information", [(1.0, 1.5, 4.0), (1.0, 1.01, 1.02)])
def test_crossing_is_the_integral_of_the_joint_normal(information):
    lower, upper = (-2.2, -1.0, -1.9), (1.4, 2.5, 0.7)
    covariance = np.array([[np.sqrt(min(a, b) / max(a, b)) for a in information] for b in information])

    def inside(looks: int, low, high) -> float:
        part = multivariate_normal(np.zeros(looks), covariance[:looks, :looks], seed=1, abseps=1e-6, releps=1e-6)
        return part.cdf(high, lower_limit=low)

    found = crossing(information, lower, upper)
    for k in (1, 2):
        low, high = list(lower[: k + 1]), list(upper[: k + 1])
        assert found[k, 1] == pytest.approx(inside(k + 1, [*low[:k], high[k]], [*high[:k], 40.0]), abs=2e-5)
        assert found[k, 0] == pytest.approx(inside(k + 1, [*low[:k], -40.0], [*high[:k], low[k]]), abs=2e-5)


def test_documents_that_all_looks_share_do_not_raise_the_error():
    """Information then grows more slowly than pairs do."""
    looks, z = (3, 6, 12), declared((3, 6, 12), 0.05)
    for documents in (0.01, 0.1, 1.0, 10.0):
        information = [1 / (documents + 1 / n) for n in looks]
        assert crossing(information, [-x for x in z], z).sum() <= 0.05


def test_information_that_does_not_rise_is_refused():
    with pytest.raises(ValueError, match="must increase"):
        limits((1.0, 1.0), (0.01, 0.05))
