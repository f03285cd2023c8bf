"""Distributions of columns beside a count of all values."""

from collections import Counter
from decimal import Decimal
from math import ceil

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.flows.stats.distributions import MAX_TEXTS, Distribution

NUMBERS = st.lists(st.one_of(st.none(), st.integers(-2000, 2000), st.just(float("nan"))), max_size=60)


def rounded(value: float) -> float:
    """Toward zero to eleven binary digits."""
    mantissa, exponent = np.frexp(value)
    return float(np.ldexp(np.trunc(mantissa * 2**11), exponent - 11))


@given(NUMBERS, NUMBERS, st.sampled_from([0.01, 0.25, 0.5, 0.99, 1.0]))
def test_numbers_are_those_of_a_count_of_all(first, second, share):
    whole = Distribution()
    for values in (first, second):
        part = Distribution()
        part.add(pa.array([None if value is None else float(value) for value in values], pa.float64()))
        whole.join(part)
    numbers = sorted(float(value) for value in first + second if value is not None and value == value)
    assert (whole.documents, whole.missing) == (len(numbers), len(first) + len(second) - len(numbers))
    if numbers:
        at = max(1, ceil(round(share * len(numbers), 6))) - 1
        assert whole.quantile(share) == rounded(numbers[at])
        assert whole.mean == pytest.approx(np.mean(numbers))
    else:
        assert whole.quantile(share) is whole.mean is None


@given(st.lists(st.one_of(st.none(), st.text("abc", max_size=2)), max_size=80))
def test_texts_are_counted_exactly_up_to_ten_thousand(values):
    found = Distribution()
    found.add(pa.array(values, pa.string()))
    assert dict(found.most_common()) == Counter(value for value in values if value is not None)
    assert (found.error, found.missing) == (0, values.count(None))


def test_frequent_texts_are_found_among_many_rare_ones():
    """A count is too low by at most `error`, which is at most a share of 1 / MAX_TEXTS of the documents."""
    draw = np.random.default_rng(1)
    values = [f"rare {n}" for n in range(40_000)] + ["common"] * 3_000 + ["usual"] * 500
    draw.shuffle(values)
    found = Distribution()
    for begin in range(0, len(values), 7_000):
        found.add(pa.array(values[begin : begin + 7_000]))
    common = dict(found.most_common(2))
    assert 0 < found.error <= len(values) / MAX_TEXTS
    assert 3_000 - found.error <= common["common"] <= 3_000
    assert 500 - found.error <= common["usual"] <= 500


def test_infinite_numbers_have_no_mean_and_decimals_are_numbers():
    infinite, decimals = Distribution(), Distribution()
    infinite.add(pa.array([float("inf"), 1.0, float("-inf"), 1e308, 1e308]))
    assert (infinite.mean, infinite.documents) == (None, 5)
    decimals.add(pa.array([Decimal("1.5"), Decimal("2.5"), None]))
    assert (decimals.mean, decimals.quantile(1.0), decimals.missing) == (2.0, 2.5, 1)
