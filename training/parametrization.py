"""How first weights, learning rates, decay and eps follow the width and the depth of a model.

With `m = dim / base_dim` and `l = layers / base_layers`, a model of the base's shape is the standard one. muP (Yang et
al. 2022, arXiv 2203.03466, table 8) and CompleteP (Dey et al. 2025, arXiv 2505.01618, alpha = 1) multiply in the
forward pass: logits by 1/m, attention logits by 1/head_dim instead of its root, what a block adds by 1/l. Here nothing
is multiplied there, so weights are as in a plain Llama. A weight W that is followed by a factor f does what fW does
without it, if fW has f times the first deviation, f times the learning rate (updates of AdamW and Muon do not know the
scale of a gradient), 1/f of eps and of the decay, which is the learning rate's share. The factors are taken in by

    1/m of the logits     the gain of the last norm, before the output matrix, tied or not; where there is none, the
                          output matrix, which may then not be the embedding
    attention logits      q_proj, or the gain of q_norm; without one, heads of the base's size are asked for
    1/l of a block        o_proj and down_proj or fc2

For matrices of the blocks that leaves, before f: deviations m^-1/2, learning rates of AdamW 1/m. Muon's update is a
matrix whose singular values are 1, times .2 sqrt(longer side): its spectral norm may not grow with the width (Yang et
al. 2023, arXiv 2310.17813), so its learning rate is m^-1/2. Decay times learning rate stays, eps scales with gradients,
1/(m l). What is named after the norm of the gradient (clipping, noise scale) is of the weights as they are here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from gristmill.training.config import Parametrization, TrainingConfig
from gristmill.training.model_config import INTO_STREAM, ModelConfig


class Multipliers(NamedTuple):
    """Factors of a parameter, relative to the standard parametrization."""

    initial: float = 1.0  # its first value
    learning_rate: float = 1.0
    weight_decay: float = 1.0
    eps: float = 1.0


def multipliers(name: str, model: ModelConfig, training: TrainingConfig) -> Multipliers:
    """The factors of a parameter of a Decoder, by its name."""
    rule = training.parametrization
    if rule is None:
        return Multipliers()
    width = model.dim / rule.base_dim
    depth = model.layers / rule.layers if rule.rule == "completep" else 1.0
    attention = math.sqrt((rule.base_head_dim or model.head_dim) / model.head_dim)
    if name == ("norm.weight" if model.norm_gains else "lm_head.weight"):
        return Multipliers(1 / width, 1 / width, width)
    if not name.startswith("layers."):
        return Multipliers(eps=1 / width)
    if name.endswith("norm.weight"):
        factor = attention if name.endswith("q_norm.weight") else 1.0
        return Multipliers(factor, factor, eps=1 / (width * depth * factor))
    factor, initial = 1.0, 1 / math.sqrt(width)
    if name.endswith("q_proj.weight") and not model.qk_norm:
        factor = attention
    elif name.endswith(INTO_STREAM):
        factor = 1 / depth
        initial *= math.sqrt(depth)  # the standard deviation has 1 / sqrt(2 layers), here that of base_layers counts
    rate = factor * (1 / math.sqrt(width) if training.optimizer == "muon" else 1 / width)
    return Multipliers(factor * initial, rate, 1 / rate, 1 / (width * depth * factor))


def without_gains(model: ModelConfig, rule: Parametrization) -> Iterator[tuple[tuple[str, ...], str]]:
    """What a rule asks for that the block nanochat cannot have, as its norms have no gains: places of
    settings, and sentences after their names."""
    if model.tie_embeddings:
        yield (
            ("training", "parametrization"),
            "scales the output matrix of the block nanochat, but model.tie_embeddings makes it the embedding, too; set "
            "tie_embeddings: false, or remove parametrization",
        )
    if rule.base_head_dim not in (None, model.head_dim):
        yield (
            ("training", "parametrization", "base_head_dim"),
            f"is {rule.base_head_dim}, but model.dim / model.heads is {model.head_dim}, and the queries of the block "
            "nanochat have no gains that could be scaled; make the two equal",
        )
