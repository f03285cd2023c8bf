"""A batch_ramp from a planted gradient noise scale, beside the rule stated on each batch alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.flows.experiments.planning.laws import ramp
from gristmill.samples.batch_plan import BatchPlan
from gristmill.training.config import TrainingConfig

SEQ = 16


def lines(scales, batch):
    """metrics.jsonl of a run with this noise scale behind each step; None: none was measured."""
    return [
        {"step": step, "train/tokens": step * batch * SEQ} | ({} if scale is None else {"train/noise_scale": scale})
        for step, scale in enumerate(scales, 1)
    ]


def training(steps, batch, warmup=0):
    return TrainingConfig(steps=steps, batch=batch, warmup_steps=warmup)


def test_a_scale_that_doubles_twice_by_hand():
    found = ramp(lines([20] * 10 + [36] * 20 + [70] * 30, 4), training(60, 4), SEQ)
    # a quarter of 20 is a batch of 4, of 36 one of 8, of 70 one of 16
    assert found.stages == ((11 * 4 * SEQ, 2), (31 * 4 * SEQ, 4))
    assert found.setting == "[{tokens: 704, times: 2}, {tokens: 1984, times: 4}]"
    # 11 batches of 4, then 10 of 8 are the 31 * 4 samples of the second stage's begin, and 116 samples are left
    assert (found.steps, found.fixed_steps) == (11 + 10 + 8, 60)
    assert (found.first, found.last) == (20, 70)


def test_a_scale_that_falls_again_and_one_of_the_warm_up_do_not_count():
    scales = [900] * 5 + [10] * 10 + [40] * 5 + [10] * 10 + [40] * 10
    found = ramp(lines(scales, 4), training(40, 4, warmup=5), SEQ)
    assert found.stages == ((31 * 4 * SEQ, 2),)
    assert found.first == 10


@pytest.mark.parametrize("scales", [[None] * 20, []])
def test_a_run_without_a_noise_scale_has_no_ramp(scales):
    assert ramp(lines(scales, 4), training(20, 4), SEQ) is None


@given(st.lists(st.none() | st.floats(1, 600), min_size=20, max_size=80), st.integers(1, 7), st.integers(0, 9))
def test_batches_are_the_largest_that_the_rule_allows(scales, batch, warmup):
    """Of each point: the largest power of two whose batch is at most a quarter of that noise scale and all later
    ones."""
    steps = len(scales)
    found = ramp(lines(scales, batch), training(steps, batch, warmup), SEQ)
    seen = {step: scale for step, scale in enumerate(scales, 1) if scale is not None and step > warmup}
    if not seen:
        assert found is None
        return
    expected, allowed = [], 1
    for step in seen:
        lowest = min(scale for at, scale in seen.items() if at >= step)
        before = allowed
        while 2 * allowed * batch <= lowest / 4:
            allowed *= 2
        if allowed > before:
            expected.append((step * batch * SEQ, allowed))
    assert found.stages == tuple(expected[: len(found.stages)])
    for left_out in range(len(found.stages) + 1, len(expected) + 1):  # only stages that would begin at the end
        assert BatchPlan(batch, SEQ, expected[:left_out]).samples[-1] >= steps * batch
    plan = BatchPlan(batch, SEQ, found.stages)
    assert 0 <= plan.first(found.steps) - steps * batch < plan.sizes[-1]
    stages = [{"tokens": tokens, "times": times} for tokens, times in found.stages]
    assert TrainingConfig(steps=found.steps, batch=batch, warmup_steps=0, batch_ramp=stages).late_stage(SEQ) is None
