"""How OLMo-core lays out the processes of a run: its meshes, and which ranks read the same samples."""

from __future__ import annotations

import torch
import torch.distributed as dist
from olmo_core.config import DType
from olmo_core.distributed.parallel import DataParallelType, build_world_mesh, get_dp_process_group
from olmo_core.train.train_module import (
    TransformerContextParallelConfig,
    TransformerDataParallelConfig,
    TransformerTensorParallelConfig,
)

from gristmill.training.config import TrainingConfig
from gristmill.training.parallel.world import World, compute_dtype, node_places


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
            f"training.parallel.context is {context} of {size} processes, and on CPUs torch exchanges heads among all "
            f"of them alone; give context {size} or 1, or train on GPUs"
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
