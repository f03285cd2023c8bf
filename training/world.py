"""Processes, device, sharding and number formats, and what all ranks do together. The only file that knows how many
processes there are and why; what the ways of dividing a model need is in `gristmill.training.layout`."""

from __future__ import annotations

import importlib.util
import logging
import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, Replicate
from torch.nn.attention.flex_attention import create_block_mask

from gristmill.training import loss
from gristmill.training.config import RENDEZVOUS, TrainingConfig
from gristmill.training.decoder import Block, Decoder, initial
from gristmill.training.fp8 import multiply_in_fp8
from gristmill.training.layout.context import Division
from gristmill.training.layout.limits import undivided_vocabulary
from gristmill.training.layout.mesh import Axis, grid_of
from gristmill.training.layout.tensor import VocabularyLosses, divide_matrices
from gristmill.training.loss import LOGITS, chunked, in_pieces
from gristmill.training.model_config import ModelConfig, Parallel
from gristmill.training.parametrization import multipliers

log = logging.getLogger(__name__)
ADecoder = TypeVar("ADecoder", bound=Decoder)


@dataclass(frozen=True)
class World:
    """`mesh`: what FSDP shards over, (shards,), or (replicas, shards) where a model is kept more than once.
    `node`: the number of this rank's machine among the `nodes`; `node_rank`: its own among the ranks there. `group`: of
    the ranks that are counted here; None: all of the run. `one_of_each`: see `readers`. `pipeline`, `division`: how
    ranks divide the blocks, and the tokens and matrices."""

    rank: int
    size: int
    device: torch.device
    mesh: DeviceMesh
    node: int = 0
    nodes: int = 1
    node_rank: int = 0
    group: dist.ProcessGroup | None = None
    one_of_each: World | None = None
    pipeline: Axis = Axis()
    division: Division = Division()

    @property
    def readers(self) -> World:
        """This rank among those that read other samples than it does. Where a layout divides a model or a sequence
        among ranks, these read the same ones and have one number here; else it is the world itself."""
        return self.one_of_each or self

    @property
    def speaks(self) -> bool:
        """Whether this rank is the first of those that read the same samples."""
        return not (self.pipeline.rank or self.division.context.rank or self.division.tensor.rank)

    @property
    def leads(self) -> bool:
        return self.rank == 0

    @property
    def leads_node(self) -> bool:
        return self.node_rank == 0

    @property
    def replicas(self) -> int:
        """Ranks that hold the same shard of a parameter."""
        return self.mesh.size() // self.mesh.size(self.mesh.ndim - 1)

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Sum of a tensor over all ranks, in place."""
        dist.all_reduce(values, group=self.group)
        return values

    def largest(self, values: torch.Tensor) -> torch.Tensor:
        """The largest of a tensor's numbers on all ranks, in place."""
        dist.all_reduce(values, dist.ReduceOp.MAX, group=self.group)
        return values


def local(tensor: torch.Tensor | None) -> torch.Tensor:
    """This rank's part of a sharded tensor, which shares its memory."""
    assert tensor is not None, "every parameter takes part in the loss"
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def micro_batch(training: TrainingConfig, world: int) -> int:
    """Rows of a micro-batch of the run's first batches: one larger than a rank's part of the batch is cut to size."""
    return min(training.micro_batch, -(-training.batch // world))


def rows_per_rank(batch: int, world: int, micro_batch: int) -> int:
    """Rows that every rank computes on: its part of the batch, rounded up to whole micro-batches. A micro-batch that is
    larger than a rank's part is cut to that."""
    rows = -(-batch // world)
    micro_batch = min(micro_batch, rows)
    return -(-rows // micro_batch) * micro_batch


def local_part(whole: torch.Tensor, sharded: torch.Tensor) -> torch.Tensor:
    """The part of a tensor, which every rank has, that is this rank's of `sharded`.

    The last dimension of a mesh has cut first: tensor parallelism, whose parts FSDP cuts again.
    """
    assert isinstance(sharded, DTensor), "fully_shard has cut every parameter"
    mesh = sharded.device_mesh
    place = mesh.get_coordinate()
    assert place is not None, "a rank of the mesh"
    for dimension in reversed(range(mesh.ndim)):
        placement = sharded.placements[dimension]
        if placement.is_replicate():
            continue
        axis: int = placement.dim  # type: ignore[attr-defined]
        pieces = whole.chunk(mesh.size(dimension), axis)
        mine = place[dimension]
        whole = pieces[mine] if mine < len(pieces) else whole.narrow(axis, 0, 0)
    return whole


def whole_tensor(tensor: DTensor) -> torch.Tensor:
    """On all ranks that have a part of it; a collective. A dimension of the mesh at a time, the last cut first: torch
    warns of more."""
    placements = list(tensor.placements)
    for dimension in range(len(placements)):
        placements[dimension] = Replicate()
        tensor = tensor.redistribute(placements=placements)
    return tensor.to_local()


def copies(parameter: torch.Tensor, world: World, stages: int = 1) -> int:
    """Ranks of the world that hold the same part of a parameter. `stages`: the stages of a pipeline that have it."""
    assert isinstance(parameter, DTensor), "fully_shard has cut every parameter"
    sizes = (parameter.device_mesh.size(i) for i, kind in enumerate(parameter.placements) if not kind.is_replicate())
    return stages * world.size // (world.pipeline.size * math.prod(sizes))


@contextmanager
def processes(timeout_seconds: float, joined: Callable[[torch.device], World] | None = None) -> Iterator[World]:
    """Join the processes that torchrun started or, without it, be the only one; leave them at the end. `joined`: what
    they are to each other, when all are there; None: `world_of`, with one replica.

    A single process takes the same path through a group of one, with a store in its own memory. A rank that
    hangs makes the others fail after timeout_seconds.
    """
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get(NODE_RANK, "0"))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
        _use_flash_attention_3(device)
    backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
    timeout = timedelta(seconds=timeout_seconds)
    if "RANK" in os.environ:
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        meeting = os.environ.get(RENDEZVOUS, "env://")
        dist.init_process_group(backend, init_method=meeting, rank=rank, world_size=size, timeout=timeout)
    else:
        dist.init_process_group(backend, timeout=timeout, store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield (joined or world_of)(device)
    finally:
        dist.destroy_process_group()


ONE_COPY = Parallel()  # one copy, sharded over all processes


def world_of(device: torch.device, parallel: Parallel = ONE_COPY) -> World:
    """The processes of the group that has been joined. Ranks that follow each other share a replica, so that those of
    one machine do.

    Raises ValueError where the processes cannot be divided so.
    """
    rank, size, places = dist.get_rank(), dist.get_world_size(), node_places()
    grid = grid_of(device.type, size, parallel)
    readers = None
    if parallel.model_ranks > 1:
        group = grid.readers.group if grid.readers.mesh else dist.new_subgroups(1)[0]
        readers = World(grid.readers.rank, grid.readers.size, device, grid.weights, *places, group=group)
    division = Division(grid.context, grid.tensor)
    return World(
        rank, size, device, grid.weights, *places, one_of_each=readers, pipeline=grid.pipeline, division=division
    )


def node_places() -> tuple[int, int, int]:
    """(`node`, `nodes`, `node_rank`) of a World, as torchrun says them."""
    node, nodes, node_rank = (
        int(os.environ.get(name, default)) for name, default in ((NODE, 0), (NODES, 1), (NODE_RANK, dist.get_rank()))
    )
    return node, nodes, node_rank


def _use_flash_attention_3(device: torch.device) -> None:
    """FlashAttention 3 where its package is installed and the GPU is a Hopper; else SDPA chooses among its own."""
    if torch.cuda.get_device_capability(device)[0] != 9 or importlib.util.find_spec("flash_attn_interface") is None:
        return
    from torch.nn.attention import activate_flash_attention_impl  # releases of torch before 2.11 lack it

    activate_flash_attention_impl("FA3")
    torch.backends.cuda.enable_cudnn_sdp(False)  # which SDPA would take first
    log.info("attention: FlashAttention 3")


_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": None}


def precision(setting: str, device: torch.device) -> str:
    """The precision of products on a device: "bf16", "fp16" or "fp32". `setting`: TrainingConfig.precision.

    (On CPUs bf16 is emulated: 3.4 times slower than float32 where it was tried, so `auto` does not take it there.)
    """
    if setting != "auto":
        return setting
    has_it = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bf16" if has_it else "fp32"


def compute_dtype(setting: str, device: torch.device) -> torch.dtype | None:
    """What products are computed in; None: float32. `setting`: TrainingConfig.precision."""
    return _DTYPES[precision(setting, device)]


def sharded_model(
    config: ModelConfig, training: TrainingConfig, vocab_size: int, end_of_text: int, world: World
) -> Decoder:
    """A Decoder with FSDP2 applied and its first weights set, the same ones for every world size."""
    model = empty_sharded_model(config, training, vocab_size, end_of_text, world)
    set_first_weights(model, training, world)
    return model


def empty_sharded_model(
    config: ModelConfig, training: TrainingConfig, vocab_size: int, end_of_text: int, world: World
) -> Decoder:
    """A Decoder with FSDP2 applied, whose weights are still to be set or loaded.

    Weights and sums of gradients are float32 in every precision. Inputs of blocks are not cast, so the rotary angles
    stay float32. Blocks are compiled before they are sharded, the loss with the output projection.

    Each rank holds 1/world of the parameters and, while a block runs, that block's parameters whole; while
    the weights are set, one whole parameter at a time in CPU memory.
    """
    end = end_of_text if training.document_mask else None
    causal, pipeline, division = training.objective != "masked", world.pipeline, world.division
    for place, sentence in undivided_vocabulary(vocab_size, training.parallel):
        raise ValueError(f"{'.'.join(place)} {sentence}")
    if pipeline.size == 1:
        with torch.device("meta"):
            model = Decoder(config, vocab_size, end, causal, division)
        return sharded(model, training, vocab_size, world)
    from gristmill.training.layout import pipeline as stages  # torch's schedules take a while to import

    count = pipeline.size * training.parallel.interleave
    own = {}
    for number in range(pipeline.rank, count, pipeline.size):
        blocks = stages.blocks_of(number, count, config.layers)
        with torch.device("meta"):
            stage = stages.Stage(config, vocab_size, end, causal, division, blocks)
        stage.z_loss = training.z_loss
        own[number] = sharded(stage, training, vocab_size, world)
    hidden = compute_dtype(training.precision, world.device) or torch.float32
    return cast(Decoder, stages.Pipeline(own, count, pipeline, hidden))


def sharded(model: ADecoder, training: TrainingConfig, vocab_size: int, world: World) -> ADecoder:
    """A Decoder on the meta device, or a stage of one, divided, compiled and sharded; its weights are still to be
    set."""
    config, mesh = model.config, world.division.tensor.mesh
    if mesh is not None:
        divide_matrices(model, model.layers, mesh)
    if training.fp8_min_dim:
        multiply_in_fp8(model.layers, training.fp8_min_dim, world.device)
    compiles = world.device.type == "cuda" if training.compile is None else training.compile
    each = VocabularyLosses(mesh) if mesh is not None else loss
    functions = (each.loss_sums, each.token_losses, each.token_scores)
    sums, losses, scores = (torch.compile(f) if compiles else f for f in functions)
    model.sums = chunked(sums, training.loss_chunks)
    if compiles:
        model.make_blocks = torch.compile(create_block_mask)
    # An evaluation must not need more memory than a step. The pieces are the same for any number of ranks, since they
    # affect rounding.
    tokens = -(-micro_batch(training, 1) * config.seq_len // training.loss_chunks)
    model.each_loss, model.each_score = (in_pieces(each, min(LOGITS, tokens * vocab_size)) for each in (losses, scores))
    policy = MixedPrecisionPolicy(
        param_dtype=compute_dtype(training.precision, world.device),
        reduce_dtype=torch.bfloat16 if training.reduce_dtype == "bf16" else torch.float32,
        cast_forward_inputs=False,
    )
    # torch's schedules of a pipeline keep weights whole from the first backward pass to the end of a step
    reshards = training.reshard_after_forward and world.pipeline.size == 1
    for layer in model.layers:
        assert isinstance(layer, Block), "layers are blocks"
        layer.recompute = training.recompute
        if compiles:
            layer.compile()
        fully_shard(layer, mesh=world.mesh, mp_policy=policy, reshard_after_forward=reshards)
    # Embedding, last norm and output stay together in the root's group, which a tied matrix needs.
    fully_shard(model, mesh=world.mesh, mp_policy=policy)
    for method in ("losses", "scores"):
        register_fsdp_forward_method(model, method)
    sum_gradients(model)
    model.to_empty(device=world.device)
    return model


def sum_gradients(model: nn.Module) -> None:
    """Let FSDP add gradients up over ranks: the loss is divided by the global token count, so they are not means."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)  # gloo has no PREMUL_SUM


def reshard(model: nn.Module) -> None:
    """Drop all gathered weights: after a forward pass without a backward some are still there, in the precision of the
    products, and would be used instead of loaded weights."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def begin_micro_batch(model: nn.Module, training: TrainingConfig, world: World, last: bool) -> None:
    """Before a forward pass of a step, of which it may be the `last`: see training.accumulate. Replicas add theirs at
    the end only."""
    kept = training.accumulate or ("sharded" if world.device.type == "cuda" else "whole")
    assert isinstance(model, FSDPModule), "the model is that of sharded_model"
    model.set_requires_gradient_sync(last or kept == "sharded")
    model.set_requires_all_reduce(last)


@torch.no_grad()
def set_first_weights(model: Decoder, training: TrainingConfig, world: World) -> None:
    """The weights that training begins with, in place."""
    for name, parameter in model.named_parameters():
        whole = initial(name, parameter.shape, model.config, training.seed)
        whole = whole.mul_(multipliers(name, model.config, training).initial)
        # every rank has computed the same tensor, nothing needs to be sent
        local(parameter).copy_(local_part(whole, parameter))


def whole_weights(model: Decoder, world: World) -> dict[str, torch.Tensor]:
    """All parameters by name, whole, float32, on the CPU of rank 0; a collective, in which other ranks hold one whole
    parameter at a time, and get none."""
    reshard(model)
    weights, own, pipeline = {}, dict(model.named_parameters()), world.pipeline
    of_stages: list[Any] = [{name: parameter.shape for name, parameter in own.items()}]
    if pipeline.size > 1:
        of_stages *= pipeline.size
        dist.all_gather_object(of_stages, of_stages[0], group=pipeline.group)
    for stage, shapes in enumerate(of_stages):
        for name, shape in shapes.items():
            if stage == pipeline.rank:
                parameter = own[name]
                assert isinstance(parameter, DTensor), "fully_shard has cut every parameter"
                whole = whole_tensor(cast(DTensor, parameter.detach()))
                if stage and dist.get_global_rank(pipeline.group, 0) == 0:
                    dist.send(whole, group=pipeline.group, group_dst=0)
            elif world.leads:
                whole = torch.empty(shape, device=world.device)
                dist.recv(whole, group=pipeline.group, group_src=stage)
            if world.leads:
                weights[name] = whole.cpu()
    return weights


# What all ranks do together, besides sums: exchange values, divide files among them, do long work.


T = TypeVar("T")

# Environment variables of torchrun. A node is one of the machines of a run.
NODE, NODES, NODE_RANK, NODE_SIZE = "GROUP_RANK", "GROUP_WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"
MEETING_SECONDS = 5.0  # between two meetings of ranks that work for long


def all_gather(value: T) -> list[T]:
    """The values of all ranks, in their order, on every rank; a collective."""
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def rank_slice(values: Sequence[T], own_disks: bool = False) -> Sequence[T]:
    """The part of some values, equal on all ranks, that this rank works on. `own_disks`: the values are files of which
    each node has its own copy, so the ranks of each node divide them."""
    if own_disks and NODE_SIZE in os.environ:
        return values[int(os.environ[NODE_RANK]) :: int(os.environ[NODE_SIZE])]
    return values[dist.get_rank() :: dist.get_world_size()]


def all_do(work: Callable[[], None], group: dist.ProcessGroup | None = None) -> None:
    """Let each rank do its work, however long that takes, and return when all have; a collective.

    No rank waits in silence for another: they meet every few seconds, so the group's time limit is for a rank that is
    gone, and not for a slow one. Raises what the work of this rank raised; else RuntimeError with what the work of
    another rank did.
    """
    with ThreadPoolExecutor(1, "work") as thread:
        mine = thread.submit(work)
        while True:
            wait([mine], MEETING_SECONDS)
            error = mine.exception() if mine.done() else None
            state = (mine.done(), f"{type(error).__name__}: {error}" if error else "")
            states: list[Any] = [None] * dist.get_world_size()
            dist.all_gather_object(states, state, group=group)
            if error:
                raise error
            if failed := [(rank, message) for rank, (_, message) in enumerate(states) if message]:
                raise RuntimeError("rank {}: {}".format(*failed[0]))
            if all(done for done, _ in states):
                return
