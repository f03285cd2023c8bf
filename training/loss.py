"""Losses as sums over tokens, so that they add up over micro-batches and ranks."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

IGNORE = -100
IN_PLACE = 1 << 32  # above every token id


def inputs_and_targets(rows: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Split (n, seq_len + 1) token ids into inputs and next-token targets, padded to `count` rows.

    A token that is read but no target is given as its bitwise complement, ~id; one whose target is predicted at its own
    place, instead of the next token, as (target + 1) * IN_PLACE + id. Padding rows have only IGNORE targets:
    they add nothing to a sum, and give every rank the same number of forward passes, without which the ranks'
    collectives would wait for each other for ever.
    """
    padding = count - len(rows)
    read, following = rows[:, :-1], rows[:, 1:]
    inputs = F.pad(torch.where(read < 0, ~read, read % IN_PLACE), (0, 0, 0, padding))
    targets = torch.where(read < IN_PLACE, following, read // IN_PLACE - 1)
    targets = targets.masked_fill((targets < 0) | (targets >= IN_PLACE), IGNORE)
    return inputs, F.pad(targets, (0, 0, 0, padding), value=IGNORE)


def logits_of(x: torch.Tensor, weight: torch.Tensor, softcap: float | None) -> torch.Tensor:
    """The output projection of (..., dim), with the cap of Gemma 2 (arXiv 2408.00118, section 2) if there is one."""
    logits = F.linear(x, weight)
    return logits if softcap is None else (softcap * torch.tanh(logits.float() / softcap)).type_as(logits)


def token_losses(x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, softcap: float | None) -> torch.Tensor:
    """Cross-entropy of each target in nats, float32 (1, tokens); 0 where the target is IGNORE. Arguments: those of
    `loss_sums`."""
    logits = logits_of(x, weight, softcap).float()
    return F.cross_entropy(logits, targets, reduction="none", ignore_index=IGNORE)[None]


def token_scores(x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, softcap: float | None) -> torch.Tensor:
    """`token_losses`, and 1 for each target that is not the likeliest token, else 0: float32 (2, tokens)."""
    logits = logits_of(x, weight, softcap).float()
    nats = F.cross_entropy(logits, targets, reduction="none", ignore_index=IGNORE)
    missed = (logits.argmax(-1) != targets) & (targets != IGNORE)
    return torch.stack([nats, missed.float()])


def loss_sums(
    x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, softcap: float | None, z_loss: float
) -> torch.Tensor:
    """(cross-entropy in nats, z-loss with its weight) summed over the targets that are not IGNORE: float32 (2,).

    x: (tokens, dim), the last norm's output; weight: (vocabulary, dim); targets: (tokens,). The z-loss is the squared
    log of the softmax's sum, which keeps logits from drifting (PaLM, arXiv 2204.02311, section 5). Meant to be compiled
    as one function: then the logits are read twice, and intermediate values stay in registers.
    """
    logits = logits_of(x, weight, softcap).float()
    nats = F.cross_entropy(logits, targets, reduction="sum", ignore_index=IGNORE)
    if not z_loss:
        return torch.stack([nats, torch.zeros_like(nats)])
    squares = torch.logsumexp(logits, -1).square().masked_fill(targets == IGNORE, 0)
    return torch.stack([nats, z_loss * squares.sum()])


def chunked(sums: Callable[..., torch.Tensor], chunks: int) -> Callable[..., torch.Tensor]:
    """`loss_sums` over `chunks` pieces of the tokens, of which one at a time has its logits in memory: they are
    computed again in the backward pass."""
    if chunks == 1:
        return sums

    def whole(x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, *settings: float | None) -> torch.Tensor:
        pieces = zip(x.chunk(chunks), targets.chunk(chunks), strict=True)
        chunk_sums = [checkpoint(sums, a, weight, b, *settings, use_reentrant=False) for a, b in pieces]
        return torch.stack(chunk_sums).sum(0)

    return whole


# Logits in memory at once where losses of single tokens are wanted: 64 MB in float32, enough to fill a GPU.
LOGITS = 1 << 24


def in_pieces(each: Callable[..., torch.Tensor], logits: int = LOGITS) -> Callable[..., torch.Tensor]:
    """`token_losses` or `token_scores` over pieces of the tokens, of which one at a time has its logits in memory, at
    most `logits`, or one token's. Where gradients are wanted they are computed again in the backward pass."""

    def whole(x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, softcap: float | None) -> torch.Tensor:
        size = max(1, logits // len(weight))
        pieces = list(zip(x.split(size), targets.split(size), strict=True))
        if torch.is_grad_enabled() and len(pieces) > 1:
            piece_values = [checkpoint(each, a, weight, b, softcap, use_reentrant=False) for a, b in pieces]
        else:
            piece_values = [each(a, weight, b, softcap) for a, b in pieces]
        return torch.cat(piece_values, -1)

    return whole


def bits_per_byte(nats: float, size: int) -> float:
    """Summed loss over the UTF-8 bytes of the targets: comparable between tokenizers.

    Control tokens have a loss but no bytes: the model pays for each end of text.
    """
    return nats / math.log(2) / size
