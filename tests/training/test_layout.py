"""Layouts of processes: their numbers, and which part of a tensor is whose."""

from itertools import product

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from gristmill.training.model_config import Parallel
from gristmill.training.world import World, copies, local_part

degrees = st.integers(1, 4)


@given(replicas=degrees, shard=degrees | st.none(), tensor=degrees, context=degrees, processes=st.integers(1, 64))
def test_the_product_of_all_degrees_is_the_number_of_processes(replicas, shard, tensor, context, processes):
    parallel = Parallel(replicas=replicas, shard=shard, tensor=tensor, context=context)
    others = replicas * tensor * context
    fitting = [n for n in range(1, 65) if n * others == processes and shard in (None, n)]
    if fitting:
        assert parallel.shards(processes) == fitting[0]
    else:
        with pytest.raises(ValueError, match=f"{processes} processes; change them, or GRISTMILL_TRAINING_PROCESSES"):
            parallel.shards(processes)


def test_the_error_names_what_was_given():
    with pytest.raises(
        ValueError,
        match="parallel.replicas is 2, training.parallel.tensor is 3: together 6, which do not divide 8 processes",
    ):
        Parallel(replicas=2, tensor=3).shards(8)


@pytest.fixture
def rank_of():
    """Makes this process a rank of a group whose other ranks are not there."""

    def joined(rank: int, size: int) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)

    yield joined
    dist.destroy_process_group()


PLACEMENTS = [(Shard(0), Shard(1)), (Replicate(), Shard(0)), (Shard(1), Replicate()), (Replicate(), Replicate())]


@pytest.mark.parametrize("placements", PLACEMENTS)
def test_a_ranks_part_and_its_copies_are_those_of_torch(placements, rank_of):
    whole = torch.arange(5 * 7.0).view(5, 7)  # which nothing divides
    parts = []
    for rank in range(6):
        rank_of(rank, 6)
        mesh = init_device_mesh("cpu", (2, 3))
        sharded = distribute_tensor(whole, mesh, placements, src_data_rank=None)
        assert local_part(whole, sharded).tolist() == sharded.to_local().tolist()
        world = World(rank, 6, torch.device("cpu"), mesh)
        parts.append((sharded.to_local().tolist(), copies(sharded, world)))
    for part, held in parts:
        assert held == sum(other == part for other, _ in parts)


def test_fsdp_cuts_what_tensor_parallelism_has_cut(rank_of):
    """Both along the same dimension, as FSDP2 cuts each rank's part of a column-wise matrix."""
    whole = torch.arange(10 * 2.0).view(10, 2)
    found = []
    for shard, tensor in product(range(2), range(2)):
        rank_of(2 * shard + tensor, 4)
        mesh = init_device_mesh("cpu", (2, 2))
        like = DTensor.from_local(torch.zeros(0), mesh, [Shard(0), Shard(0)], run_check=False)
        found.append(local_part(whole, like))
        assert found[-1].tolist() == whole.chunk(2)[tensor].chunk(2)[shard].tolist()
    assert sorted(row for part in found for row in part[:, 0].tolist()) == whole[:, 0].tolist()
