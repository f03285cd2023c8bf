"""The gradient noise scale against its definition: gradients of single sequences, one by one."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from gristmill.samples.order import Order
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.training.decoder import Decoder, initial
from gristmill.training.hub.weights import load_model
from gristmill.training.loss import inputs_and_targets
from gristmill.training.run.loop import train
from gristmill.training.step.monitor import NoiseScale
from gristmill.training.step.state import StepPlan, begun_state, figures, train_step
from gristmill.training.world import processes
from tests.training.run.test_launch import metrics, started


def gradients(model: Decoder, rows: np.ndarray) -> np.ndarray:
    """That of each sequence, whole, (sequences, parameters)."""
    found = []
    for row in torch.from_numpy(rows):
        model.zero_grad()
        F.cross_entropy(model(row[None, :-1]).flatten(0, 1), row[1:]).backward()
        found.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).double().numpy())
    return np.array(found)


def first_batch(run) -> tuple[Decoder, np.ndarray]:
    manifest = load_training_manifest(run.data)
    model = Decoder(run.model, manifest.vocab_size)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(initial(name, parameter.shape, run.model, run.training.seed))
    return model, Order(manifest, seq_len=32, batch=run.training.batch, seed=run.training.seed).batch(0)


def between(whole: np.ndarray, groups: list[list[int]]) -> tuple[float, float]:
    """tr(C) of a row and |G|^2 by the analysis of variance of groups of rows."""
    mean = whole.mean(0)
    noise = sum(len(rows) * ((whole[rows].mean(0) - mean) ** 2).sum() for rows in groups) / (len(groups) - 1)
    return noise, (mean**2).sum() - noise / len(whole)


# 7 rows: rank r has the rows r, r + world, ..., which are cut into micro-batches
CUTS = {
    (1, 1): [[0], [1], [2], [3], [4], [5], [6]],
    (1, 2): [[0, 1], [2, 3], [4, 5], [6]],
    (2, 2): [[0, 2], [4, 6], [1, 3], [5]],
    (3, 2): [[0, 3], [6], [1, 4], [2, 5]],
    (2, 4): [[0, 2, 4, 6], [1, 3, 5]],
}


@pytest.mark.extended
@pytest.mark.parametrize(
    "world, micro",
    [pytest.param(*cut, marks=() if cut in ((1, 1), (1, 2), (2, 2)) else pytest.mark.slow) for cut in CUTS],
)
def test_a_step_estimates_what_gradients_of_single_sequences_give(world, micro, make_run, tmp_path):
    one = {"steps": 1, "warmup_steps": 0, "micro_batch": micro, "eval_tokens": 64, "sample_tokens": 0}
    run = make_run(tmp_path, training=one)
    if world == 1:
        train(run)
    else:
        assert started(run, world) == 0
    noise, signal = between(gradients(*first_batch(run)), CUTS[world, micro])
    assert signal > 0
    assert metrics(tmp_path)[0]["train/noise_scale"] == pytest.approx(noise / signal, rel=1e-4)


@pytest.mark.slow
def test_it_is_within_a_tenth_of_its_definition(make_run, tmp_path):
    """160 windows, one gradient each, and 200 steps on such windows that learn nothing."""
    run = make_run(tmp_path, training={"steps": 3, "warmup_steps": 0, "micro_batch": 1, "sample_tokens": 0})
    train(run)
    trained, manifest = load_model(run.out), load_training_manifest(run.data)
    rows = np.concatenate(
        [Order(manifest, seq_len=32, batch=7, seed=3).read[0](window)[None] for window in range(160)]
    ).astype(np.int64)
    whole = gradients(trained, rows)
    definition = whole.var(0).sum() / (whole.mean(0) ** 2).sum()

    scale, drawn = NoiseScale([]), np.random.default_rng(0)
    with processes(60) as world:
        state = begun_state(run.model, run.training, manifest.vocab_size, manifest.end_of_text, world)
        with torch.no_grad():
            for name, parameter in state.model.named_parameters():
                parameter.to_local().copy_(trained.get_parameter(name))
        for _ in range(200):
            batch = rows[drawn.integers(len(rows), size=7)]
            inputs, targets = inputs_and_targets(torch.from_numpy(batch), 7)
            values = train_step(state, inputs, targets, StepPlan(0.0, forced=0), run.training, world)
            [step] = figures(values[None])
            scale.see(step.noise, step.signal)
    assert definition > 3  # no mean without noise
    assert scale.value == pytest.approx(definition, rel=0.1)


def test_a_step_of_one_micro_batch_has_none_and_says_so_once(make_run, tmp_path, caplog):
    caplog.set_level("INFO")
    train(make_run(tmp_path, training={"micro_batch": 7, "steps": 12}))
    assert not any("train/noise_scale" in line for line in metrics(tmp_path))
    assert sum("train/noise_scale" in record.message for record in caplog.records) == 1


def test_means_are_divided_and_steps_without_figures_left_out():
    scale = NoiseScale([])
    assert math.isnan(scale.value)
    for noise, signal in [(6.0, 1.0), (math.nan, math.nan), (6.0, 5.0), (math.inf, 1.0)]:
        scale.see(noise, signal)
    assert scale.value == pytest.approx((6 * 0.99 + 6) / (0.99 + 5))
    scale.see(1.0, -1000.0)
    assert math.isnan(scale.value)
