"""The factor of the loss that keeps fp16 gradients from vanishing, found while training, on the device alone."""

from __future__ import annotations

import torch

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
