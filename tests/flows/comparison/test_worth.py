"""The worth of an effect in training tokens, from learning curves that are known."""

import numpy as np
import pytest

from gristmill.flows.stats.verdict import ratio, worth


def test_an_effect_on_a_known_curve_is_worth_its_tokens():
    """A base that loses .2 for each factor e: an effect of .2 ln 1.11 is worth 11% of the tokens."""
    full = np.array([2.0, 2.01, 1.99])
    half = full + 0.2 * np.log(2) + np.array([1e-6, 0, -1e-6])
    effect = 0.2 * np.log(1.11)
    found = worth((effect * 0.9, effect, effect * 1.2), half, full, 0.9)
    assert found.share == pytest.approx(0.11, abs=1e-5)
    assert (found.low, found.high) == pytest.approx((1.11**0.9 - 1, 1.11**1.2 - 1), abs=1e-3)
    assert found.sentence(0.9) == "worth 11% of the training tokens (90% interval 10% to 13%)"
    lost = worth((-effect * 1.2, -effect, -effect * 0.9), half, full, 0.9)
    assert lost.share == pytest.approx(1 / 1.11 - 1, abs=1e-5)
    assert lost.sentence(0.9) == "costing 10% of the training tokens (90% interval 9% to 12%)"


def test_a_large_effect_is_not_extrapolated():
    full = np.array([2.0, 2.0, 2.0])
    half = full + 0.1 * np.array([0.99, 1, 1.01])
    assert "more than twice" in worth((0.2, 0.3, 0.4), half, full, 0.9).sentence(0.9)
    assert "more than half" in worth((-0.4, -0.3, -0.2), half, full, 0.9).sentence(0.9)


def test_a_curve_that_is_flat_within_noise_is_refused_in_a_sentence():
    found = worth((0.01, 0.02, 0.03), np.array([2.0, 2.1, 1.9]), np.array([2.0, 1.9, 2.05]), 0.9)
    assert found.share is None
    assert "from half to all tokens, the base gains 0.0167 bits per byte, plus or minus" in found.sentence(0.9)


@pytest.mark.parametrize("mean", [0.02, 0.0, -0.01])
def test_the_interval_of_a_ratio_holds_it_as_often_as_it_says(mean):
    rng, covered = np.random.default_rng(0), 0
    for _ in range(4000):
        a, b = rng.normal(mean, 0.004), rng.normal(0.2, 0.02)
        low, _, high = ratio((a - 1.645 * 0.004, a, a + 1.645 * 0.004), (b - 1.645 * 0.02, b, b + 1.645 * 0.02))
        covered += low <= mean / 0.2 <= high
    assert covered / 4000 == pytest.approx(0.9, abs=0.015)
