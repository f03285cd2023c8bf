"""Losses as sums over tokens, so that they add up over micro-batches and ranks."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

IGNORE = -100


def inputs_and_targets(rows: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Split (n, seq_len + 1) token ids into inputs and next-token targets, padded to `count` rows.

    Padding rows have only IGNORE targets: they add nothing to a sum, and give every rank the same number of
    forward passes, without which the ranks' collectives would wait for each other for ever.
    """
    padding = count - len(rows)
    inputs = F.pad(rows[:, :-1], (0, 0, 0, padding))
    targets = F.pad(rows[:, 1:], (0, 0, 0, padding), value=IGNORE)
    return inputs, targets


def token_losses(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of each target in nats, float32 of targets' shape; 0 where the target is IGNORE."""
    flat = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="none", ignore_index=IGNORE)
    return flat.view_as(targets)


def bits_per_byte(nats: float, size: int) -> float:
    """Summed loss over the UTF-8 bytes that the targets stand for: comparable between tokenizers.

    Control tokens have a loss but stand for no bytes: the model pays for each end of text.
    """
    return nats / math.log(2) / size
