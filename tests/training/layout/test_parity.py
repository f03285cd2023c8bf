"""Every layout learns what one process learns: losses, norms, clip factors, verdicts, samples, what the monitor and the
evaluation find, exported weights; and a checkpoint of each goes on in each other.

    python -m pytest -m slow -s tests/training/layout/test_parity.py    # the whole matrix, with a table
"""

import hashlib
import multiprocessing
import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from gristmill.training.checkpoint.commit import Progress, Saver, load_checkpoint
from gristmill.training.config import TrainingConfig
from gristmill.training.hub.weights import export_model
from gristmill.training.loss import inputs_and_targets
from gristmill.training.model_config import ModelConfig, Parallel
from gristmill.training.step.monitor import Monitor
from gristmill.training.step.state import APPLIED, OUTLIER, StepPlan, begun_state, empty_state, figures, train_step
from gristmill.training.world import World, processes, rows_per_rank, whole_weights, world_of

multiprocessing.get_context("forkserver").set_forkserver_preload(["tests.training.layout.test_parity"])

VOCABULARY = 102  # of which two processes have 51 rows each, an odd number
LENGTH = 16
BATCH = 8
CLIP = 1.25  # of norms of which some are larger
NAMES = {"run": "parity"}
SHARING = 6  # jobs of the same processes
POISONED = 9  # the step whose update is an outlier
BLOCKS = {
    "llama": ModelConfig(dim=32, layers=4, heads=4, kv_heads=2, seq_len=LENGTH, tie_embeddings=False),
    "nanochat": ModelConfig(
        block="nanochat", dim=32, layers=5, heads=4, seq_len=LENGTH, tie_embeddings=True, logit_softcap=15.0
    ),
}
OPTIMIZERS = {
    "adamw": {"optimizer": "adamw", "learning_rate": 3e-3, "document_mask": True},
    "muon": {"optimizer": "muon", "learning_rate": 6e-3, "loss_chunks": 2, "recompute": "selective"},
}
LAYOUTS = {
    "shard 2": (2, {}),
    "tensor 2": (2, {"tensor": 2}),
    "pipeline 2": (2, {"pipeline": 2}),
    "pipeline 2, interleave 2": (2, {"pipeline": 2, "interleave": 2}),
    "context 2": (2, {"context": 2}),
    "shard 2, tensor 2": (4, {"tensor": 2}),
    "pipeline 2, tensor 2": (4, {"pipeline": 2, "tensor": 2}),
    "pipeline 2, shard 2": (4, {"pipeline": 2}),
    "replica 2, shard 2": (4, {"replicas": 2}),
    "shard 2, context 2": (4, {"context": 2}),
    "replica 2, context 2": (4, {"replicas": 2, "context": 2}),
    "pipeline 4": (4, {"pipeline": 4}),
}
ALONE = "one process"


def training_of(optimizer: str, steps: int, parallel: dict) -> TrainingConfig:
    return TrainingConfig(
        **OPTIMIZERS[optimizer],
        steps=steps,
        warmup_steps=0,
        batch=BATCH,
        micro_batch=2,
        clip_norm=CLIP,
        z_loss=1e-4,
        guard={"window": 8, "deviations": 1.5},
        parallel=parallel,
    )


def rows_of(step: int) -> torch.Tensor:
    """A batch: ids below 30 that count up, from places that the step decides; of one step, one id throughout."""
    drawn = torch.randint(20, (BATCH, 1), generator=torch.Generator().manual_seed(step))
    rows = drawn + torch.arange(LENGTH + 1)
    return rows % 30 if step != POISONED else torch.full_like(rows, 99)


def learned(world: World, block: str, training: TrainingConfig, steps: range, start: Path | None, save: Path) -> dict:
    """What a rank finds out of some steps. `start`: a checkpoint; `save`: the folder of those that are written."""
    model, readers = BLOCKS[block], world.readers
    if start:
        state = empty_state(model, training, VOCABULARY, 0, world)
        load_checkpoint(start, state.tensors, NAMES)
    else:
        state = begun_state(model, training, VOCABULARY, 0, world)
    monitor, found = Monitor(state.model, world), []
    rows = rows_per_rank(BATCH, readers.size, training.micro_batch)
    read, probe = [], None
    with Saver(save, NAMES, world, 60) as saver:
        for step in steps:
            mine = rows_of(step)[readers.rank :: readers.size]
            read.append([hashlib.sha256(row.numpy().tobytes()).hexdigest() for row in mine])
            inputs, targets = inputs_and_targets(mine, rows)
            probes = step == steps[-1]
            plan = StepPlan(training.rates.matrices, updates=monitor.updates if probes else None)
            [one] = figures(train_step(state, inputs, targets, plan, training, world)[None])
            found.append((one.loss, one.z_loss, one.grad_norm, min(1.0, CLIP / one.grad_norm), one.verdict))
            probe = monitor.probe(inputs[:1]).tolist() if probes else probe
            if start is None and step == steps[len(steps) // 2]:
                saver.save(state.tensors, Progress(step=step + 1))
    with torch.no_grad():  # of a length that nothing divides
        losses, scores = (
            each(inputs[:, :13], targets[:, :13]).double() for each in (state.model.losses, state.model.scores)
        )
    heldout = [readers.sum(losses.sum()).item(), *readers.sum(scores.sum((1, 2))).tolist()]
    weights = whole_weights(state.model, world)
    return {
        "steps": found,
        "read": read,
        "probe": probe,
        "heldout": heldout,
        "weights": weights,
        "reader": readers.rank,
    }


def rank_main(rank: int, size: int, folder: str, jobs: list[tuple]) -> None:
    torch.set_num_threads(1)
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "RANK": str(rank), "WORLD_SIZE": str(size)}
    os.environ["TRAINING_RENDEZVOUS"] = f"file://{folder}/meeting"
    with processes(60) as joined:
        for name, block, training, steps, start, save in jobs:
            world = world_of(joined.device, training.parallel)
            torch.save(learned(world, block, training, steps, start, save), f"{folder}/{name}-{rank}")
            dist.barrier()


def run_ranks(folder: Path, jobs: dict[str, tuple]) -> dict[str, list[dict]]:
    """What the ranks of each job find. Several jobs of one number of processes share them; not all, because each job
    makes process groups, and gloo's have threads until the process ends."""
    results: dict[str, list[dict]] = {}
    for size in sorted({size for size, *_ in jobs.values()}):
        mine = [(name, *job) for name, (its, *job) in jobs.items() if its == size]
        for first in range(0, len(mine), SHARING):
            some, place = mine[first : first + SHARING], folder / f"{size}-{first}"
            place.mkdir(parents=True)
            mp.start_processes(rank_main, (size, str(place), some), nprocs=size, start_method="forkserver")
            results |= {name: [torch.load(place / f"{name}-{rank}") for rank in range(size)] for name, *_ in some}
    return results


def alone(block: str, training: TrainingConfig, steps: range, start: Path | None, save: Path) -> dict:
    with processes(60) as world:
        return learned(world, block, training, steps, start, save)


def flat(values) -> list[float]:
    return torch.tensor(values, dtype=torch.float64).flatten().tolist()


def apart(found, expected) -> float:
    """The largest relative difference."""
    pairs = zip(flat(found), flat(expected), strict=True)
    return max(abs(a - b) / max(abs(b), 1e-9) for a, b in pairs)


def check(ranks: list[dict], truth: dict, tolerance: float, folder: Path, config: ModelConfig) -> dict[str, float]:
    """Compare what ranks found with one process; the largest differences."""
    verdicts = [step[-1] for step in truth["steps"]]
    worst = {"loss": 0.0, "norm": 0.0, "clip": 0.0, "monitor": 0.0, "heldout": 0.0}
    for rank in ranks:
        assert [step[-1] for step in rank["steps"]] == verdicts
        assert rank["steps"] == ranks[0]["steps"], "all ranks have the same figures"
        for name, index in (("loss", 0), ("norm", 2), ("clip", 3)):
            difference = apart([s[index] for s in rank["steps"]], [s[index] for s in truth["steps"]])
            worst[name] = max(worst[name], difference)
        worst["monitor"] = max(worst["monitor"], apart(rank["probe"], truth["probe"]))
        worst["heldout"] = max(worst["heldout"], apart(rank["heldout"], truth["heldout"]))
    # each sample is read, by all ranks of one reader
    of_readers = {rank["reader"]: rank["read"] for rank in ranks}
    assert all(rank["read"] == of_readers[rank["reader"]] for rank in ranks)
    for step, expected in enumerate(truth["read"]):
        assert sorted(row for read in of_readers.values() for row in read[step]) == sorted(expected)
    assert not any(rank["weights"] for rank in ranks[1:])
    weights = ranks[0]["weights"]
    assert weights.keys() == truth["weights"].keys()
    worst["weights"] = max(float((weights[name] - each).abs().max()) for name, each in truth["weights"].items())
    sizes = {
        export_model(w, config, VOCABULARY, folder / n).stat().st_size
        for n, w in (("a", weights), ("b", truth["weights"]))
    }
    assert len(sizes) == 1, "an export has the same tensors"
    assert max(worst["loss"], worst["norm"], worst["clip"], worst["heldout"]) < tolerance, worst
    assert worst["monitor"] < 100 * tolerance and worst["weights"] < 20 * tolerance, worst
    return worst


def check_matrix(
    layouts: dict, block: str, optimizer: str, count: int, tolerance: float, tmp_path: Path, all_ways: bool = False
) -> None:
    """All layouts from equal weights; and from the checkpoint of another one, or of each other one, and in one process
    from each."""
    config, steps = BLOCKS[block], range(count)

    def job(name: str, part: range, start: Path | None) -> tuple:
        size, parallel = layouts[name]
        return size, block, training_of(optimizer, count, parallel), part, start, tmp_path / "saved" / name

    saved = count // 2  # steps at the checkpoint
    truth = alone(block, training_of(optimizer, count, {}), steps, None, tmp_path / "saved" / ALONE)
    verdicts = [step[-1] for step in truth["steps"]]
    assert verdicts[POISONED] == OUTLIER and verdicts.count(APPLIED) > count // 2
    assert any(step[3] < 1 for step in truth["steps"]) and any(step[3] == 1 for step in truth["steps"]), (
        "some are clipped"
    )
    found = run_ranks(tmp_path / "whole", {name: job(name, steps, None) for name in layouts})
    print(f"\n{block}, {optimizer}, {count} steps: largest relative differences (weights: absolute)")
    for name, ranks in found.items():
        worst = check(ranks, truth, tolerance, tmp_path, config)
        print(f"| {name} | " + " | ".join(f"{value:.1e}" for value in worst.values()) + " |", flush=True)
    starts = {name: tmp_path / "saved" / name / f"step-{saved + 1:08}" for name in (ALONE, *layouts)}
    rest = range(saved + 1, saved + 3)
    expected = [step[:3] for step in truth["steps"][rest.start : rest.stop]]
    before = dict(zip(layouts, [*list(layouts)[1:], ALONE], strict=True))
    ways = {
        f"{a} to {b}": job(b, rest, starts[a])
        for a in starts
        for b in layouts
        if a == before[b] or (all_ways and a != b)
    }
    resumed = run_ranks(tmp_path / "resumed", ways)
    for name, start in starts.items():
        part = alone(block, training_of(optimizer, count, {}), rest, start, tmp_path / "saved" / "again")
        resumed[f"{name} to {ALONE}"] = [part]
    worst = max((apart([s[:3] for s in ranks[0]["steps"]], expected), way) for way, ranks in resumed.items())
    print(f"| {len(resumed)} ways to go on | {worst[0]:.1e} | {worst[1]}", flush=True)
    assert worst[0] < tolerance, worst


@pytest.mark.extended
@pytest.mark.parametrize(
    "block, optimizer, names",
    [
        pytest.param("llama", "adamw", ("context 2", "tensor 2"), marks=pytest.mark.slow),
        ("nanochat", "muon", ("pipeline 2, interleave 2", "pipeline 4", "pipeline 2, tensor 2")),
    ],
)
def test_layouts_learn_what_one_process_learns(block, optimizer, names, tmp_path):
    check_matrix({name: LAYOUTS[name] for name in names}, block, optimizer, 11, 1e-5, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_layout_learns_what_one_process_learns(block, optimizer, tmp_path):
    all_ways = (block, optimizer) == ("nanochat", "muon")
    check_matrix(LAYOUTS, block, optimizer, 50, 1e-5, tmp_path, all_ways)


def test_processes_that_a_layout_does_not_divide(tmp_path):
    with pytest.raises(ValueError, match="training.parallel.tensor is 2: together 2, which do not divide 1 processes"):
        with processes(60, lambda device: world_of(device, Parallel(tensor=2))):
            pass
