"""DoReMi's proxy against the algorithm written out plainly: whole model, whole batch, float64."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from gristmill.samples.order import Order
from gristmill.storage import checked_json, files, parquet
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.training import doremi
from gristmill.training.decoder import Decoder, initial
from gristmill.training.doremi import excess_losses, updated
from gristmill.training.hub.weights import load_model
from gristmill.training.run import launch
from gristmill.training.step.optimizer import learning_rate

pytestmark = pytest.mark.extended

STEPS = 12


@pytest.fixture(scope="module")
def reference(run_small):
    return run_small.out


@pytest.fixture
def ask(make_run, reference, tmp_path):
    def make(name="proxy", **training) -> doremi.DoReMiRun:
        run = make_run(tmp_path / name, training={"steps": STEPS, "seed": 5, **training})
        given = {"data": run.data, "out": run.out, "reference": reference, "timeout_seconds": 60}
        return doremi.DoReMiRun(model=run.model, training=run.training, **given)

    return make


def history(run: doremi.DoReMiRun) -> np.ndarray:
    """(weight and excess, steps, sources)"""
    table = parquet.read_table(str(run.out / doremi.WEIGHTS))
    return np.stack([table[name].to_numpy().reshape(-1, 2) for name in ("weight", "excess")])


def plainly(run: doremi.DoReMiRun) -> np.ndarray:
    manifest = load_training_manifest(run.data)
    model = Decoder(run.model, manifest.vocab_size)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(initial(name, parameter.shape, run.model, run.training.seed))
    model, reference = model.double(), load_model(run.reference).double()
    named = list(model.named_parameters())
    groups = [
        {"params": [p for n, p in named if p.ndim == 2 and "embed" not in n], "weight_decay": 0.1},
        {"params": [p for n, p in named if p.ndim < 2 or "embed" in n], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-8)
    order = Order(doremi.uniform(manifest), seq_len=32, batch=7, seed=run.training.seed)
    weights, found = np.array([0.5, 0.5]), []
    for step in range(STEPS):
        rows = torch.from_numpy(order.batch(step))
        of = np.array([source for source, _, _ in order.windows_of(range(7 * step, 7 * step + 7))])

        def losses(m, rows=rows):
            return F.cross_entropy(m(rows[:, :-1]).transpose(1, 2), rows[:, 1:], reduction="none")

        mine = losses(model)
        above = np.maximum(mine.detach().numpy() - losses(reference).detach().numpy(), 0)
        excess = np.array([above[of == domain].mean() for domain in (0, 1)])
        weights = weights * np.exp(run.eta * excess)
        weights = (1 - run.smoothing) * weights / weights.sum() + run.smoothing / 2
        found.append([weights, excess])
        of_row = torch.from_numpy(weights[of])
        loss = (of_row[:, None] * mine).sum() / (of_row.sum() * 32)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step + 1, STEPS, run.training)
        optimizer.step()
        optimizer.zero_grad()
    return np.array(found).swapaxes(0, 1)


@pytest.mark.parametrize("micro", [2, 7])
def test_weights_are_those_of_the_plain_algorithm_however_a_batch_is_cut(ask, micro):
    run = ask(micro_batch=micro)
    mean = doremi.train(run)
    expected = plainly(run)
    assert np.ptp(expected[0], axis=0).min() > 0.05, "the weights move, or there is nothing to compare"
    np.testing.assert_allclose(history(run), expected, rtol=2e-3, atol=1e-5)
    np.testing.assert_allclose(history(run)[0], expected[0], rtol=2e-4)
    np.testing.assert_allclose(mean, expected[0].mean(0), rtol=1e-4)
    assert files.read_json(str(run.out / doremi.RESULT))["weights"] == dict(zip(("web", "books"), mean, strict=True))


@pytest.mark.slow
def test_two_ranks_find_the_same_weights(ask):
    alone, two = ask(), ask("two")
    doremi.train(alone)
    two.out.mkdir()
    checked_json.write(str(two.out / "run.json"), two.model_dump(mode="json"))
    log = two.out / "log"
    assert launch.launch(two.out / "run.json", 2, log, module="gristmill.training.doremi") == 0, log.read_text()
    np.testing.assert_allclose(history(two), history(alone), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(history(two)[0], history(alone)[0], rtol=1e-4)


@pytest.mark.parametrize(("eta", "smoothing"), [(1.0, 1e-3), (0.1, 0.0), (3.0, 0.4)])
def test_updates_and_their_mean_are_those_of_a_loop_written_out(eta, smoothing):
    draw = np.random.default_rng(7)
    excess = draw.exponential(1, (50, 5))
    weights, plain, found = torch.full((5,), 0.2, dtype=torch.float64), [0.2] * 5, []
    total = np.zeros(5)
    for row in excess:
        weights = updated(weights, torch.from_numpy(row), eta, smoothing)
        raised = [w * math.exp(eta * e) for w, e in zip(plain, row, strict=True)]
        plain = [(1 - smoothing) * w / sum(raised) + smoothing / 5 for w in raised]
        total += plain
        found.append(weights.numpy())
        assert weights.sum().item() == pytest.approx(1, abs=1e-12) and weights.min() > 0
    np.testing.assert_allclose(np.mean(found, 0), total / 50, rtol=1e-9)


def test_a_domain_without_a_token_in_the_batch_keeps_its_last_excess():
    sums = torch.tensor([[6.0, 3.0], [0.0, 0.0], [0.0, 4.0]], dtype=torch.float64)
    last = torch.tensor([9.0, 0.7, 9.0], dtype=torch.float64)
    assert excess_losses(sums, last).tolist() == [2.0, 0.7, 0.0]


@pytest.mark.parametrize("change", [{"precision": "fp16"}, {"z_loss": 1e-4}])
def test_what_it_has_not_is_refused(ask, change):
    with pytest.raises(ValueError, match="neither a loss scale nor a z-loss"):
        ask(**change)
