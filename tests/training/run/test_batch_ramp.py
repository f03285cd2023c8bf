"""Batches that grow: which samples each has, what they are learned with, and a resume within the ramp."""

import math

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file

from gristmill.samples.batch_plan import BatchPlan
from gristmill.samples.order import Order
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.training.config import TrainingConfig
from gristmill.training.run.loop import train
from tests.training.run.test_launch import assert_close, metrics, started

pytestmark = pytest.mark.extended

RAMP = [{"tokens": 1300, "times": 2}, {"tokens": 4000, "times": 3}]
TRAINING = {"steps": 32, "batch": 3, "batch_ramp": RAMP, "checkpoint_every": 4, "eval_every": 8, "sample_tokens": 0}


@pytest.mark.parametrize(
    "batch, seq_len, stages",
    [(3, 32, [(1300, 2), (4000, 3)]), (8, 16, [(1, 2)]), (5, 7, []), (4, 8, [(100, 2), (101, 3), (102, 9)])],
)
def test_samples_of_batches_are_those_of_counting_tokens(batch, seq_len, stages):
    plan, sample = BatchPlan(batch, seq_len, stages), 0
    for number in range(60):
        size = batch * max([times for tokens, times in stages if sample * seq_len >= tokens], default=1)
        assert (plan.first(number), plan.size(number)) == (sample, size)
        assert plan.multiple(number) * batch == size
        sample += size


def test_any_number_of_ranks_reads_the_same_batches_without_a_gap(corpus):
    order = Order(load_training_manifest(corpus), seq_len=32, batch=BatchPlan(3, 32, [(1300, 2), (4000, 3)]), seed=1)
    plain = Order(load_training_manifest(corpus), seq_len=32, batch=1, seed=1)
    rows = [row.tolist() for number in range(25) for row in order.batch(number)]
    assert rows == [plain.batch(sample)[0].tolist() for sample in range(len(rows))]
    for number in (0, 13, 14, 24):
        whole = order.batch(number)
        for world in (2, 4):
            for rank in range(world):
                assert (order.batch(number, rank, world) == whole[rank::world]).all()


@pytest.fixture(scope="module")
def ramped(make_run, tmp_path_factory):
    run = make_run(tmp_path_factory.mktemp("ramp"), training=TRAINING)
    train(run)
    return run


def test_batches_rates_and_tokens_are_those_of_the_ramp(ramped):
    lines, plan = metrics(ramped.out), BatchPlan(3, 32, [(1300, 2), (4000, 3)])
    sizes = [plan.size(step) for step in range(32)]
    assert sorted(set(sizes)) == [3, 6, 9]
    assert [line["train/batch"] for line in lines] == sizes
    assert lines[-1]["train/tokens"] == sum(sizes) * 32 == ramped.training.token_budget(32)
    total, warmup = sum(sizes), sum(sizes[:4])
    for step, line in enumerate(lines):
        done = sum(sizes[: step + 1])
        share = (done - warmup) / (total - warmup)
        shape = done / warmup if done < warmup else 1 - share
        assert line["train/learning_rate"] == pytest.approx(0.01 * shape * math.sqrt(sizes[step] / 3))


def test_a_resume_within_the_ramp_gives_the_same_bytes(ramped, make_run, tmp_path):
    """From step 16, in the second stage."""
    start = ramped.out / "checkpoints" / "step-00000016"
    assert 6 == metrics(ramped.out)[15]["train/batch"]
    run = make_run(tmp_path, training=TRAINING, resume_from=start)
    train(run)
    assert metrics(tmp_path) == metrics(ramped.out)[16:]
    ours, expected = (load_file(out / "model.safetensors") for out in (tmp_path, ramped.out))
    assert all(torch.equal(ours[name], expected[name]) for name in expected)


@pytest.mark.slow
def test_two_processes_ramp_like_one_and_resume_to_the_same_bytes(ramped, make_run, tmp_path):
    two = make_run(tmp_path / "two", training=TRAINING)
    assert started(two, 2) == 0
    assert_close(metrics(two.out)[:5], metrics(ramped.out)[:5], 5e-6)
    assert_close(metrics(two.out), metrics(ramped.out), 1e-4)
    start = two.out / "checkpoints" / "step-00000016"
    again = make_run(tmp_path / "again", training=TRAINING, resume_from=start)
    assert started(again, 2) == 0
    assert metrics(again.out) == metrics(two.out)[16:]
    ours, expected = (load_file(run.out / "model.safetensors") for run in (again, two))
    assert all(torch.equal(ours[name], expected[name]) for name in expected)


def test_stages_that_do_not_rise_or_come_too_late_are_refused(make_run, tmp_path):
    with pytest.raises(ValidationError, match="both must increase from stage to stage"):
        TrainingConfig(batch_ramp=[{"tokens": 100, "times": 4}, {"tokens": 200, "times": 2}])
    with pytest.raises(ValidationError, match="lower its tokens or raise steps"):
        make_run(tmp_path, training={**TRAINING, "batch_ramp": [{"tokens": 32 * 3 * 32, "times": 2}]})


@pytest.mark.parametrize("rule, factor", [("square_root", 2.0), ("linear", 4.0), ("none", 1.0)])
def test_rules_of_the_rate(rule, factor):
    assert TrainingConfig(batch_rate=rule).batch_rate_factor(4) == factor
