"""Each matrix over several processes, and the loss over their parts of the vocabulary.

Queries, keys, values and the first products of the feed-forward network are divided by rows, so that each process has
some heads and some columns of the values between them; the products back into the stream are divided by columns, and
their sums are scattered over the tokens (Megatron-LM, arXiv 1909.08053; with sequence parallelism, arXiv 2205.05198).
Embedding and output matrix are divided by the vocabulary. Every parameter becomes a DTensor, as FSDP2 asks for; the
gains of norms are whole on each process, and torch adds up their gradients.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_reduce
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from gristmill.training.loss import IGNORE, logits_of

MATRICES: dict[str, ParallelStyle] = {
    **{f"self_attn.{name}_proj": ColwiseParallel() for name in "qkv"},
    "self_attn.o_proj": RowwiseParallel(output_layouts=Shard(1)),
    **{f"mlp.{name}": ColwiseParallel() for name in ("gate_proj", "up_proj", "fc1")},
    **{f"mlp.{name}": RowwiseParallel(output_layouts=Shard(1)) for name in ("down_proj", "fc2")},
}
NORMS: dict[str, ParallelStyle] = {
    **{name: SequenceParallel(use_local_output=True) for name in ("input_layernorm", "post_attention_layernorm")},
    # of (batch, heads, tokens, head_dim), of which each process has some heads
    **{f"self_attn.{name}_norm": SequenceParallel(sequence_dim=1, use_local_output=True) for name in "qk"},
}
OUTSIDE: dict[str, ParallelStyle] = {
    "embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
    "norm": SequenceParallel(use_local_output=True),
    "lm_head": ColwiseParallel(),  # only its matrix is used
}


def divide_matrices(model: nn.Module, layers: nn.ModuleList, mesh: DeviceMesh) -> None:
    """Divide a Decoder, or a stage of one, before it is compiled and sharded. The sizes must be multiples: see
    `limits`."""
    parallelize_module(model, mesh, _there(model, OUTSIDE))
    for layer in layers:
        parallelize_module(layer, mesh, _there(layer, {**MATRICES, **NORMS}))


def _there(module: nn.Module, plan: dict[str, ParallelStyle]) -> dict[str, ParallelStyle]:
    """The modules of a plan that have parameters."""
    owners = {name.rpartition(".")[0] for name, _ in module.named_parameters()}
    return {name: style for name, style in plan.items() if name in owners}


class VocabularyLosses:
    """The losses of `gristmill.training.loss` where each process of a mesh has some rows of the output matrix: the same
    values on all of them, and the gradient of its own rows. No process has all logits of a token."""

    def __init__(self, mesh: DeviceMesh) -> None:
        self.mesh = mesh

    def token_losses(
        self, x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, softcap: float | None
    ) -> torch.Tensor:
        """See `gristmill.training.loss.token_losses`."""
        return self._nats(logits_of(x, weight, softcap).float(), targets)[0][None]

    def token_scores(
        self, x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, softcap: float | None
    ) -> torch.Tensor:
        """See `gristmill.training.loss.token_scores`. No gradient."""
        logits = logits_of(x, weight, softcap).float()
        best, index = logits.max(-1)
        bests = self._of_all(best)
        indexes = self._of_all(index + self.mesh.get_local_rank() * logits.shape[-1])
        # the first of equal ones, as argmax of all of them takes
        likeliest = indexes.gather(0, bests.argmax(0, keepdim=True))[0]
        missed = (likeliest != targets) & (targets != IGNORE)
        return torch.stack([self._nats(logits, targets)[0], missed.float()])

    def loss_sums(
        self, x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, softcap: float | None, z_loss: float
    ) -> torch.Tensor:
        """See `gristmill.training.loss.loss_sums`."""
        nats, logarithms = self._nats(logits_of(x, weight, softcap).float(), targets)
        if not z_loss:
            return torch.stack([nats.sum(), torch.zeros_like(nats[0])])
        squares = logarithms.square().masked_fill(targets == IGNORE, 0)
        return torch.stack([nats.sum(), z_loss * squares.sum()])

    def _nats(self, logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(the loss of each target, 0 where it is IGNORE; the logarithm of the softmax's sum), float32 (tokens,)."""
        largest = all_reduce(logits.detach().amax(-1), "max", self.mesh.get_group())
        logarithms = self._sum((logits - largest[:, None]).exp().sum(-1)).log() + largest
        rows = logits.shape[-1]
        place = targets - self.mesh.get_local_rank() * rows
        here = (place >= 0) & (place < rows)
        own = logits.gather(-1, place.clamp(0, rows - 1)[:, None])[:, 0].masked_fill(~here, 0)
        return (logarithms - self._sum(own)).masked_fill(targets == IGNORE, 0), logarithms

    def _sum(self, values: torch.Tensor) -> torch.Tensor:
        """Over all processes, each of which has the gradient of its own summand."""
        partial = DTensor.from_local(values, self.mesh, [Partial()], run_check=False)
        return partial.redistribute(placements=[Replicate()]).to_local()

    def _of_all(self, values: torch.Tensor) -> torch.Tensor:
        """The values of all processes, stacked."""
        every = [torch.empty_like(values) for _ in range(self.mesh.size())]
        dist.all_gather(every, values.contiguous(), group=self.mesh.get_group())
        return torch.stack(every)
