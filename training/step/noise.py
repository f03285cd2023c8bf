"""The gradient noise scale of McCandlish et al. 2018 (arXiv 1812.06162), at no extra pass.

    B = tr(C) / |G|^2, C the covariance of the gradients of single sequences, G their mean

With batches much smaller than B twice the batch needs nearly half of the steps; with much larger ones it saves none.
A step knows the gradient of each micro-batch of each rank and that of the whole batch, whose expected squared norms
differ by what noise adds: |G|^2 + tr(C) / size.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from gristmill.training.model.parallel import World

DECAY = 0.99  # of the means over steps: about the last hundred count


class MicroBatchNorms:
    """The norms of micro-batches' gradients on this rank, taken in the backward pass, on the device.

    A hook on each whole parameter sees the gradient of one micro-batch before it is added to that of earlier ones, and
    before ranks add theirs. So neither needs a copy, and all micro-batches count. `model`: that of sharded_model;
    making one of these is a collective. Where several ranks compute one micro-batch none has its gradient, and nothing
    is seen.
    """

    def __init__(self, model: nn.Module, world: World) -> None:
        self.norms: list[torch.Tensor] = []
        self.sums = torch.zeros(2, dtype=torch.float64, device=world.device)
        if world.readers.size < world.size:
            return
        for module in model.modules():
            if not isinstance(module, FSDPModule):
                continue
            module.unshard()
            for parameter in module.parameters():
                if not isinstance(parameter, DTensor):  # those of the layers are, while the rest is whole
                    parameter.register_hook(self._see)
            module.reshard()

    def _see(self, gradient: torch.Tensor) -> None:
        self.norms.append(torch.linalg.vector_norm(gradient, dtype=torch.float32))

    def begin(self) -> None:
        """A step begins."""
        self.norms.clear()
        self.sums.zero_()

    def add(self, tokens: torch.Tensor) -> None:
        """A backward pass has ended, of a micro-batch with so many targets; one without targets does not count."""
        if not self.norms:
            return
        square = torch.stack(self.norms).double().square().sum()
        self.norms.clear()
        self.sums += torch.stack([torch.where(tokens > 0, square / tokens, 0), (tokens > 0).double()])


def noise_and_signal(
    sums: torch.Tensor, square: torch.Tensor, tokens: torch.Tensor, sequences: torch.Tensor
) -> torch.Tensor:
    """Unbiased estimates of (tr(C) of a sequence's gradient, |G|^2), float64 (2,); NaN for a single micro-batch.

    `sums`: those of MicroBatchNorms over all ranks, of gradients of (loss sums / `tokens`); `square`: the squared norm
    of the whole gradient; `tokens`, `sequences`: those of the batch. Gradient j, of the mean over its own n_j targets,
    has the expected squared norm |G|^2 + S / n_j. Weighted by n_j and summed, less that of the whole batch, J - 1 times
    S remains: with micro-batches of one size these are the estimates of the paper's appendix A.1, and with one sequence
    each they are the sample variance.
    """
    weighted, count = sums.unbind()
    noise = (tokens.double().square() * weighted - tokens * square) / (count - 1)  # of a token
    noise = torch.where(count > 1, noise, math.nan)
    return torch.stack([noise * sequences / tokens, square - noise / tokens])


class NoiseScale:
    """The noise scale over steps: its numerator and its denominator are averaged, each for itself, and then divided, as
    a ratio of estimates would be biased. `means`: (tr(C), |G|^2), or nothing yet; a checkpoint holds them."""

    def __init__(self, means: list[float]) -> None:
        self.means = means

    def see(self, noise: float, signal: float) -> None:
        """Take in the estimates of a step; those that are not finite are left out."""
        if math.isfinite(noise) and math.isfinite(signal):
            old = self.means or [0.0, 0.0]  # what the zeros make too small is the same factor in both
            self.means[:] = [DECAY * mean + (1 - DECAY) * new for mean, new in zip(old, (noise, signal), strict=True)]

    @property
    def value(self) -> float:
        """In sequences; NaN while there is none: before the first step, or where |G|^2 is lost in the noise."""
        return self.means[0] / self.means[1] if self.means and self.means[1] > 0 else math.nan
