"""A training step, and the state that it changes: weights, optimizer, loss scale, and the figures with which outliers
are detected."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, cast

import torch

from gristmill.training.config import GuardConfig, TrainingConfig
from gristmill.training.decoder import Decoder
from gristmill.training.loss import IGNORE
from gristmill.training.model_config import ModelConfig
from gristmill.training.step.clock import Clock
from gristmill.training.step.monitor import MicroBatchNorms, Updates, noise_and_signal
from gristmill.training.step.optimizer import Optimizers, optimizers
from gristmill.training.world import (
    World,
    begin_micro_batch,
    compute_dtype,
    copies,
    empty_sharded_model,
    local,
    set_first_weights,
)

if TYPE_CHECKING:  # torch's schedules take a while to import
    from gristmill.training.layout.pipeline import Pipeline

APPLIED, NOT_FINITE, OUTLIER = 0, 1, 2


class Outliers:
    """Compares each update with the newest accepted ones. `tensors` belong into a checkpoint.

    An outlier has a loss or gradient norm above mean + `deviations` standard deviations of the last `window` accepted
    updates (OLMo-core's SkipStepOptimizer: 6 of 128), and none is judged before there are so many. Here the logarithms
    are compared: norms are skewed, and six deviations of their logarithms seldom happen to healthy small runs. What
    happens after several in a row, `guard` decides. All ranks see the same figures, of the whole batch, so
    they agree.
    """

    def __init__(self, guard: GuardConfig, device: torch.device) -> None:
        self.guard = guard
        self.accepted = torch.zeros(
            2, guard.window, dtype=torch.float64, device=device
        )  # logarithms of losses, of norms
        self.count = torch.zeros(1, dtype=torch.int64, device=device)

    def begin(self) -> None:
        """Forget all updates: those that follow learn from other data."""
        self.count.zero_()

    def tensors(self) -> dict[str, torch.Tensor]:
        if not self.guard.enabled:
            return {}
        return {f"guard.{name}": getattr(self, name) for name in ("accepted", "count")}

    def judge(self, loss: torch.Tensor, norm: torch.Tensor, forced: int | None = None) -> torch.Tensor:
        """APPLIED, NOT_FINITE or OUTLIER, int64 without dimensions, for the global loss and norm of a step.

        `forced`: the verdict, where it was taken before; then a step that is not finite is still NOT_FINITE.
        """
        figures = torch.stack([loss, norm])
        broken = ~figures.isfinite().all()
        figures = figures.clamp_min(torch.finfo(torch.float64).tiny).log()
        if forced is not None:
            return torch.where(broken, NOT_FINITE, forced)
        if not self.guard.enabled:
            return broken.long()
        deviation, mean = torch.std_mean(self.accepted, dim=1)
        high = (figures > mean + self.guard.deviations * deviation).any()
        outlier = high & ~broken & (self.count >= self.guard.window)
        place = self.count % self.guard.window
        skipped = outlier | broken
        self.accepted.index_copy_(1, place, torch.where(skipped, self.accepted[:, place], figures[:, None]))
        self.count.add_(~skipped)
        return torch.where(broken, NOT_FINITE, torch.where(outlier, OUTLIER, APPLIED)).squeeze()


# The defaults of torch.amp.GradScaler, which needs the host to see each verdict.
FIRST, GROWTH, BACKOFF, INTERVAL = 65536.0, 2.0, 0.5, 2000


class LossScale:
    """1 and constant unless `adapts`. `tensors` belong into a checkpoint.

    Without a scale an update that is not finite is skipped too, but nothing changes that could prevent the next one.
    So the guard counts it as a loss that is not finite: see StepFigures.judged_loss.
    """

    def __init__(self, adapts: bool, device: torch.device) -> None:
        self.adapts = adapts
        self.value = torch.ones((), device=device)
        self.streak = torch.zeros((), device=device)  # updates in a row that were finite
        self.begin()

    def begin(self) -> None:
        self.value.fill_(FIRST if self.adapts else 1.0)
        self.streak.zero_()

    def tensors(self) -> dict[str, torch.Tensor]:
        return {"loss_scale.value": self.value, "loss_scale.streak": self.streak} if self.adapts else {}

    def update(self, overflowed: torch.Tensor) -> None:
        """Half of it after an update that was not finite, twice of it after INTERVAL ones that were; in place."""
        if not self.adapts:
            return
        self.streak.add_(1).masked_fill_(overflowed, 0)
        grows = self.streak >= INTERVAL
        self.value.mul_(torch.where(overflowed, BACKOFF, torch.where(grows, GROWTH, 1.0)))
        self.streak.masked_fill_(grows, 0)


class TrainState:
    """Changed in place by each step, saved in a checkpoint, loaded from one. `model`: from sharded_model. Making it
    is a collective.

    `tensors`: the live tensors under the names that they have in a checkpoint. `copies`: of each parameter how many
    ranks hold the same part, float64.
    """

    def __init__(
        self, model: Decoder, optimizers: Optimizers, scale: LossScale, outliers: Outliers, world: World
    ) -> None:
        self.model, self.optimizers, self.scale, self.outliers = model, optimizers, scale, outliers
        self.norms = MicroBatchNorms(model, world)
        shared = model.shared
        copy_counts = [copies(each, world, 1 + (name in shared)) for name, each in model.named_parameters()]
        self.copies = torch.tensor(copy_counts, dtype=torch.float64, device=world.device)
        self.clock = Clock(model, scale.value.device)
        # Taken at once: after a forward pass the model may return gathered parameters instead of its sharded ones.
        self.tensors = scale.tensors() | outliers.tensors()
        for name, parameter in model.named_parameters():
            self.tensors[f"model.{name}"] = parameter.detach()
            for key, value in optimizers.state(parameter).items():
                self.tensors[f"optimizer.{name}.{key}"] = value

    def begin(self) -> None:
        """All but the weights as before the first step, in place."""
        for name, tensor in self.tensors.items():
            if not name.startswith("model."):
                tensor.zero_()
        self.scale.begin()


def begun_state(
    config: ModelConfig, training: TrainingConfig, vocab_size: int, end_of_text: int, world: World
) -> TrainState:
    """The state of a run which begins, with the weights that its seed draws. `end_of_text`: the id of that token."""
    state = empty_state(config, training, vocab_size, end_of_text, world)
    set_first_weights(state.model, training, world)
    return state


def empty_state(
    config: ModelConfig, training: TrainingConfig, vocab_size: int, end_of_text: int, world: World
) -> TrainState:
    """`begun_state` without weights: they are still to be set or loaded."""
    return state_of(empty_sharded_model(config, training, vocab_size, end_of_text, world), training, world)


def state_of(model: Decoder, training: TrainingConfig, world: World) -> TrainState:
    """`empty_state` of a model that is sharded already."""
    scales = training.loss_scaling and compute_dtype(training.precision, world.device) == torch.float16
    return TrainState(
        model,
        optimizers(model, training),
        LossScale(scales, world.device),
        Outliers(training.guard, world.device),
        world,
    )


# One training step: the same loss, gradient and update for any number of ranks and micro-batches.
#
# Nothing of a step is read on the host: its figures stay on the device until the loop looks at them.


class StepFigures(NamedTuple):
    """The results of a step, over all micro-batches of all ranks."""

    loss: float  # nats per token
    z_loss: float  # per token, with its weight
    grad_norm: float  # of the whole gradient, before clipping
    tokens: int  # targets
    stop_requested: bool  # some rank was asked to stop
    scale: float  # of the loss
    verdict: int  # APPLIED, NOT_FINITE or OUTLIER
    noise: float = math.nan  # tr(C) and |G|^2 of `gristmill.training.step.monitor`; NaN for a single micro-batch
    signal: float = math.nan

    @property
    def judged_loss(self) -> float | None:
        """The loss for the guard: not finite if the gradient is not, None if nothing was learned from the step."""
        if self.verdict == OUTLIER:
            return None
        overflow = self.verdict == NOT_FINITE and self.scale <= 1
        return math.nan if overflow else self.loss


class StepPlan(NamedTuple):
    """The decisions of the host before a step."""

    learning_rate: float
    forced: int | None = None  # the verdict, where the step was taken before
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

    The gradient is of (sum of token losses) / (targets in the whole batch); dividing by the global
    count before backward is what makes uneven ranks exact. If the loss or the gradient is not finite, on any rank, or
    is an outlier, no rank updates.

    Returns a tensor on the device for `figures`.
    """
    model, scale = state.model, state.scale
    is_target = targets != IGNORE
    count, sequences = world.readers.sum(torch.stack([is_target.sum(), is_target.any(1).sum()]))
    state.norms.begin()
    total = gradients(state, inputs, targets, scale.value / count, training, world)

    # Each rank holds its own part of every gradient; squares add up in float64 for any way of cutting them.
    norms = torch._foreach_norm([local(parameter.grad) for parameter in model.parameters()])
    square = (torch.stack(norms).double().square() / state.copies).sum()
    stop_requested = square.new_full((), float(plan.stop_requested))
    shared = world.sum(torch.cat([total, square[None], stop_requested[None], state.norms.sums]))
    total, square, stop_requested, pieced = shared.split([2, 1, 1, 2])
    norm = square.sqrt().squeeze() / scale.value
    verdict = state.outliers.judge(total.sum() / count, norm, plan.forced)
    clip = torch.ones_like(norm)
    if training.clip_norm is not None:
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


def gradients(
    state: TrainState,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    factor: torch.Tensor,
    training: TrainingConfig,
    world: World,
) -> torch.Tensor:
    """Add the gradients of `factor` times the loss of all micro-batches to the parameters. Returns this rank's part of
    the `loss_sums`, float64 (2,)."""
    model, total = state.model, torch.zeros(2, dtype=torch.float64, device=world.device)
    micro = min(training.micro_batch, len(inputs))  # as `rows_per_rank` cuts them
    if world.pipeline.size > 1:
        with state.clock.part("backward"):  # forward passes among the backward ones
            return cast("Pipeline", model).gradients(inputs, targets, len(inputs) // micro, factor)
    pieces = list(zip(inputs.split(micro), targets.split(micro), strict=True))
    for index, (x, y) in enumerate(pieces):
        begin_micro_batch(model, training, world, last=index == len(pieces) - 1)
        with state.clock.part("forward"):
            sums = model(x, y, training.z_loss)
        with state.clock.part("backward"):
            (sums.sum() * factor).backward()
        total += sums.detach()
        state.norms.add((y != IGNORE).sum())
    return total


def figures(values: torch.Tensor) -> list[StepFigures]:
    """The figures of steps, one row each of (steps, 9): here the host waits for the device."""
    return [
        StepFigures(loss, z_loss, norm, int(tokens), stop > 0, scale, int(verdict), *estimates)
        for loss, z_loss, norm, tokens, stop, scale, verdict, *estimates in values.tolist()
    ]
