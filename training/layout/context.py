"""How processes divide the tokens of a sequence.

- `context` processes have consecutive parts of each sequence. For attention they exchange tokens for heads, so that
  each has some heads of the whole sequence, and back (Ulysses, arXiv 2309.14509). So every mask is that of the whole
  sequence. (torch's own context_parallel needs a GPU, and has no document masks.)
- `tensor` processes have the tokens of their context's part, but between the products of a block only some of them:
  sequence parallelism (Korthikanti et al. 2022, arXiv 2205.05198).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from gristmill.training.layout.mesh import Axis


@dataclass(frozen=True)
class Division:
    """The default is for one process, which has all tokens: then each method returns its argument."""

    context: Axis = Axis()
    tensor: Axis = Axis()

    @property
    def parts(self) -> int:
        """Equal parts of a sequence that processes have between products."""
        return self.context.size * self.tensor.size

    def padded(self, tokens: torch.Tensor, value: int) -> torch.Tensor:
        """(batch, length), with `value` at the right up to a length that can be divided. No token sees what is at its
        right, unless the model is not causal: then it is only given whole sequences."""
        missing = -tokens.shape[1] % self.parts
        return F.pad(tokens, (0, missing), value=value) if missing else tokens

    def own(self, values: torch.Tensor, dim: int = 1) -> torch.Tensor:
        """The tokens of this process's part of the sequence, which `values` has along `dim`."""
        return values if self.context.size == 1 else values.chunk(self.context.size, dim)[self.context.rank]

    def whole(self, values: torch.Tensor) -> torch.Tensor:
        """What all processes have computed of their tokens, along the last dimension, on each of them. No gradient."""
        if self.context.size == 1:
            return values
        parts = [torch.empty_like(values) for _ in range(self.context.size)]
        dist.all_gather(parts, values.contiguous(), group=self.context.group)
        return torch.cat(parts, -1)

    def gathered(self, x: torch.Tensor) -> torch.Tensor:
        """What a divided product reads of the stream (batch, tokens, dim): all tokens of the context's part. Processes
        of `tensor` get the same, as a DTensor whose gradients are added up."""
        if self.tensor.mesh is None:
            return x
        return DTensor.from_local(x, self.tensor.mesh, [Shard(1)], run_check=False).redistribute(
            placements=[Replicate()]
        )

    def plain(self, x: torch.Tensor) -> torch.Tensor:
        """What `gathered` returns as a plain tensor, of whose gradient each process has a part of the sum."""
        return x.to_local(grad_placements=[Partial()]) if isinstance(x, DTensor) else x

    def rows(self, weight: torch.Tensor) -> torch.Tensor:
        """This process's rows of the output matrix."""
        return weight.to_local() if isinstance(weight, DTensor) else weight

    def by_heads(self, x: torch.Tensor) -> torch.Tensor:
        """From (batch, heads, this part's tokens, head_dim) to some of the heads and all tokens."""
        size = self.context.size
        if size == 1:
            return x
        sent = torch.stack(x.chunk(size, 1))  # by the process that gets it
        received = self._exchange(sent)  # by the process that sent it, which is the place of the tokens
        return torch.cat(received.unbind(), 2)

    def by_tokens(self, x: torch.Tensor) -> torch.Tensor:
        """The inverse of `by_heads`."""
        size = self.context.size
        if size == 1:
            return x
        return torch.cat(self._exchange(torch.stack(x.chunk(size, 2))).unbind(), 1)

    def _exchange(self, pieces: torch.Tensor) -> torch.Tensor:
        """`pieces[i]` goes to process i of the context, and comes from there."""
        ones = [1] * self.context.size
        return all_to_all_single_autograd(pieces.contiguous(), ones, ones, self.context.group)


UNDIVIDED = Division()
