"""The optimizers of a run and their learning rate, by the tokens learned from; the update as one of tensors alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from gristmill.training.config import TrainingConfig
from gristmill.training.model.decoder import Decoder
from gristmill.training.step.groups import parameter_groups
from gristmill.training.step.muon import Muon


def learning_rate(tokens: int, total: int, training: TrainingConfig, warmup: float | None = None) -> float:
    """Learning rate of a step behind which `tokens` of the run's `total` are learned, 0 < tokens <= total.

    `warmup`: the tokens of the warm-up; None: the share of the run that its steps are, as where batches do not grow.

    A linear warm-up to the peak, then down to final_ratio of it, which the last step has:

    - cosine: half a cosine (Loshchilov and Hutter 2017, arXiv 1608.03983; to a tenth, as Chinchilla has it);
    - linear: a line;
    - wsd: the peak until decay_ratio of the run is left, then 1 - sqrt, the best of the shapes that Hägele et al. 2024
      (arXiv 2405.18392, section 4) compare.
    """
    peak = training.peak_rate
    if warmup is None:
        warmup = training.warmup_steps / training.steps * total
    if tokens < warmup:
        return peak * tokens / warmup
    if training.schedule == "wsd":
        warmup = max(warmup, (1 - training.decay_ratio) * total)
    done = max(0.0, (tokens - warmup) / (total - warmup))
    left = {"cosine": 0.5 * (1 + math.cos(math.pi * done)), "linear": 1 - done, "wsd": 1 - math.sqrt(done)}
    return peak * (training.final_ratio + (1 - training.final_ratio) * left[training.schedule])


@dataclass(frozen=True)
class Optimizers:
    """AdamW, and Muon for the matrices of the blocks if the run has it."""

    adamw: torch.optim.AdamW
    muon: Muon | None

    def state(self, parameter: torch.Tensor) -> dict[str, torch.Tensor]:
        """The tensors that are kept for a parameter, by name."""
        if self.muon and parameter in self.muon.state:
            return self.muon.state[parameter]
        return self.adamw.state[parameter]

    def step(self, learning_rate: float, divisor: torch.Tensor, skip: torch.Tensor) -> None:
        """Update with the gradients divided by `divisor`, and drop them; where `skip` is true nothing changes.

        `learning_rate` is that of the schedule: each group's is `lr_multiplier` of it.
        Both are tensors without dimensions on the device: the host does not wait for them. A skipped update leaves
        weights and AdamW's state as they are, to the bit; Muon's momentum begins anew.
        """
        # what torch's own loss scaling hands to the fused kernel: AdamW's `step` reads these two names
        self.adamw.grad_scale = divisor  # type: ignore[attr-defined]
        self.adamw.found_inf = skip.float()  # type: ignore[attr-defined]
        for group in self.adamw.param_groups:
            group["lr"] = learning_rate * group["lr_multiplier"]
        self.adamw.step()
        self.adamw.zero_grad(set_to_none=True)
        if self.muon:
            self.muon.step(learning_rate, divisor, skip)


def optimizers(model: Decoder, training: TrainingConfig) -> Optimizers:
    """Optimizers over the parameters of a model, sharded or not.

    Muon's updates are scaled to the size of AdamW's, so that one learning rate and decay serve both.

    The state (AdamW: two float32 tensors of each parameter's size, and a count; Muon: one) is made here rather than at
    the first step: a checkpoint is loaded into tensors that exist, and memory does not jump after the first step.
    """
    groups = parameter_groups(model, training)
    adamw = torch.optim.AdamW(
        [
            {
                "params": list(group.parameters.values()),
                "lr_multiplier": group.treatment.lr_multiplier,
                "weight_decay": group.treatment.weight_decay,
                "eps": group.treatment.eps,
            }
            for group in groups
            if group.treatment.optimizer == "adamw"
        ],
        lr=training.peak_rate,
        betas=training.betas,
        fused=True,
    )
    for parameter in (p for group in adamw.param_groups for p in group["params"]):
        adamw.state[parameter] = {
            "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
    matrices: list[dict[str, Any]] = [
        {
            "params": list(group.parameters.values()),
            "lr_multiplier": group.treatment.lr_multiplier,
            "decay": group.treatment.weight_decay,
        }
        for group in groups
        if group.treatment.optimizer == "muon"
    ]
    return Optimizers(adamw, Muon(matrices) if matrices else None)
