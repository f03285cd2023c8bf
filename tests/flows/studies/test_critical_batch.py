"""The critical batch against planted laws: found with an interval, and refused where the batches do not show it."""

import numpy as np
import pytest

from gristmill.flows.stats.critical_batch import critical_batch

BATCHES = np.array([4.0, 8, 16, 32, 64, 128])


def losses(critical: float, noise: float, rng: np.random.Generator, pairs: int = 6, slope: float = 0.25) -> np.ndarray:
    """Runs of pairs that share half of their noise."""
    law = 2.5 + slope * np.log1p(BATCHES / critical)
    return law + noise * (rng.standard_normal((pairs, 1)) + rng.standard_normal((pairs, len(BATCHES))))


def gains(noise: float, rng: np.random.Generator, slope: float = 0.25) -> np.ndarray:
    """Of runs on half of the tokens."""
    return slope * np.log(2) + noise * rng.standard_normal(4)


@pytest.mark.parametrize("critical", [6.0, 20.0, 50.0])
def test_a_planted_critical_batch_is_found(critical):
    rng = np.random.default_rng(0)
    found = critical_batch(BATCHES, losses(critical, 5e-4, rng), gains(5e-4, rng))
    assert found.value == pytest.approx(critical, rel=0.05) and found.slope == pytest.approx(0.25, rel=0.03)
    assert found.low <= found.value <= found.high


@pytest.mark.extended
@pytest.mark.parametrize("critical", [10.0, 30.0])
def test_intervals_hold_the_planted_batch_as_often_as_they_say(critical):
    held = []
    for seed in range(400):
        rng = np.random.default_rng(seed)
        found = critical_batch(BATCHES, losses(critical, 0.006, rng), gains(0.006, rng))
        if found.value is not None:
            held.append(found.low <= critical <= found.high)
    assert len(held) > 350
    # three standard errors of 400 draws below 90%, and what six pairs cost
    assert np.mean(held) >= 0.83


def test_batches_that_do_not_show_it_are_refused_with_the_reason():
    rng = np.random.default_rng(3)
    for critical, noise in ((1e5, 0.002), (20.0, 0.5)):
        refused = [critical_batch(BATCHES, losses(critical, noise, rng), gains(0.002, rng)) for _ in range(50)]
        assert np.mean([one.value is None for one in refused]) > 0.7
        assert all(one.reason for one in refused if one.value is None)
    assert (
        "does not rise with the batch" in critical_batch(BATCHES, -losses(20.0, 0.001, rng), gains(0.001, rng)).reason
    )
    with pytest.raises(ValueError, match="use 3 or more of each"):
        critical_batch(BATCHES[:2], np.zeros((6, 2)), np.ones(4))


def test_losses_that_do_not_follow_the_law_are_refused():
    """The largest batches have too few steps to learn: their losses rise faster than any factor of tokens explains."""
    refused = []
    for seed in range(50):
        rng = np.random.default_rng(seed)
        bent = losses(20.0, 0.004, rng) + 0.3 * (BATCHES / BATCHES[-1]) ** 2
        refused.append(critical_batch(BATCHES, bent, gains(0.004, rng)).reason)
    assert sum("do not follow its law" in reason for reason in refused) >= 45
