"""What a run changes while it learns: weights, optimizer, loss scale, and the figures that outliers are measured by."""

from __future__ import annotations

import torch

from storage.training_manifest import TrainingManifest
from training.config import ModelConfig, TrainingConfig
from training.loss_scale import LossScale
from training.model import Decoder
from training.optim import Optimizers, optimizers
from training.outliers import Outliers
from training.parallel import World, compute_dtype, sharded_model


class TrainState:
    """Changed in place by each step, saved in a checkpoint, loaded from one. `model`: that of sharded_model.

    `tensors`: the live tensors under the names that they have in a checkpoint.
    """

    def __init__(self, model: Decoder, optimizers: Optimizers, scale: LossScale, outliers: Outliers) -> None:
        self.model, self.optimizers, self.scale, self.outliers = model, optimizers, scale, outliers
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


def train_state(config: ModelConfig, training: TrainingConfig, manifest: TrainingManifest, world: World) -> TrainState:
    """That of a run which begins, with the weights that its seed draws."""
    model = sharded_model(config, training, manifest.vocab_size, manifest.end_of_text, world)
    scales = compute_dtype(training.precision, world.device) == torch.float16
    return TrainState(
        model,
        optimizers(model, training),
        LossScale(scales, world.device),
        Outliers(training.guard, world.device),
    )
