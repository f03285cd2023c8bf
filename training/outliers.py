"""Which updates to skip, decided on the device: the host does not wait for the verdict."""

from __future__ import annotations

import torch

from training.config import GuardConfig

APPLIED, NOT_FINITE, OUTLIER = 0, 1, 2


class Outliers:
    """Compares each update with the newest accepted ones. `tensors` belong into a checkpoint.

    An outlier has a loss or gradient norm above mean + `deviations` standard deviations of the last `window` accepted
    updates (OLMo-core's SkipStepOptimizer: 6 of 128), and none is judged before there are so many. Here the logarithms
    are compared: norms are skewed, and six deviations of their logarithms seldom happen to healthy small runs. What
    comes of several in a row, `training.guard` decides. All ranks see the same figures, those of the whole batch, so
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
