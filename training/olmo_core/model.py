"""OLMo-core's Transformer in the place of a Decoder, and how OLMo-core divides it: the same tensors under the same
names, and the same losses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import torch
import torch.distributed as dist
from olmo_core.config import DType
from olmo_core.distributed.parallel import (
    DataParallelType,
    build_world_mesh,
    get_cp_mesh,
    get_dp_process_group,
    get_tp_mesh,
)
from olmo_core.float8 import AOFloat8LinearConfig, Float8Config
from olmo_core.nn.attention import AttentionBackendName
from olmo_core.nn.feed_forward import FeedForwardConfig
from olmo_core.nn.lm_head import LMOutputWithLoss
from olmo_core.nn.transformer import Transformer, TransformerActivationCheckpointingMode, TransformerConfig
from olmo_core.train.train_module import (
    TransformerActivationCheckpointingConfig,
    TransformerContextParallelConfig,
    TransformerDataParallelConfig,
    TransformerTensorParallelConfig,
)
from olmo_core.train.train_module.transformer.common import parallelize_model
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Shard
from torch.nn import functional as F

from gristmill.training.config import TrainingConfig
from gristmill.training.decoder import Decoder
from gristmill.training.loss import IGNORE
from gristmill.training.model_config import ModelConfig
from gristmill.training.olmo_core.names import own_name
from gristmill.training.world import World, compute_dtype, emulates_fp8, local, micro_batch, node_places, sum_gradients


def data_parallel(training: TrainingConfig, device: torch.device, processes: int) -> TransformerDataParallelConfig:
    """FSDP over what replicas, tensor and context leave; HSDP with replicas. Raises ValueError as Parallel.shards."""
    parallel = training.parallel
    shards = parallel.shards(processes)
    hybrid = {"num_replicas": parallel.replicas, "shard_degree": shards} if parallel.replicas > 1 else {}
    return TransformerDataParallelConfig(
        name=DataParallelType.hsdp if hybrid else DataParallelType.fsdp,
        param_dtype=DType.from_pt(compute_dtype(training.precision, device) or torch.float32),
        reduce_dtype=DType.bfloat16 if training.reduce_dtype == "bf16" else DType.float32,
        **hybrid,
    )


def tensor_parallel(training: TrainingConfig) -> TransformerTensorParallelConfig | None:
    """None where no matrix is divided."""
    degree = training.parallel.tensor
    return TransformerTensorParallelConfig(degree=degree) if degree > 1 else None


def context_parallel(training: TrainingConfig) -> TransformerContextParallelConfig | None:
    """Ulysses (arXiv 2309.14509), which torch's own attention serves: heads are exchanged for tokens around attention.
    None where no sequence is divided."""
    degree = training.parallel.context
    return TransformerContextParallelConfig.ulysses(degree=degree) if degree > 1 else None


def olmo_world(device: torch.device, training: TrainingConfig) -> World:
    """The processes of the group that has been joined, once in a process. Raises ValueError as `data_parallel`, and
    where CPUs cannot exchange what they are to."""
    size, context = dist.get_world_size(), training.parallel.context
    if device.type == "cpu" and context not in (1, size):
        # torch.distributed.nn.functional.all_to_all of torch 2.13 takes numbers in a group for those of all ranks there
        raise ValueError(
            f"training.parallel.context is {context} of {size} processes, but on CPUs torch exchanges heads "
            f"only among all of them; use context {size} or 1, or train on GPUs"
        )
    mesh = build_world_mesh(
        dp=data_parallel(training, device, size),
        tp=tensor_parallel(training),
        cp=context_parallel(training),
        device_type=device.type,
    )
    places = node_places()
    group = get_dp_process_group(mesh)
    readers = World(dist.get_rank(group), dist.get_world_size(group), device, mesh, *places, group=group)
    return World(dist.get_rank(), size, device, mesh, *places, one_of_each=readers)


RECOMPUTE = {
    "full": TransformerActivationCheckpointingMode.full,
    "selective": TransformerActivationCheckpointingMode.selected_ops,
}


class OlmoDecoder(nn.Module):
    """What the loop asks of a Decoder, by OLMo-core's Transformer `transformer`.

    `meshes`: those that cut a sequence into parts of one length, the first of which cuts first.
    """

    end_of_text = None  # documents are not kept apart

    def __init__(self, transformer: Transformer, config: ModelConfig, meshes: list[DeviceMesh]) -> None:
        super().__init__()
        self.transformer, self.config, self.meshes = transformer, config, meshes

    @property
    def fsdp_root(self) -> FSDPModule:
        return cast(FSDPModule, self.transformer)

    @property
    def layers(self) -> list[nn.Module]:
        return list(self.transformer.blocks.values())

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """By the Decoder's names, in its order; a tied matrix once."""
        parameters = {own_name(name): each for name, each in self.transformer.named_parameters(prefix, recurse)}
        yield from sorted(parameters.items(), key=lambda item: _order(item[0]))

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor, z_loss: float = 0.0) -> torch.Tensor:
        """(cross-entropy in nats, z-loss with its weight) summed over this rank's tokens of the targets, float32 (2,).

        Its sum has the gradient of the loss of all tokens, of which other ranks may hold a part.
        """
        output = self._run(tokens, targets, loss_reduction="sum", z_loss_multiplier=z_loss or None)
        loss = local(output.loss)
        own = local(output.ce_loss)
        z = torch.zeros_like(own) if output.z_loss is None else local(output.z_loss)
        return torch.stack([own + (loss - loss.detach()), z])

    def losses(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """As those of a Decoder, on every rank."""
        output = self._run(tokens, targets, loss_reduction="none")
        return self._whole(local(output.ce_loss))[:, : targets.shape[1]]

    def scores(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """As those of a Decoder, on every rank."""
        output = self._run(tokens, targets, loss_reduction="none", return_logits=True)
        assert output.logits is not None, "asked for"
        nats, likeliest = self._whole(local(output.ce_loss)), self._whole(local(output.logits).argmax(-1))
        length = targets.shape[1]
        missed = (likeliest[:, :length] != targets) & (targets != IGNORE)
        return torch.stack([nats[:, :length], missed.float()])

    def _run(self, tokens: torch.Tensor, targets: torch.Tensor, **settings: Any) -> LMOutputWithLoss:
        """`tokens`, `targets`: int64 (batch, length), padded here to a length that the meshes divide."""
        parts = 1
        for mesh in self.meshes:
            parts *= mesh.size()
        padding = (0, -tokens.shape[1] % parts)
        settings = {"return_logits": False, "ignore_index": IGNORE, **settings}
        return self.transformer(F.pad(tokens, padding), labels=F.pad(targets, padding, value=IGNORE), **settings)

    def _whole(self, part: torch.Tensor) -> torch.Tensor:
        """(batch, length) of all ranks' parts of it."""
        for mesh in reversed(self.meshes):
            part = DTensor.from_local(part, mesh, [Shard(1)]).full_tensor()
        return part


def _order(name: str) -> tuple[int, int]:
    """Embedding, blocks by their numbers, last norm, output: as in a Decoder. Within a block as it comes."""
    if name.startswith("layers."):
        return 1, int(name.split(".", 2)[1])
    return {"embed_tokens": (0, 0), "norm": (2, 0), "lm_head": (3, 0)}[name.partition(".")[0]]


def transformer_config(config: ModelConfig, vocab_size: int) -> TransformerConfig:
    """The Transformer that computes what a Decoder computes."""
    return TransformerConfig.llama_like(
        d_model=config.dim,
        vocab_size=vocab_size,
        n_layers=config.layers,
        n_heads=config.heads,
        n_kv_heads=config.kv_head_count,
        qk_norm=config.qk_norm,
        use_head_qk_norm=config.qk_norm,
        layer_norm_eps=config.norm_eps,
        rope_theta=config.rope_theta,
        feed_forward=FeedForwardConfig(hidden_size=config.ffn_dim, bias=False),
        attn_backend=AttentionBackendName.torch,
        tie_word_embeddings=config.tie_embeddings,
    )


def float8(transformer: Transformer, training: TrainingConfig, device: torch.device) -> Float8Config | None:
    """The linear layers of blocks that multiply in fp8, with tensorwise dynamic scales, as those of our own engine:
    OLMo-core leaves out sides that are no multiples of 16, here smaller ones are left out, too. Raises RuntimeError as
    `emulates_fp8`, ValueError where CPUs would have to send what is in fp8."""
    least = training.fp8_min_dim
    if least is None:
        return None
    if device.type == "cpu" and training.parallel.tensor > 1:
        raise ValueError(
            f"training.fp8_min_dim is {least}, but CPUs cannot send fp8, as training.parallel.tensor "
            f"{training.parallel.tensor} requires; set it to null, or train on GPUs"
        )
    linear = {n: m for n, m in transformer.blocks.named_modules(prefix="blocks") if isinstance(m, nn.Linear)}
    return Float8Config(
        ao=AOFloat8LinearConfig(emulate=emulates_fp8(least, device)),
        modules_to_ignore=[name for name, module in linear.items() if min(module.weight.shape) < least],
    )


def olmo_model(config: ModelConfig, training: TrainingConfig, vocab_size: int, world: World) -> Decoder:
    """A Transformer that OLMo-core has laid out over the world, whose weights are still to be set; a collective.

    Raises ValueError where it is to be compiled on a CPU, which OLMo-core leaves out.
    """
    cuda = world.device.type == "cuda"
    if training.compile and not cuda:
        raise ValueError(
            "training.compile is true, but training.engine olmo_core only compiles on GPUs; set it to null"
        )
    tensor, context = tensor_parallel(training), context_parallel(training)
    mode = RECOMPUTE.get(training.recompute)
    transformer = transformer_config(config, vocab_size).build(init_device="meta")
    model = parallelize_model(
        transformer,
        world_mesh=world.mesh,
        device=world.device,
        max_sequence_length=config.seq_len,
        rank_microbatch_size=micro_batch(training, world.readers.size) * config.seq_len,
        compile_model=cuda if training.compile is None else training.compile,
        float8_config=float8(transformer, training, world.device),
        dp_config=data_parallel(training, world.device, world.size),
        tp_config=tensor,
        cp_config=context,
        ac_config=None if mode is None else TransformerActivationCheckpointingConfig(mode=mode),
    )
    sum_gradients(model)
    meshes = [get(world.mesh) for get, degree in ((get_cp_mesh, context), (get_tp_mesh, tensor)) if degree]
    return cast(Decoder, OlmoDecoder(model, config, meshes))
