"""A threshold carried over to another language: by trying every value, and on distributions that are known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.flows.reports.thresholds import match, share

values = st.one_of(
    st.lists(st.integers(-20, 20), min_size=1, max_size=40).map(lambda v: np.array(v, np.int64)),
    st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=40).map(lambda v: np.array(v, np.float64)),
)


@given(values, st.floats(0, 1), st.sampled_from(["low", "high"]))
def test_no_other_threshold_drops_a_share_nearer_to_the_wanted_one(sample, wanted, end):
    found = match(sample, wanted, end)
    assert found.drops == pytest.approx(share(sample, found.threshold, end))
    shares = [share(sample, value, end) for value in sample.tolist()]
    nearest = min(abs(s - wanted) for s in shares)
    assert abs(found.drops - wanted) == pytest.approx(nearest)
    assert found.drops <= min(s for s in shares if abs(s - wanted) <= nearest + 1e-12) + 1e-12
    if sample.dtype == np.int64:
        assert found.threshold == int(found.threshold)


@pytest.mark.parametrize("end", ["low", "high"])
@pytest.mark.parametrize(("scale", "shift"), [(1, 0), (2.5, 0), (1, 4), (0.1, -3)])
def test_a_shifted_and_scaled_distribution_has_its_threshold_shifted_and_scaled(end, scale, shift):
    draw = np.random.default_rng(3)
    reference = draw.normal(5, 2, 20_000)
    other = scale * draw.normal(5, 2, 30_000) + shift
    for threshold in (2.5, 5.0, 8.0):
        found = match(other, share(reference, threshold, end), end)
        assert found.threshold == pytest.approx(scale * threshold + shift, abs=0.1 * scale)


def test_of_integers_an_integer():
    reference = np.random.default_rng(0).integers(0, 100, 5000)
    found = match(3 * reference, share(reference, 40, "low"), "low")
    assert 3 * 39 < found.threshold <= 3 * 40 and found.threshold == 120
    assert match(3 * reference, share(reference, 40, "high"), "high").threshold in (120, 121, 122)


def test_ties_go_together():
    sample = np.array([0.0] * 70 + [1.0] * 30)
    assert match(sample, 0.2, "high") == (0.0, 0.3)
    assert match(sample, 0.29, "high").drops == 0.3
    assert match(sample, 0.05, "high").drops == 0.0
    assert match(sample, 0.6, "low").drops == 0.7
    assert match(np.full(9, 4.0), 0.5, "low") == (4.0, 0.0)


@pytest.mark.parametrize(
    ("sample", "wanted", "end", "threshold"),
    [
        ([0.1234, 0.5678, 0.6321], 1 / 3, "low", 0.5),
        ([0.1234, 0.5678, 0.6321], 1 / 3, "high", 0.6),
        ([0.1234, 0.5678, 0.5679], 2 / 3, "low", 0.5679),
        ([117, 123, 300], 1 / 3, "low", 120),
        ([0.1234, 0.5], 0.0, "low", 0.12),
        ([0.1234, 0.5678], 0.0, "high", 0.57),
        ([-7.35, -2.0], 0.5, "low", -2.0),
    ],
)
def test_the_threshold_has_the_fewest_digits_that_drop_the_same(sample, wanted, end, threshold):
    assert match(np.array(sample), wanted, end).threshold == threshold
