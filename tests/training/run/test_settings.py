"""Settings of one run that must not change what is learned, and those that change it as they say."""

import json

import pytest
import torch

from gristmill.samples.order import Order
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.training import batches as ahead
from gristmill.training.run.loop import train
from gristmill.training.step.state import LossScale
from gristmill.training.world import processes
from tests.training.run.test_launch import assert_close, metrics, started

pytestmark = pytest.mark.extended

NEUTRAL = {
    "in pieces": {"loss_chunks": 3},
    "recomputed": {"recompute": "full"},
    "recomputed but for products": {"recompute": "selective"},
    "read seldom": {"log_every": 7},
    "compiled": {"compile": True},
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == "compiled" else ()) for name in NEUTRAL]
)
def test_what_saves_memory_or_time_changes_nothing(name, make_run, run_small, tmp_path):
    train(make_run(tmp_path, training=NEUTRAL[name]))
    ours, expected = metrics(tmp_path), metrics(run_small.out)
    assert_close(ours[:10], expected[:10], 1e-6)
    assert_close(ours, expected, 1e-4)


def test_losses_read_seldom_are_the_same_bytes(make_run, run_small, tmp_path):
    train(make_run(tmp_path, training={"log_every": 13}))
    assert (tmp_path / "metrics.jsonl").read_bytes() == (run_small.out / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize("precision, tolerance", [("bf16", 0.02), ("fp16", 0.005)])
def test_half_precision_learns_the_same(precision, tolerance, make_run, run_small, tmp_path):
    result = train(make_run(tmp_path, training={"precision": precision}))
    expected = json.loads((run_small.out / "result.json").read_text())
    assert result["heldout/loss"] == pytest.approx(expected["heldout/loss"], rel=tolerance)
    assert result["heldout/loss"] != expected["heldout/loss"]


def test_fp8_rounds_the_blocks_and_learns(make_run, run_small, tmp_path):
    pytest.importorskip("torchao", reason="fp8 needs torchao: pip install 'gristmill[fp8]'")
    result = train(make_run(tmp_path, training={"fp8_min_dim": 32}))
    expected = json.loads((run_small.out / "result.json").read_text())
    assert result["heldout/loss"] == pytest.approx(expected["heldout/loss"], rel=0.05)
    assert result["heldout/loss"] != expected["heldout/loss"]


def test_fp8_for_no_matrix_is_an_error(make_run, tmp_path):
    pytest.importorskip("torchao", reason="fp8 needs torchao: pip install 'gristmill[fp8]'")
    with pytest.raises(ValueError, match="fp8_min_dim is 64, but no matrix"):
        train(make_run(tmp_path, training={"fp8_min_dim": 64}))


def test_the_loss_scale_falls_at_once_and_rises_slowly():
    scale = LossScale(True, torch.device("cpu"))
    values = []
    for step in range(4005):
        scale.update(torch.tensor(step in (0, 1, 2500)))
        values.append(scale.value.item())
    assert values[:3] == [32768.0, 16384.0, 16384.0]
    assert (values[2000], values[2001], values[2500], values[4004]) == (16384.0, 32768.0, 16384.0, 16384.0)


def test_an_fp16_run_skips_what_overflows_and_goes_on(make_run, tmp_path, monkeypatch):
    monkeypatch.setattr("gristmill.training.step.state.FIRST", 2.0**24)  # of which the gradients of this run overflow
    result = train(make_run(tmp_path, training={"precision": "fp16"}))
    lines = metrics(tmp_path)
    assert lines[0]["train/skipped_steps"] == 1 and "train/grad_norm" not in lines[0]
    assert lines[1]["train/loss_scale"] == 2.0**23
    assert result["heldout/loss"] < lines[0]["train/loss"] - 1


@pytest.mark.slow
def test_muon_learns_faster_than_chance_and_like_one_process(make_run, tmp_path):
    runs = [make_run(tmp_path / str(world), training={"optimizer": "muon", "steps": 20}) for world in (1, 2)]
    train(runs[0])
    assert started(runs[1], 2) == 0
    one, two = (metrics(run.out) for run in runs)
    assert one[-1]["train/loss"] < one[0]["train/loss"] - 1
    # Newton-Schulz computes in bf16, which rounds otherwise for each cut of a matrix
    assert_close(two[:1], one[:1], 1e-6)
    assert_close(two[:5], one[:5], 0.02)


def test_batches_come_in_order_and_an_error_comes_where_it_was_due(make_run, corpus, tmp_path, monkeypatch):
    run, manifest = make_run(tmp_path), load_training_manifest(corpus)
    order = Order(manifest, seq_len=32, batch=7, seed=0)
    with processes(60) as world:
        with ahead.batches(order, run.training, world, 3) as coming:
            found = [inputs for inputs, _ in coming]
        assert len(found) == 37
        for step, inputs in enumerate(found, 3):
            assert inputs[:7].tolist() == order.batch(step)[:, :-1].tolist()
        read = order.batch
        monkeypatch.setattr(order, "batch", lambda step, *rest: read(step, *rest) if step < 5 else 1 / 0)
        with ahead.batches(order, run.training, world, 3) as coming:
            several = iter(coming)
            next(several), next(several)
            with pytest.raises(ZeroDivisionError):
                next(several)
