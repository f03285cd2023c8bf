"""The processes of a run as a grid of dimensions pipeline, replica, shard, context, tensor, in this order: processes of
neighboring numbers, which are on one machine, divide matrices, since these exchange the most.

There are two views of the grid, both with public functions of torch only. `weights` has a parameter's dimensions, and
`tokens` the dimensions of a batch: processes that divide a sequence (context) shard the weights together with those
that read other sequences (shard), and processes that read other sequences are shards and replicas.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from gristmill.training.model_config import Parallel


class Axis(NamedTuple):
    """A dimension of the grid: the number of this process in it, how many there are, and the mesh that they are; None
    where it is the only one."""

    rank: int = 0
    size: int = 1
    mesh: DeviceMesh | None = None

    @property
    def group(self) -> dist.ProcessGroup:
        assert self.mesh is not None, "several processes"
        return self.mesh.get_group()


@dataclass(frozen=True)
class Grid:
    """`weights`: the mesh over which FSDP shards, (shard,) or (replica, shard). `readers`: processes that read other
    sequences than this one."""

    weights: DeviceMesh
    pipeline: Axis
    readers: Axis
    context: Axis
    tensor: Axis


def grid_of(device_type: str, processes: int, parallel: Parallel) -> Grid:
    """The grid of a group that has been joined; a collective. Raises ValueError where `parallel` does not divide the
    processes."""
    shards = parallel.shards(processes)
    context, tensor, pipeline = parallel.context, parallel.tensor, parallel.pipeline
    weights = _mesh(
        device_type, pipeline=pipeline, replica=parallel.replicas, shard=shards * context, tensor=tensor, keep="shard"
    )
    names = ("replica", "shard") if parallel.replicas > 1 else "shard"
    if parallel.model_ranks == 1:
        return Grid(weights, Axis(), _axis(weights, "shard", processes), Axis(), Axis())
    readers = parallel.replicas * shards
    tokens = _mesh(device_type, pipeline=pipeline, reader=readers, context=context, tensor=tensor, keep="reader")
    return Grid(
        weights[names],
        _axis(weights, "pipeline", pipeline),
        _axis(tokens, "reader", readers),
        _axis(tokens, "context", context),
        _axis(weights, "tensor", tensor),
    )


def _mesh(device_type: str, keep: str, **sizes: int) -> DeviceMesh:
    """The mesh of the dimensions that have several processes, and of `keep`."""
    kept = {name: size for name, size in sizes.items() if size > 1 or name == keep}
    return init_device_mesh(device_type, tuple(kept.values()), mesh_dim_names=tuple(kept))


def _axis(mesh: DeviceMesh, name: str, size: int) -> Axis:
    if name not in (mesh.mesh_dim_names or ()):
        return Axis()
    return Axis(mesh[name].get_local_rank(), size, mesh[name])
