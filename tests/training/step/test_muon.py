"""Distributed Muon against torch.optim.Muon on whole matrices."""

import copy
import multiprocessing
import os

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.utils._python_dispatch import TorchDispatchMode

from gristmill.training.step.optimizer import Muon, orthogonal

# ranks are forked from a process without threads, which has imported this
multiprocessing.set_forkserver_preload(["gristmill.training.step.state"])

SHAPES = [(3, 8), (12, 8), (12, 8), (8, 20), (12, 8), (3, 8), (8, 8)]  # 3 rows are fewer than 4 ranks
STEPS, SKIPPED = 4, 2


def matrices(step: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


def expected() -> list[torch.Tensor]:
    """By torch's own optimizer on whole matrices, in float32; a skipped update is left out, and momentum begins
    anew."""
    whole = [torch.nn.Parameter(matrix) for matrix in matrices(0)]
    groups = [{"params": whole[:4], "weight_decay": 0.1}, {"params": whole[4:], "weight_decay": 0.0}]
    muon = torch.optim.Muon(groups, adjust_lr_fn="match_rms_adamw")
    for step in range(1, STEPS + 1):
        if step == SKIPPED:
            muon.state.clear()
            continue
        for parameter, gradient in zip(whole, matrices(step), strict=True):
            parameter.grad = gradient / 2
        for group, share in zip(muon.param_groups, (1.0, 0.5), strict=True):
            group["lr"] = 0.01 * share
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.Tensor, "bfloat16", lambda tensor: tensor)
            muon.step()
    return [parameter.detach() for parameter in whole]


class Collectives(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace in ("c10d", "_c10d_functional"):
            self.names.append(str(function))
        return function(*args, **(kwargs or {}))


def trained(shard) -> tuple[list[torch.Tensor], list[str]]:
    parameters = [torch.nn.Parameter(shard(matrix)) for matrix in matrices(0)]
    groups = [
        {"params": parameters[:4], "lr_multiplier": 1.0, "decay": 0.1},
        {"params": parameters[4:], "lr_multiplier": 0.5, "decay": 0.0},
    ]
    muon = Muon(groups, momentum=0.95)
    for step in range(1, STEPS + 1):
        for parameter, gradient in zip(parameters, matrices(step), strict=True):
            parameter.grad = shard(gradient * (float("nan") if step == SKIPPED else 1))
        with Collectives() as collectives:
            muon.step(0.01, torch.tensor(2.0), torch.tensor(step == SKIPPED))
        assert all(parameter.grad is None for parameter in parameters)
    assert all(muon.state[p]["momentum_buffer"].shape == p.shape for p in parameters)
    return [parameter.detach() for parameter in parameters], collectives.names


def rank_main(rank: int, size: int, replicas: int, path: str) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{path}/store", rank=rank, world_size=size)
    if replicas == 1:
        mesh, placements = init_device_mesh("cpu", (size,)), [Shard(0)]
    else:
        mesh, placements = init_device_mesh("cpu", (replicas, size // replicas)), [Replicate(), Shard(0)]
    found, names = trained(lambda whole: distribute_tensor(whole, mesh, placements, src_data_rank=None))
    alone, _ = trained(copy.copy)
    for ours, truth in zip(found, alone, strict=True):
        assert torch.equal(ours.full_tensor(), truth), (ours.full_tensor() - truth).abs().max()
    shapes = len(set(SHAPES[:4])) + len(set(SHAPES[4:]))
    assert len(names) == 2 * shapes, names
    dist.destroy_process_group()


def test_one_process_gives_what_torch_does():
    found, names = trained(copy.copy)
    assert not names
    for ours, truth in zip(found, expected(), strict=True):
        # products of stacked matrices may be rounded otherwise than those of one
        torch.testing.assert_close(ours, truth, rtol=1e-5, atol=1e-6)


@pytest.mark.extended
@pytest.mark.parametrize("size, replicas", [(3, 1), (4, 1), (4, 2)])
def test_ranks_give_the_bits_of_one_with_two_collectives_a_shape(size, replicas, tmp_path):
    mp.start_processes(rank_main, (size, replicas, str(tmp_path)), nprocs=size, start_method="forkserver")


def test_singular_values_come_near_one():
    values = torch.linalg.svdvals(orthogonal(torch.randn(3, 40, 24)))
    assert values.min() > 0.4 and values.max() < 1.4
    assert not orthogonal(torch.zeros(2, 4, 6)).any()


def test_a_matrix_becomes_the_same_bits_in_any_stack():
    matrices = torch.randn(5, 48, 16)
    whole = orthogonal(matrices)
    for first in range(5):
        for last in range(first + 1, 6):
            assert torch.equal(orthogonal(matrices[first:last]), whole[first:last])
