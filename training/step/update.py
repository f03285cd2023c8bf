"""One training step: the same loss, gradient and update for any number of ranks and micro-batches.

Nothing of a step is read on the host: its figures stay on the device until the loop looks at them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from gristmill.training.config import TrainingConfig
from gristmill.training.model.loss import IGNORE
from gristmill.training.parallel.world import World, begin_micro_batch, local
from gristmill.training.step.monitor import Updates, noise_and_signal
from gristmill.training.step.state import APPLIED, NOT_FINITE, OUTLIER, TrainState


class StepFigures(NamedTuple):
    """What a step found out, over all micro-batches of all ranks."""

    loss: float  # nats per token
    z_loss: float  # per token, with its weight
    grad_norm: float  # of the whole gradient, before clipping
    tokens: int  # targets
    stop_requested: bool  # some rank was asked to stop
    scale: float  # of the loss
    verdict: int  # of `gristmill.training.step.state`: whether the update was applied
    noise: float = math.nan  # tr(C) and |G|^2 of `gristmill.training.step.monitor`; NaN for a single micro-batch
    signal: float = math.nan

    @property
    def judged_loss(self) -> float | None:
        """What the guard shall see: not finite if the gradient is not, None for a loss of which nothing was learned."""
        if self.verdict == OUTLIER:
            return None
        overflow = self.verdict == NOT_FINITE and self.scale <= 1
        return math.nan if overflow else self.loss


class StepPlan(NamedTuple):
    """What the host has decided before a step."""

    learning_rate: float
    forced: int | None = None  # the verdict of `gristmill.training.step.state`, where it was taken before
    stop_requested: bool = False  # asks all ranks to agree on stopping: it travels with the loss
    updates: Updates | None = None  # measures this update


def train_step(
    state: TrainState,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    plan: StepPlan,
    training: TrainingConfig,
    world: World,
) -> torch.Tensor:
    """Learn from this rank's inputs and targets, int64 of shape (rows, seq_len); a collective.

    The gradient is that of (sum of token losses) / (targets in the whole batch); dividing by the global
    count before backward is what makes uneven ranks exact. Where the loss or the gradient is not finite, on whatever
    rank, or is an outlier, no rank updates.

    Returns a tensor on the device for `figures`.
    """
    model, scale = state.model, state.scale
    is_target = targets != IGNORE
    count, sequences = world.readers.sum(torch.stack([is_target.sum(), is_target.any(1).sum()]))
    total = torch.zeros(2, dtype=torch.float64, device=world.device)
    micro = min(training.micro_batch, len(inputs))  # as `rows_per_rank` cuts them
    state.norms.begin()
    pieces = list(zip(inputs.split(micro), targets.split(micro), strict=True))
    for index, (x, y) in enumerate(pieces):
        begin_micro_batch(model, training, world, last=index == len(pieces) - 1)
        with state.clock.part("forward"):
            sums = model(x, y, training.z_loss)
        with state.clock.part("backward"):
            (sums.sum() * (scale.value / count)).backward()
        total += sums.detach()
        state.norms.add((y != IGNORE).sum())

    # Each rank holds its own part of every gradient; squares add up in float64 for any way of cutting them.
    norms = torch._foreach_norm([local(parameter.grad) for parameter in model.parameters()])
    square = (torch.stack(norms).double().square() / state.copies).sum()
    stop_requested = square.new_full((), float(plan.stop_requested))
    shared = world.sum(torch.cat([total, square[None], stop_requested[None], state.norms.sums]))
    total, square, stop_requested, pieced = shared.split([2, 1, 1, 2])
    norm = square.sqrt().squeeze() / scale.value
    verdict = state.outliers.judge(total.sum() / count, norm, plan.forced)
    clip = torch.where(norm > training.clip_norm, training.clip_norm / norm, 1.0)
    used = scale.value.double().clone()
    estimates = noise_and_signal(pieced, square.squeeze(), count, sequences) / used.square()
    if plan.updates:
        plan.updates.begin()
    with state.clock.part("optimizer"):
        state.optimizers.step(plan.learning_rate, (scale.value / clip).float(), verdict != APPLIED)
    scale.update(verdict == NOT_FINITE)
    return torch.cat(
        [total / count, norm[None], count[None].double(), stop_requested, used[None], verdict[None].double(), estimates]
    )


def figures(values: torch.Tensor) -> list[StepFigures]:
    """The figures of steps, one row each of (steps, 9): here the host waits for the device."""
    return [
        StepFigures(loss, z_loss, norm, int(tokens), stop > 0, scale, int(verdict), *estimates)
        for loss, z_loss, norm, tokens, stop, scale, verdict, *estimates in values.tolist()
    ]
