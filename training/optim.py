"""AdamW with its state laid out from the start."""

from __future__ import annotations

import torch
from torch import nn

from training.config import TrainingConfig


def decays(name: str, parameter: torch.Tensor) -> bool:
    """Weight decay is for the matrices of linear layers: not for norms, and not for the embedding.

    Decay shrinks the rows of rare tokens, and small embeddings make large gradients behind a norm, which is
    why OLMo 2 leaves them out (arXiv 2501.00656). A tied matrix counts as the embedding; lm_head decays.
    """
    return parameter.ndim >= 2 and not name.startswith("embed_tokens")


def adamw(model: nn.Module, training: TrainingConfig) -> torch.optim.AdamW:
    """Optimizer over the parameters of a model, sharded or not.

    The state (two float32 tensors of each parameter's size, and a count) is made here rather than at the
    first step: a checkpoint is loaded into tensors that exist, and memory does not jump after the first
    step.
    """
    named = list(model.named_parameters())
    groups = [
        {"params": [p for n, p in named if decays(n, p)], "weight_decay": training.weight_decay},
        {"params": [p for n, p in named if not decays(n, p)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=training.learning_rate, betas=training.betas, eps=training.eps, fused=True)
    for _, parameter in named:
        optimizer.state[parameter] = {
            "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
    return optimizer
