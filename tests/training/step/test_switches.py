"""Training without clipping and fp16 without a loss scale, against steps written out in plain torch."""

import json
import math

import pytest
import torch
import torch.nn.functional as F

from gristmill.flows.recipe.recipe import Recipe
from gristmill.samples.order import Order
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.training.checkpoint.commit import run_fingerprint
from gristmill.training.config import TrainingConfig
from gristmill.training.decoder import Decoder, initial
from gristmill.training.hub.model_folder import load_model
from gristmill.training.loss import inputs_and_targets
from gristmill.training.run.loop import train
from gristmill.training.run.tracking import METRICS
from gristmill.training.step.state import NOT_FINITE, StepPlan, begun_state, figures, train_step
from gristmill.training.world import local, processes

# Large eps: an update of AdamW is then almost proportional to the gradient, so that clipping is seen in the weights.
ONE_STEP = {"steps": 1, "warmup_steps": 0, "final_ratio": 1.0, "eps": 1.0, "weight_decay": 0.0, "learning_rate": 0.5}
FP16 = {"precision": "fp16", "weight_decay": 0.0, "guard": {"enabled": False}}


@pytest.mark.extended
@pytest.mark.parametrize("clip_norm", [None, 0.25])
def test_one_step_is_clipped_or_not_as_in_plain_torch(clip_norm, make_run, tmp_path):
    run = make_run(tmp_path, training={**ONE_STEP, "clip_norm": clip_norm})
    train(run)
    mixture = load_training_manifest(run.data)
    model = Decoder(run.model, mixture.vocab_size)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(initial(name, parameter.shape, run.model, run.training.seed))
    first = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    order = Order(mixture, seq_len=run.model.seq_len, batch=run.training.batch, seed=run.training.seed)
    rows = torch.from_numpy(order.batch(0))
    F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten()).backward()
    if clip_norm is not None:
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        assert norm > 2 * clip_norm
    torch.optim.AdamW(model.parameters(), lr=0.5, betas=(0.9, 0.95), eps=1.0, weight_decay=0.0).step()
    trained = dict(load_model(run.out).named_parameters())
    for name, parameter in model.named_parameters():
        expected = parameter.detach() - first[name]
        assert ((trained[name] - first[name] - expected).norm() / expected.norm()).item() < 1e-4, name
    [line] = [json.loads(line) for line in (run.out / METRICS).read_text().splitlines()]
    assert line.get("train/clip_fraction") == (None if clip_norm is None else 1.0)


def stepped(make_run, folder, training: dict, change) -> tuple[dict, object]:
    """How one step moves the matrices of the first block, by name, and its figures. `change(model)`: before it."""
    run = make_run(folder, training=training)
    mixture = load_training_manifest(run.data)
    order = Order(mixture, seq_len=run.model.seq_len, batch=run.training.batch, seed=0)
    with processes(60) as world:
        state = begun_state(run.model, run.training, mixture.vocab_size, mixture.end_of_text, world)
        parameters = {name: local(each.detach()) for name, each in state.model.named_parameters()}
        change(parameters)
        before = {name: each.clone() for name, each in parameters.items()}
        inputs, targets = inputs_and_targets(torch.from_numpy(order.batch(0)), 8)
        values = train_step(state, inputs, targets, StepPlan(0.01), run.training, world)
        moved = {name: each - before[name] for name, each in parameters.items() if name.startswith("layers.0.")}
        return {name: each for name, each in moved.items() if each.ndim == 2}, (figures(values[None])[0], state.scale)


def small_gradients(parameters) -> None:
    """The blocks' gradients are smaller than the smallest number of fp16, which is 6e-8; the loss stays as it is."""
    parameters["norm.weight"].mul_(2e-6)


def large_gradients(parameters) -> None:
    """A last norm whose products overflow in fp16, which ends at 65,504."""
    parameters["norm.weight"].mul_(1e7)


def test_small_gradients_vanish_in_fp16_without_a_scale_and_survive_with_it(make_run, tmp_path):
    exact, _ = stepped(make_run, tmp_path / "fp32", {**FP16, "precision": "fp32"}, small_gradients)
    scaled, (figure, _) = stepped(make_run, tmp_path / "scaled", FP16, small_gradients)
    plain, (unscaled, scale) = stepped(make_run, tmp_path / "plain", {**FP16, "loss_scaling": False}, small_gradients)
    assert figure.scale == 65536 and unscaled.scale == 1 == scale.value
    assert unscaled.loss == pytest.approx(figure.loss, rel=1e-6)
    for name in exact:
        # the first update of AdamW is the gradient's sign
        assert (exact[name] != 0).float().mean() > 0.85
        assert (scaled[name].sign() == exact[name].sign()).float().mean() > 0.85
        assert (plain[name] == 0).float().mean() > 0.85


def test_an_update_that_overflows_without_a_scale_is_skipped(make_run, tmp_path):
    moved, (figure, scale) = stepped(make_run, tmp_path, {**FP16, "loss_scaling": False}, large_gradients)
    assert figure.verdict == NOT_FINITE and math.isnan(figure.judged_loss)
    assert all((each == 0).all() for each in moved.values())
    assert scale.value == 1 and not scale.tensors()


@pytest.mark.extended
def test_an_unscaled_fp16_run_that_overflows_ends_as_any_that_is_not_finite(make_run, tmp_path):
    training = {"precision": "fp16", "loss_scaling": False, "learning_rate": 1e6, "warmup_steps": 0}
    with pytest.raises(FloatingPointError, match="not finite; lower learning_rate"):
        train(make_run(tmp_path, training={**training, "guard": {"enabled": False}}))
    assert not any("train/loss_scale" in line for line in (tmp_path / METRICS).read_text().splitlines())


def test_the_defaults_leave_records_as_they_were():
    """Keys of stages are hashes of these."""
    assert "loss_scaling" not in TrainingConfig(loss_scaling=True).model_dump(mode="json")
    assert TrainingConfig(loss_scaling=False).model_dump(mode="json")["loss_scaling"] is False
    assert TrainingConfig().model_dump(mode="json")["clip_norm"] == 1.0
    assert Recipe.model_fields["training"].default.clip_norm == 1.0


def test_a_checkpoint_belongs_to_its_loss_scaling(make_run, corpus, tmp_path):
    """Which only fp16 reads."""

    def names(**training):
        run = make_run(tmp_path, training=training)
        return run_fingerprint(run, load_training_manifest(corpus), torch.device("cpu"))["training.loss_scaling"]

    assert names(precision="fp16") == names() == names(loss_scaling=False) == "true"
    assert names(precision="fp16", loss_scaling=False) == "false"
