"""Every layout of a model over processes: the figures of one process, and steps of groups of up to 512 ranks."""

import multiprocessing
import os
from functools import partial

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.fsdp import FSDPModule
from torch.testing._internal.distributed.fake_pg import FakeStore

from gristmill.training.config import TrainingConfig
from gristmill.training.loss import inputs_and_targets
from gristmill.training.model_config import ModelConfig, Parallel
from gristmill.training.step.state import StepPlan, begun_state, figures, train_step
from gristmill.training.world import begin_micro_batch, local, processes, rows_per_rank, world_of

# ranks are forked from a process without threads, which has imported this
multiprocessing.set_forkserver_preload(["gristmill.training.step.state"])

SHAPES = {
    block: ModelConfig(block=block, dim=32, layers=2, heads=4, kv_heads=2, seq_len=16, logit_softcap=cap)
    for block, cap in (("llama", None), ("nanochat", 15.0))
}
SHAPE = SHAPES["llama"]
VOCABULARY = 101
BATCH = 7  # which no number of ranks above one divides


def steps(world, training: TrainingConfig, block: str = "llama", count: int = 3) -> list[list[float]]:
    """Loss and gradient norm of steps on drawn tokens, and the weights' square norm behind them."""
    state, found = begun_state(SHAPES[block], training, VOCABULARY, 0, world), []
    readers = world.readers
    rows = rows_per_rank(training.batch, readers.size, training.micro_batch)
    for step in range(count):
        drawn = torch.randint(VOCABULARY, (training.batch, 17), generator=torch.Generator().manual_seed(step))
        mine = inputs_and_targets(drawn[readers.rank :: readers.size], rows)
        [one] = figures(train_step(state, *mine, StepPlan(0.01), training, world)[None])
        found.append([one.loss, one.grad_norm])
    squares = torch.stack([local(p.detach()).double().square().sum() for p in state.model.parameters()])
    return [*found, [float(world.sum(squares.sum()) / world.replicas), 0.0]]


def settings(optimizer: str = "adamw", **more) -> TrainingConfig:
    return TrainingConfig(
        optimizer=optimizer, steps=3, warmup_steps=0, batch=BATCH, micro_batch=2, guard={"enabled": False}, **more
    )


def rank_main(rank: int, size: int, path: str, block: str, trainings: list[TrainingConfig], truth: list) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    for number, (training, expected) in enumerate(zip(trainings, truth, strict=True)):
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "TRAINING_RENDEZVOUS": f"file://{path}/{number}"}
        with processes(60, partial(world_of, parallel=training.parallel)) as world:
            assert world.replicas == training.parallel.replicas
            for ours, alone in zip(steps(world, training, block), expected, strict=True):
                assert ours == pytest.approx(alone, rel=1e-6), (training.parallel, training.optimizer)


LAYOUTS = {
    2: [settings(accumulate="whole"), settings(accumulate="sharded", optimizer="muon")],
    3: [settings(accumulate="whole", optimizer="muon"), settings(accumulate="sharded", reshard_after_forward=False)],
    4: [
        settings(parallel={"replicas": 2}, accumulate="sharded"),
        settings(parallel={"replicas": 2}, accumulate="whole", optimizer="muon"),
        settings(parallel={"replicas": 4}),
    ],
}


@pytest.mark.parametrize("block", SHAPES)
@pytest.mark.parametrize(
    "size", [pytest.param(size, marks=() if size == 2 else pytest.mark.extended) for size in LAYOUTS]
)
def test_figures_of_any_layout_are_those_of_one_process(size, block, tmp_path):
    truth = []
    for training in LAYOUTS[size]:
        with processes(60) as world:
            truth.append(steps(world, training.model_copy(update={"parallel": Parallel()}), block))
    given = (size, str(tmp_path), block, LAYOUTS[size], truth)
    mp.start_processes(rank_main, given, nprocs=size, start_method="forkserver")


@pytest.fixture
def group():
    """Makes a group of which this process is the first rank; what the others would send is not there."""

    def joined(size: int, replicas: int = 1):
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=size)
        return world_of(torch.device("cpu"), Parallel(replicas=replicas))

    yield joined
    dist.destroy_process_group()


@pytest.mark.parametrize("size", [8, 64, 512])
@pytest.mark.parametrize("replicas", [1, 8])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_large_groups_build_and_step(size, replicas, optimizer, group):
    world, training = (
        group(size, replicas),
        settings(parallel={"replicas": replicas}, optimizer=optimizer, precision="fp32"),
    )
    assert world.replicas == replicas
    steps(world, training, count=1)


def test_replicas_divide_the_processes(group):
    with pytest.raises(
        ValueError, match="training.parallel.replicas is 3: together 3, which do not divide 8 processes"
    ):
        group(8, 3)


@pytest.mark.parametrize("accumulate, expected", [("sharded", 4 / 8), ("whole", 4)])
def test_bytes_a_parameter_between_micro_batches(accumulate, expected, group):
    world, training = group(8), settings(accumulate=accumulate, precision="fp32")
    state = begun_state(SHAPE, training, VOCABULARY, 0, world)
    count = sum(parameter.numel() for parameter in state.model.parameters())
    tokens = torch.zeros(2, 16, dtype=torch.int64)
    grads = []
    begin_micro_batch(state.model, training, world, last=False)
    state.model(tokens, tokens).sum().backward()
    for module in state.model.modules():
        if isinstance(module, FSDPModule):
            for param in module._get_fsdp_state()._fsdp_param_group.fsdp_params:
                grads.append(param._unsharded_param.grad)
                grads.append(param.unsharded_accumulated_grad)
                grads.append(None if param.sharded_param.grad is None else local(param.sharded_param.grad))
    size = sum(g.numel() * g.element_size() for g in grads if g is not None)
    assert size / count == pytest.approx(expected, rel=0.1)
