"""Which optimizer takes a parameter, at which share of the learning rate, and whether it decays.

Every parameter is of one of four groups:

    embedding   embed_tokens, with tied embeddings the output matrix too
    head        lm_head, where embeddings are not tied
    matrices    those of linear layers in the blocks: the learning rate is theirs
    vectors     the gains of norms

`treatment` decides for one parameter by its name and shape alone, so each rank of a sharded model decides alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from gristmill.training.config import ModelConfig, TrainingConfig
from gristmill.training.model.decoder import Decoder
from gristmill.training.model.parametrization import multipliers

Group = Literal["embedding", "head", "matrices", "vectors"]


@dataclass(frozen=True)
class Treatment:
    """How a parameter is updated. lr_multiplier: its learning rate over that of the schedule; weight_decay: the share
    of it that an update takes away is this times its learning rate; eps: of AdamW."""

    group: Group
    optimizer: Literal["adamw", "muon"]
    lr_multiplier: float
    weight_decay: float
    eps: float


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters of equal treatment, by name, in the order of the model."""

    treatment: Treatment
    parameters: dict[str, nn.Parameter]


def group_of(name: str, parameter: torch.Tensor) -> Group:
    """The group of a parameter of a Decoder."""
    if parameter.ndim < 2:
        return "vectors"
    if name.startswith("embed_tokens"):
        return "embedding"
    return "head" if name.startswith("lm_head") else "matrices"


def treatment(name: str, parameter: torch.Tensor, model: ModelConfig, training: TrainingConfig) -> Treatment:
    """How a run updates a parameter of a Decoder.

    Weight decay is for the matrices of linear layers: not for norms, and not for the embedding. Decay shrinks the rows
    of rare tokens, and small embeddings make large gradients behind a norm, which is why OLMo 2 leaves them out (arXiv
    2501.00656). A tied matrix counts as the embedding; lm_head decays.
    """
    group, by_size = group_of(name, parameter), multipliers(name, model, training)
    ratios = {
        "embedding": training.embedding_factor,
        "head": training.head_rate,
        "matrices": 1.0,
        "vectors": training.vector_rate,
    }
    return Treatment(
        group,
        "muon" if training.optimizer == "muon" and group == "matrices" else "adamw",
        ratios[group] * by_size.learning_rate,
        training.weight_decay * by_size.weight_decay if group in ("head", "matrices") else 0.0,
        training.eps * by_size.eps,
    )


def parameter_groups(model: Decoder, training: TrainingConfig) -> list[ParameterGroup]:
    """All parameters of a model, sharded or not, each in one group; groups in the order of their first parameters."""
    found: dict[Treatment, ParameterGroup] = {}
    for name, parameter in model.named_parameters():
        its = treatment(name, parameter, model.config, training)
        found.setdefault(its, ParameterGroup(its, {})).parameters[name] = parameter
    return list(found.values())
