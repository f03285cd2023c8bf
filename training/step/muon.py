"""Muon over sharded matrices: each is made whole on one rank, which orthogonalizes it for all.

Jordan et al. 2024 (kellerjordan.github.io/posts/muon) orthogonalize the momentum of a matrix, for which all of it is
needed. The matrices of one shape are divided among the ranks that shard them: one all-to-all brings each rank the
rows of its matrices, another one takes the results back to where their rows are. So a step has two collectives for each
shape in a group, whatever the number of matrices, and each matrix is computed once, as in nanochat and torchtitan.
Between the two a rank holds its matrices whole, in the dtype in which they are computed: bfloat16 on a GPU, as Jordan
et al. do, float32 on a CPU, where products in bfloat16 take 7 to 20 times as long (128 x 128: 1.7 ms for .08).

On each matrix the same operations run as in torch.optim.Muon, so results are the same to the bit, on a CPU, for any
number of ranks that have the same gradients.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from gristmill.training.model.parallel import local

MOMENTUM = 0.95  # of Nesterov's kind; this and the next three as in torch.optim.Muon, after Jordan et al.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5
EPS = 1e-7


class Muon:
    """Of groups {"params": matrices, "lr_multiplier": of the learning rate, "decay": what an update takes away of the
    weights, over its learning rate}.

    Its updates are scaled to the size of AdamW's (0.2 sqrt of the longer side: Moonshot, arXiv 2502.16982). `state`: by
    matrix its momentum_buffer, sharded like it.
    """

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        self.param_groups = groups
        self.state = {
            parameter: {"momentum_buffer": torch.zeros_like(parameter)}
            for group in groups
            for parameter in group["params"]
        }

    @torch.no_grad()
    def step(self, learning_rate: float, divisor: torch.Tensor, skip: torch.Tensor) -> None:
        """Update with the gradients divided by `divisor`, and drop them; a collective. See `Optimizers.step`."""
        for group in self.param_groups:
            alike: dict[torch.Size, list[torch.Tensor]] = {}
            for parameter in group["params"]:
                alike.setdefault(parameter.shape, []).append(parameter)
            for matrices in alike.values():
                self._step(matrices, learning_rate * group["lr_multiplier"], group["decay"], divisor, skip)

    def _step(
        self, matrices: list[torch.Tensor], rate: float, decay: float, divisor: torch.Tensor, skip: torch.Tensor
    ) -> None:
        updates = []
        for matrix in matrices:
            gradient, momentum = local(matrix.grad), local(self.state[matrix]["momentum_buffer"])
            # without momentum and gradient the update is zero: a skipped one does nothing
            gradient.div_(divisor).masked_fill_(skip, 0)
            momentum.masked_fill_(skip, 0).lerp_(gradient, 1 - MOMENTUM)
            updates.append(gradient.lerp(momentum, MOMENTUM).to(torch.bfloat16 if gradient.is_cuda else torch.float32))
            matrix.grad = None
        scale = rate * (0.2 * math.sqrt(max(matrices[0].shape)))
        kept = torch.where(skip, 1.0, 1 - rate * decay)
        for matrix, update in zip(matrices, orthogonalized(updates, matrices[0]), strict=True):
            local(matrix).mul_(kept).add_(update, alpha=-scale)


def orthogonalized(updates: list[torch.Tensor], like: torch.Tensor) -> list[torch.Tensor]:
    """This rank's rows of the orthogonalized updates, from its rows of the updates; a collective of the
    ranks that shard `like`, a parameter of the updates' shape when whole."""
    mesh = like.device_mesh if isinstance(like, DTensor) else None
    ranks = mesh.size(mesh.ndim - 1) if mesh else 1
    if mesh is None or ranks == 1:
        return [orthogonal(update) for update in updates]
    group = mesh.get_group(mesh.ndim - 1)
    rows, columns = like.shape
    held = -(-rows // ranks)  # rows of a rank, as fully_shard cuts: the last ones have fewer, or none
    owned = -(-len(updates) // ranks)
    sent = updates[0].new_zeros(ranks * owned, held, columns)
    for piece, update in zip(sent, updates, strict=False):
        piece[: len(update)] = update
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=group)
    pieces = received.view(ranks, owned, held, columns)
    mine = range(owned)[: max(0, len(updates) - dist.get_rank(group) * owned)]
    for index in mine:
        whole = pieces[:, index].reshape(ranks * held, columns)
        whole[:rows] = orthogonal(whole[:rows])
        pieces[:, index] = whole.view(ranks, held, columns)
    dist.all_to_all_single(sent, received, group=group)
    return [piece[: len(update)] for piece, update in zip(sent, updates, strict=False)]


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """Five Newton-Schulz iterations towards the nearest orthogonal matrix: the singular values of a matrix
    become some .7 to 1.2, zero stays zero."""
    a, b, c = COEFFICIENTS
    tall = matrix.size(0) > matrix.size(1)
    x = matrix.T if tall else matrix
    x = x / x.norm().clamp(min=EPS)
    for _ in range(ITERATIONS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x
