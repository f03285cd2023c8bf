"""The sharded step against training written out plainly: whole model, mean loss, no micro-batches, no
ranks."""

import json

import pytest
import torch
import torch.nn.functional as F

from gristmill.samples.order import Order
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.training.decoder import Decoder, initial
from gristmill.training.run.tracking import METRICS
from gristmill.training.step.optimizer import learning_rate
from gristmill.training.world import rows_per_rank


def test_steps_equal_plain_training(run_small):
    run, mixture = run_small, load_training_manifest(run_small.data)
    model = Decoder(run.model, mixture.vocab_size)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(initial(name, parameter.shape, run.model, run.training.seed))
    named = list(model.named_parameters())
    groups = [
        {"params": [p for n, p in named if p.ndim == 2 and "embed" not in n], "weight_decay": 0.1},
        {"params": [p for n, p in named if p.ndim < 2 or "embed" in n], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-8, fused=False)
    order = Order(mixture, seq_len=run.model.seq_len, batch=run.training.batch, seed=run.training.seed)
    logged = [json.loads(line) for line in (run.out / METRICS).read_text().splitlines()]
    for step in range(10):
        rows = torch.from_numpy(order.batch(step))
        loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate((step + 1) * 7 * 32, 40 * 7 * 32, run.training)
        optimizer.step()
        optimizer.zero_grad()
        assert logged[step]["train/loss"] == pytest.approx(loss.item(), rel=1e-5)
        assert logged[step]["train/grad_norm"] == pytest.approx(norm.item(), rel=1e-4)
    clipped = sum(line["train/grad_norm"] > 1 for line in logged)
    assert logged[-1]["train/clip_fraction"] == clipped / len(logged)
    assert logged[-1]["train/tokens"] == 40 * 7 * 32


@pytest.mark.parametrize("batch, world, micro", [(7, 1, 2), (7, 3, 2), (8, 4, 2), (1, 5, 3), (24, 2, 12)])
def test_every_rank_has_room_and_the_same_number_of_micro_batches(batch, world, micro):
    rows = rows_per_rank(batch, world, micro)
    micro = min(micro, rows)
    assert rows % micro == 0
    assert all(len(range(batch)[rank::world]) <= rows for rank in range(world))
    assert rows - micro < -(-batch // world)
