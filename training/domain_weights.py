"""Weights of domains by exponentiated gradient on their excess losses: the outer half of DoReMi."""

from __future__ import annotations

import torch


def updated(weights: torch.Tensor, excess: torch.Tensor, eta: float, smoothing: float) -> torch.Tensor:
    """The weights behind a step: float64 (domains,), above 0, with the sum 1 (DoReMi, arXiv 2305.10429, algorithm 1).

    `weights`: those before it, likewise; `excess`: how much more each domain costs the proxy than the reference, in
    nats per token; `eta`: the step size; `smoothing`: the share of the uniform weights that is mixed in.
    """
    raised = torch.softmax(weights.log() + eta * excess, 0)
    return (1 - smoothing) * raised + smoothing / len(weights)


def excess_losses(sums: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
    """The excess loss of each domain in a batch, float64 (domains,).

    `sums`: (domains, 2), its summed token losses above the reference's, each clipped at 0, and its tokens, over the
    whole batch. A domain without a token there keeps its `last` one, as in the published code.
    """
    excess, tokens = sums.unbind(1)
    return torch.where(tokens > 0, excess / tokens.clamp(min=1), last)
