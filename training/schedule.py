"""The learning rate as a pure function of the step."""

from __future__ import annotations

import math

from training.config import TrainingConfig


def learning_rate(step: int, training: TrainingConfig) -> float:
    """Learning rate of step 0 <= step < steps: linear warm-up, then half a cosine down to final_ratio."""
    peak, warmup, last = training.learning_rate, training.warmup_steps, training.steps - 1
    # The first step learns already, and the last one of the warm-up reaches the peak.
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = (step - warmup) / max(1, last - warmup)
    cosine = 0.5 * (1 + math.cos(math.pi * progress))
    return peak * (training.final_ratio + (1 - training.final_ratio) * cosine)
