"""The curve of copies by quality against a numerical integral, its published example, and its limits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gristmill.tasks.tokens.mixture import Mixture, Upsampling
from gristmill.tasks.tokens.strategies import copies, most, stretches

BY = ["topic", {"column": "quality", "quantiles": 20}]


def means(power: float, discard: float, tokens: list[int], wanted: float, points: int = 200_000) -> list[float]:
    """Of the curve over each range, by the midpoints of many small intervals."""
    x = (np.arange(points) + 0.5) / points
    curve = np.where(x >= discard, np.maximum(x - discard, 0) ** power, 0)
    curve *= wanted / sum(tokens) / curve.mean()
    ends = np.cumsum([0, *tokens]) / sum(tokens)
    return [float(curve[(x >= low) & (x < high)].mean()) for low, high in zip(ends, ends[1:], strict=False)]


@pytest.mark.parametrize("power", [0, 0.5, 1, 2.7, 8])
@pytest.mark.parametrize("discard", [0, 0.4, 0.63])
def test_ranges_have_the_means_of_the_curve(power, discard):
    tokens = [900, 100, 3000, 1500, 2500, 700, 1300]
    found = copies(Upsampling(power=power, discard=discard, max_copies=50), tokens, 12_000)
    assert found == pytest.approx(means(power, discard, tokens, 12_000), rel=2e-3, abs=1e-3)


def test_the_published_example():
    """Figure 10: of twenty ranges the lowest eight are discarded, and the best is read seven times."""
    found = copies(Upsampling(), [1000] * 20, 20_000)
    assert found[:8] == [0] * 8 and all(found[8:])
    assert found[-1] == pytest.approx(7, rel=1e-9)
    assert sum(found) == pytest.approx(20)
    assert np.all(np.diff(found, 2)[7:] > 0)  # convex


def test_few_tokens_have_a_curve_too():
    """The limit does not bind then: the power is the largest that there is."""
    found = copies(Upsampling(), [1000] * 20, 2_000)
    assert found[-1] < 7 and found == pytest.approx(means(8, 0.4, [1000] * 20, 2_000), rel=2e-3, abs=1e-3)


SIZES = st.lists(st.integers(1, 10_000), min_size=1, max_size=20)


@given(SIZES, st.floats(0.001, 1), st.floats(0, 0.9), st.floats(0.5, 20))
def test_it_keeps_to_its_limits(tokens, filled, discard, limit):
    settings = Upsampling(discard=discard, max_copies=limit)
    wanted = most(settings, sum(tokens)) * filled
    found = copies(settings, tokens, wanted)
    assert np.dot(found, tokens) == pytest.approx(wanted)
    assert all(0 <= low <= high * (1 + 1e-9) for low, high in zip(found, [*found[1:], limit], strict=True))
    below = np.cumsum(tokens) / sum(tokens) <= discard
    assert not any(often for often, gone in zip(found, below, strict=True) if gone)


def test_more_than_there_is_says_so():
    with pytest.raises(ValueError, match="more than 100 tokens can give if the lowest 40% are discarded and at most 7"):
        copies(Upsampling(), [50, 50], 421)
    mixture = Mixture(by=BY, strategy="proportional", upsample={})
    with pytest.raises(ValueError, match="training takes 421 tokens .* mixture.upsample gives at most 420 of 100"):
        stretches(mixture, {"law/q01": 50, "law/q02": 50}, 421)


def test_groups_have_the_tokens_of_their_weights_and_ranges_those_of_the_curve():
    tokens = {f"{topic}/q{n:02d}": size for topic, size in (("law", 500), ("science", 90)) for n in range(1, 21)}
    tokens |= {"law/none": 1000, "games/q01": 700, "games/q02": 700}
    mixture = Mixture(by=BY, weights={"law": 1, "science": 3}, upsample={"max_copies": 5})
    [stretch] = stretches(mixture, tokens, 10_000)
    assert sum(stretch.shares.values()) == pytest.approx(1)
    shares = {topic: sum(s for n, s in stretch.shares.items() if n.startswith(topic)) for topic in ("law", "science")}
    # science has 1,800 tokens, of which three fifths are read five times at most
    assert shares["science"] == pytest.approx(5400 / 10_000) and shares["law"] == pytest.approx(4600 / 10_000)
    science = [stretch.shares.get(f"science/q{n:02d}", 0) * 10_000 / 90 for n in range(1, 21)]
    assert science == pytest.approx([0] * 8 + [5] * 12)
    lowest = copies(Upsampling(max_copies=5), [1000, *[500] * 20], 4600)
    assert [stretch.shares.get(f"law/q{n:02d}", 0) * 10_000 / 500 for n in range(1, 21)] == pytest.approx(lowest[1:])
    assert "law/none" not in stretch.shares and not any(name.startswith("games") for name in stretch.shares)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"by": ["topic"], "weights": {"law": 1}}, "the last column of mixture.by must have quantiles"),
        ({"by": BY, "weights": {"law/q01": 1}}, "law/q01 is a range: use only the names of groups"),
        ({"by": BY, "weights": {"law": 1}, "tokens": {"law": 5}}, "mixture.upsample and mixture.tokens exclude"),
        ({"by": BY, "weights": {"law": 1}, "phases": [{"share": 1}]}, "mixture.upsample and mixture.phases exclude"),
        ({"by": BY, "weights": {"law": 1}, "upsample": {"discard": 1}}, "less than 1"),
    ],
)
def test_what_excludes_it_says_so(given, said):
    with pytest.raises(ValidationError, match=said):
        Mixture(**({"upsample": {}} | given))
