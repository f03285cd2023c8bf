"""What a run changes while it learns: weights, optimizer, loss scale, and the figures that outliers are measured by."""

from __future__ import annotations

import torch

from gristmill.training.config import GuardConfig, ModelConfig, TrainingConfig
from gristmill.training.model.decoder import Decoder
from gristmill.training.parallel.world import World, compute_dtype, copies, empty_sharded_model, set_first_weights
from gristmill.training.step.clock import Clock
from gristmill.training.step.monitor import MicroBatchNorms
from gristmill.training.step.optimizer import Optimizers, optimizers

APPLIED, NOT_FINITE, OUTLIER = 0, 1, 2


class Outliers:
    """Compares each update with the newest accepted ones. `tensors` belong into a checkpoint.

    An outlier has a loss or gradient norm above mean + `deviations` standard deviations of the last `window` accepted
    updates (OLMo-core's SkipStepOptimizer: 6 of 128), and none is judged before there are so many. Here the logarithms
    are compared: norms are skewed, and six deviations of their logarithms seldom happen to healthy small runs. What
    comes of several in a row, `step.guard` decides. All ranks see the same figures, those of the whole batch, so
    they agree.
    """

    def __init__(self, guard: GuardConfig, device: torch.device) -> None:
        self.guard = guard
        self.accepted = torch.zeros(
            2, guard.window, dtype=torch.float64, device=device
        )  # logarithms of losses, of norms
        self.count = torch.zeros(1, dtype=torch.int64, device=device)

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
    """1 and constant unless `adapts`. `tensors` belong into a checkpoint."""

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
    """Changed in place by each step, saved in a checkpoint, loaded from one. `model`: that of sharded_model. Making it
    is a collective.

    `tensors`: the live tensors under the names that they have in a checkpoint. `copies`: of each parameter how many
    ranks hold the same part, float64.
    """

    def __init__(
        self, model: Decoder, optimizers: Optimizers, scale: LossScale, outliers: Outliers, world: World
    ) -> None:
        self.model, self.optimizers, self.scale, self.outliers = model, optimizers, scale, outliers
        self.norms = MicroBatchNorms(model, world)
        copy_counts = [copies(parameter, world) for parameter in model.parameters()]
        self.copies = torch.tensor(copy_counts, dtype=torch.float64, device=world.device)
        self.clock = Clock(model, scale.value.device)
        # Taken at once: after a forward pass the model may hand out gathered parameters in place of its sharded ones.
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
    """That of a run which begins, with the weights that its seed draws. `end_of_text`: the id of that token."""
    state = empty_state(config, training, vocab_size, end_of_text, world)
    set_first_weights(state.model, training, world)
    return state


def empty_state(
    config: ModelConfig, training: TrainingConfig, vocab_size: int, end_of_text: int, world: World
) -> TrainState:
    """As `begun_state`, without weights: they are still to be set or loaded."""
    return state_of(empty_sharded_model(config, training, vocab_size, end_of_text, world), training, world)


def state_of(model: Decoder, training: TrainingConfig, world: World) -> TrainState:
    """As `empty_state`, of a model that is sharded already."""
    scales = compute_dtype(training.precision, world.device) == torch.float16
    return TrainState(
        model,
        optimizers(model, training),
        LossScale(scales, world.device),
        Outliers(training.guard, world.device),
        world,
    )
