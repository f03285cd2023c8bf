"""The learning rate as a pure function of the tokens that were learned from."""

from __future__ import annotations

import math

from training.config import TrainingConfig


def learning_rate(tokens: int, total: int, training: TrainingConfig) -> float:
    """Learning rate of a step behind which `tokens` of the run's `total` are learned, 0 < tokens <= total.

    A linear warm-up to the peak, then down to final_ratio of it, which the last step has:

    - cosine: half a cosine (Loshchilov and Hutter 2017, arXiv 1608.03983; to a tenth, as Chinchilla has it);
    - linear: a line;
    - wsd: the peak until decay_ratio of the run is left, then 1 - sqrt, the best of the shapes that Hägele et al. 2024
      (arXiv 2405.18392, section 4) compare.
    """
    peak, warmup = training.learning_rate, training.warmup_steps / training.steps * total
    if tokens < warmup:
        return peak * tokens / warmup
    if training.schedule == "wsd":
        warmup = max(warmup, (1 - training.decay_ratio) * total)
    done = max(0.0, (tokens - warmup) / (total - warmup))
    left = {"cosine": 0.5 * (1 + math.cos(math.pi * done)), "linear": 1 - done, "wsd": 1 - math.sqrt(done)}
    return peak * (training.final_ratio + (1 - training.final_ratio) * left[training.schedule])
