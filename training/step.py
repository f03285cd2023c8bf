"""One training step: the same loss, gradient and update for any number of ranks and micro-batches."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from training.config import TrainingConfig
from training.loss import IGNORE, inputs_and_targets, token_losses
from training.model import Decoder
from training.parallel import World


@dataclass(frozen=True)
class StepResult:
    loss: float  # nats per token over the whole batch: all micro-batches of all ranks
    grad_norm: float  # of the whole gradient, before clipping
    tokens: int  # targets of the whole batch
    stop: bool  # some rank was asked to stop


def rows_per_rank(batch: int, world: int, micro_batch: int) -> int:
    """Rows that every rank computes on: its part of the batch, rounded up to whole micro-batches."""
    rows = -(-batch // world)
    return -(-rows // micro_batch) * micro_batch


def train_step(
    model: Decoder,
    optimizer: torch.optim.Optimizer,
    rows: torch.Tensor,
    learning_rate: float,
    training: TrainingConfig,
    world: World,
    stop: bool = False,
) -> StepResult:
    """Learn from this rank's rows, int64 of shape (n, seq_len + 1), of a batch; a collective.

    The gradient is that of (sum of token losses) / (targets in the whole batch); dividing by the global
    count before backward is what makes uneven ranks exact. Raises FloatingPointError, before the update,
    when the gradient is not finite. `stop` asks all ranks to agree on stopping: it travels with the loss.
    """
    assert isinstance(model, FSDPModule), "the model is that of sharded_model"
    # A rank's last rows may be padding; a micro-batch larger than its share of the batch is cut to size.
    micro = min(training.micro_batch, -(-training.batch // world.size))
    inputs, targets = inputs_and_targets(rows, rows_per_rank(training.batch, world.size, micro))
    inputs, targets = inputs.to(world.device), targets.to(world.device)
    count = world.sum((targets != IGNORE).sum())

    total = torch.zeros((), dtype=torch.float64, device=world.device)
    pieces = list(zip(inputs.split(micro), targets.split(micro), strict=True))
    for index, (x, y) in enumerate(pieces):
        model.set_requires_gradient_sync(index == len(pieces) - 1)
        loss = token_losses(model(x), y).sum()
        (loss / count).backward()
        total += loss.detach()

    # Each rank holds its own part of every gradient; squares add up in float64 for any way of cutting them.
    gradients = [_local(parameter.grad) for parameter in model.parameters()]
    square = torch.stack([torch.linalg.vector_norm(g, dtype=torch.float64) for g in gradients]).square().sum()
    asked = torch.tensor(float(stop), dtype=torch.float64, device=world.device)
    total, square, asked = world.sum(torch.stack([total, square, asked])).tolist()
    grad_norm, loss = math.sqrt(square), total / count.item()
    if not (math.isfinite(grad_norm) and math.isfinite(loss)):
        raise FloatingPointError(
            f"loss {loss}, gradient norm {grad_norm}: not finite; lower learning_rate or look at the data of "
            "this step, then start again from the last checkpoint"
        )
    if grad_norm > training.clip_norm:
        for gradient in gradients:
            gradient.mul_(training.clip_norm / grad_norm)
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return StepResult(loss, grad_norm, int(count.item()), asked > 0)


def _local(gradient: torch.Tensor | None) -> torch.Tensor:
    """This rank's part of a gradient."""
    assert isinstance(gradient, DTensor), "every parameter is sharded and takes part in the loss"
    return gradient.to_local()
