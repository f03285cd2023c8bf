"""The optimizers of a run: which one takes a parameter, Muon over sharded matrices, and the learning rate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import DTensor

from gristmill.training.config import TrainingConfig
from gristmill.training.decoder import Decoder
from gristmill.training.model_config import ModelConfig
from gristmill.training.parametrization import multipliers
from gristmill.training.world import local

# of Newton and Schulz's iterations, as in torch.optim.Muon, after Jordan et al.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5
EPS = 1e-7


class Muon:
    """Muon for groups {"params": matrices, "lr_multiplier": of the learning rate, "decay": what an update takes away of
    the weights, over its learning rate}. `momentum`: the decay rate of the mean of gradients, of Nesterov's kind.

    Its updates are scaled to the size of AdamW's (0.2 sqrt of the longer side: Moonshot, arXiv 2502.16982). `state`: by
    matrix its momentum_buffer, sharded like it.
    """

    def __init__(self, groups: list[dict[str, Any]], momentum: float) -> None:
        self.param_groups, self.momentum = groups, momentum
        self.state = {
            parameter: {"momentum_buffer": torch.zeros_like(parameter)}
            for group in groups
            for parameter in group["params"]
        }

    @torch.no_grad()
    def step(self, learning_rate: float, divisor: torch.Tensor, skip: torch.Tensor) -> None:
        """Update with the gradients divided by `divisor`, and drop them; a collective. See `Optimizers.step`."""
        for group in self.param_groups:
            alike: dict[Any, list[torch.Tensor]] = {}
            for parameter in group["params"]:
                kind = (parameter.shape, getattr(parameter, "placements", None))
                alike.setdefault(kind, []).append(parameter)
            for matrices in alike.values():
                self._step(matrices, learning_rate * group["lr_multiplier"], group["decay"], divisor, skip)

    def _step(
        self, matrices: list[torch.Tensor], rate: float, decay: float, divisor: torch.Tensor, skip: torch.Tensor
    ) -> None:
        """Update matrices of one shape, divided in the same way, which are stacked: a few operations for all of
        them."""
        momenta = [local(self.state[matrix]["momentum_buffer"]) for matrix in matrices]
        gradient = torch.stack([local(matrix.grad) for matrix in matrices])
        for matrix in matrices:
            matrix.grad = None
        # without momentum and gradient the update is zero: a skipped one does nothing
        gradient.div_(divisor).masked_fill_(skip, 0)
        momentum = torch.stack(momenta).masked_fill_(skip, 0).lerp_(gradient, 1 - self.momentum)
        torch._foreach_copy_(momenta, momentum.unbind())
        update = gradient.lerp_(momentum, self.momentum).to(torch.bfloat16 if gradient.is_cuda else torch.float32)
        del gradient, momentum
        update = orthogonalized(update, matrices[0]).float()
        weights = [local(matrix) for matrix in matrices]
        torch._foreach_mul_(weights, torch.where(skip, 1.0, 1 - rate * decay))
        torch._foreach_add_(weights, update.unbind(), alpha=-rate * (0.2 * math.sqrt(max(matrices[0].shape))))


def orthogonalized(updates: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """This rank's part of orthogonalized updates, from its part of the updates, (matrices, rows, columns); a collective
    of the ranks that divide `like`, a parameter of an update's shape when whole."""
    cuts: list[Cut] = []
    if isinstance(like, DTensor):
        mesh, sizes = like.device_mesh, list(like.shape)
        for dimension in reversed(range(mesh.ndim)):  # the last one of the mesh has cut first: see `local_part`
            placement, ranks = like.placements[dimension], mesh.size(dimension)
            if ranks > 1 and not placement.is_replicate():
                axis: int = placement.dim  # type: ignore[attr-defined]
                cuts.insert(0, Cut(mesh.get_group(dimension), ranks, axis, sizes[axis]))
                sizes[axis] = -(-sizes[axis] // ranks)
    return _orthogonalized(updates, cuts)


class Cut(NamedTuple):
    """Matrices that the ranks of a group divide along an axis, 0 or 1, along which they have `size` numbers."""

    group: dist.ProcessGroup
    ranks: int
    axis: int
    size: int


def _orthogonalized(updates: torch.Tensor, cuts: list[Cut]) -> torch.Tensor:
    """Undoes the first of the cuts: each rank of its group gets some of the matrices, the others' parts of them too,
    which may be parts of a whole in turn."""
    if not cuts:
        return orthogonal(updates)
    if not len(updates):  # on all ranks of the groups
        return updates
    (group, ranks, axis, rows), *others = cuts
    if axis == 1:
        return _orthogonalized(updates.mT, [Cut(*cut[:2], 1 - cut.axis, cut.size) for cut in cuts]).mT
    rows_per_rank = -(-rows // ranks)  # rows of a rank, as fully_shard cuts: the last ones have fewer, or none
    count, held, columns = updates.shape
    owned = -(-count // ranks)
    sent = updates.new_zeros(ranks * owned, rows_per_rank, columns)
    sent[:count, :held] = updates
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=group)
    mine = max(0, min(owned, count - dist.get_rank(group) * owned))
    pieces = received.view(ranks, owned, rows_per_rank, columns).transpose(0, 1)[:mine]
    whole = _orthogonalized(pieces.reshape(mine, ranks * rows_per_rank, columns)[:, :rows], others)
    pieces.copy_(F.pad(whole, (0, 0, 0, ranks * rows_per_rank - rows)).view(pieces.shape))
    dist.all_to_all_single(sent, received, group=group)
    return sent[:count, :held]


def orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """Five Newton-Schulz iterations toward the nearest orthogonal matrices, of (matrices, rows, columns): singular
    values become some .7 to 1.2, zero stays zero. A matrix becomes the same bits in any stack."""
    a, b, c = COEFFICIENTS
    tall = matrices.size(1) > matrices.size(2)
    x = matrices.mT if tall else matrices
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=EPS)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


Group = Literal["embedding", "head", "matrices", "vectors"]


@dataclass(frozen=True)
class Treatment:
    """How a parameter is updated. lr_multiplier: its learning rate over the schedule's; weight_decay: the share
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
    of rare tokens, and small embeddings make large gradients after a norm, which is why OLMo 2 leaves them out (arXiv
    2501.00656). A tied matrix counts as the embedding; lm_head decays.
    """
    group, by_size, rates = group_of(name, parameter), multipliers(name, model, training), training.rates
    ratios = {
        "embedding": rates.embedding,
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
    groups: dict[Treatment, ParameterGroup] = {}
    for name, parameter in model.named_parameters():
        its = treatment(name, parameter, model.config, training)
        groups.setdefault(its, ParameterGroup(its, {})).parameters[name] = parameter
    return list(groups.values())


def learning_rate(tokens: int, total: int, training: TrainingConfig, warmup: float | None = None) -> float:
    """Learning rate of a step after which `tokens` of the run's `total` are learned, 0 < tokens <= total.

    `warmup`: the tokens of the warm-up; None: the share of the run that its steps are, as where batches do not grow.

    A linear warm-up to the peak, then down to final_ratio of it, which the last step has:

    - cosine: half a cosine (Loshchilov and Hutter 2017, arXiv 1608.03983; to a tenth, as Chinchilla has it);
    - linear: a line;
    - wsd: the peak until decay_ratio of the run is left, then 1 - sqrt, the best of the shapes that Hägele et al. 2024
      (arXiv 2405.18392, section 4) compare.
    """
    peak = training.rates.matrices
    if warmup is None:
        warmup = training.warmup_steps / training.steps * total
    if tokens < warmup:
        return peak * tokens / warmup
    if training.schedule == "wsd":
        warmup = max(warmup, (1 - training.decay_ratio) * total)
    done = max(0.0, (tokens - warmup) / (total - warmup))
    remaining_share = {"cosine": 0.5 * (1 + math.cos(math.pi * done)), "linear": 1 - done, "wsd": 1 - math.sqrt(done)}
    return peak * (training.final_ratio + (1 - training.final_ratio) * remaining_share[training.schedule])


@dataclass(frozen=True)
class Optimizers:
    """AdamW, and Muon for the matrices of the blocks if the run has it. Without AdamW where a stage of a pipeline has
    nothing else."""

    adamw: torch.optim.AdamW | None
    muon: Muon | None

    def state(self, parameter: torch.Tensor) -> dict[str, torch.Tensor]:
        """The tensors that are kept for a parameter, by name."""
        if self.muon and parameter in self.muon.state:
            return self.muon.state[parameter]
        assert self.adamw is not None, "each parameter has one of the two"
        return self.adamw.state[parameter]

    def step(self, learning_rate: float, divisor: torch.Tensor, skip: torch.Tensor) -> None:
        """Update with the gradients divided by `divisor`, and drop them; where `skip` is true nothing changes.

        `learning_rate` is the schedule's: each group's is `lr_multiplier` of it.
        Both are tensors without dimensions on the device: the host does not wait for them. A skipped update leaves
        weights and AdamW's state as they are, to the bit; Muon's momentum begins again.
        """
        if self.adamw:
            # what torch's own loss scaling hands to the fused kernel: AdamW's `step` reads these two names
            self.adamw.grad_scale = divisor  # type: ignore[attr-defined]
            self.adamw.found_inf = skip.float()  # type: ignore[attr-defined]
            for group in self.adamw.param_groups:
                group["lr"] = learning_rate * group["lr_multiplier"]
            self.adamw.step()
            self.adamw.zero_grad(set_to_none=True)
        if self.muon:
            self.muon.step(learning_rate, divisor, skip)


def optimizers(model: Decoder, training: TrainingConfig) -> Optimizers:
    """Optimizers over the parameters of a model, sharded or not.

    Muon's updates are scaled to the size of AdamW's, so that one learning rate and decay serve both.

    The state (AdamW: two float32 tensors of each parameter's size, and a count; Muon: one) is made here rather than at
    the first step: a checkpoint is loaded into tensors that exist, and memory does not jump after the first step.
    """
    groups = parameter_groups(model, training)
    vectors = [
        {
            "params": list(group.parameters.values()),
            "lr_multiplier": group.treatment.lr_multiplier,
            "weight_decay": group.treatment.weight_decay,
            "eps": group.treatment.eps,
        }
        for group in groups
        if group.treatment.optimizer == "adamw"
    ]
    adamw = None
    if vectors:
        adamw = torch.optim.AdamW(vectors, lr=training.rates.matrices, betas=training.betas, fused=True)
        for parameter in (p for group in adamw.param_groups for p in group["params"]):
            adamw.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
    matrices: list[dict[str, Any]] = [
        {
            "params": list(group.parameters.values()),
            "lr_multiplier": group.treatment.lr_multiplier,
            "decay": group.treatment.weight_decay,
        }
        for group in groups
        if group.treatment.optimizer == "muon"
    ]
    return Optimizers(adamw, Muon(matrices, training.momentum) if matrices else None)
