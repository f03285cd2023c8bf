"""Times of the parts of a step, by a clock that what runs moves on itself."""

from types import SimpleNamespace

import pytest
import torch

from gristmill.storage.training_manifest import load_training_manifest
from gristmill.training import decoder
from gristmill.training.step import clock as clock_module
from gristmill.training.step.clock import BLOCKS, slowest_over_mean
from gristmill.training.step.optimizer import Optimizers
from gristmill.training.step.state import StepPlan, begun_state, train_step
from gristmill.training.world import processes

BLOCK, LOSS, LOSS_BACKWARD, UPDATE = 3.0, 5.0, 70.0, 1100.0


@pytest.fixture
def seconds(monkeypatch):
    """What the clock shows, on a CPU and by events of a GPU."""
    now = [0.0]

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            self.at = now[0]

        def elapsed_time(self, later: "Event") -> float:
            return (later.at - self.at) * 1000

    monkeypatch.setattr(clock_module.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(torch.cuda, "Event", Event)
    return now


def moves_on(monkeypatch, owner, name: str, seconds: list[float], by: float) -> None:
    function = getattr(owner, name)

    def moved(*given, **named):
        seconds[0] += by
        return function(*given, **named)

    monkeypatch.setattr(owner, name, moved)


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("cuda", [False, True])
def test_parts_of_steps(cuda, recompute, seconds, make_run, corpus, tmp_path, monkeypatch):
    run, manifest = make_run(tmp_path, training={"recompute": recompute}), load_training_manifest(corpus)
    moves_on(monkeypatch, decoder.Block, "block_forward", seconds, BLOCK)
    moves_on(monkeypatch, Optimizers, "step", seconds, UPDATE)
    rows = torch.randint(1, 400, (4, 32), generator=torch.Generator().manual_seed(0))  # two micro-batches
    with processes(60) as world:
        state = begun_state(run.model, run.training, manifest.vocab_size, manifest.end_of_text, world)
        sums = state.model.sums

        def loss(*given):
            seconds[0] += LOSS
            found = sums(*given)
            found.register_hook(lambda gradient: seconds.__setitem__(0, seconds[0] + LOSS_BACKWARD))
            return found

        state.model.sums = loss
        state.clock.cuda = cuda
        for _ in range(3):
            train_step(state, rows, rows, StepPlan(0.01), run.training, world)
        with torch.no_grad():
            state.model.losses(rows, rows)  # an evaluation is no part of a step
        found = state.clock.read()
        assert state.clock.read() == {"forward": 0, "backward": 0, "optimizer": 0, BLOCKS: 0}
    again = 2 * BLOCK if recompute == "full" else 0
    assert found == {
        "forward": 3 * 2 * (2 * BLOCK + LOSS),
        "backward": 3 * 2 * (LOSS_BACKWARD + again),
        "optimizer": 3 * UPDATE,
        BLOCKS: 3 * 2 * 2 * BLOCK,
    }


def test_the_slowest_rank():
    others = torch.tensor([1.0, 0.0, 4.0, 2.0], dtype=torch.float64)
    world = SimpleNamespace(size=4, rank=1, device=torch.device("cpu"), sum=lambda mine: mine + others)
    assert slowest_over_mean(1.0, world) == 2.0
