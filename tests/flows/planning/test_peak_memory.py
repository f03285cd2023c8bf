"""The formulas of memory against torch's own tracker, which runs a whole step on tensors that are not there.

MemTracker counts every storage of a step of our own loop, with FSDP2 over a process group that only pretends: the first
of 1, 8 or 64 ranks. The default run has one small model; the slow one whole models, and prints the table.
"""

from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.testing._internal.distributed.fake_pg import FakeStore

from gristmill.flows.experiments.planning import memory
from gristmill.flows.experiments.planning.memory import Layout
from gristmill.training.config import TrainingConfig
from gristmill.training.model_config import ModelConfig
from gristmill.training.step import state as step_state
from gristmill.training.step.state import empty_state
from gristmill.training.world import world_of

VOCABULARY = 32_000
FEW = 4_000  # tokens, so that no part of a small model is the most of it
ALLOWED = 0.1
SMALL = ModelConfig(dim=256, layers=4, heads=4, seq_len=512, tie_embeddings=True)
MODELS = {
    "124M": ModelConfig(dim=768, layers=12, heads=12, seq_len=1024, tie_embeddings=True),
    "1.3B": ModelConfig(dim=2048, layers=24, heads=16, seq_len=2048, tie_embeddings=True),
    "7B": ModelConfig(dim=4096, layers=32, heads=32, ffn=11008, seq_len=4096, tie_embeddings=False),
}
ROWS = 2  # of a rank, one a micro-batch: the second has gradients of the first beside it


def tracked(model: ModelConfig, training: TrainingConfig, ranks: int, monkeypatch, vocabulary: int = VOCABULARY) -> int:
    """Bytes of the peak of a rank in the second of two steps: the first one lets DTensor learn the shapes of its
    results, for which it makes tensors that only the tracker takes for real ones."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    try:
        world = world_of(torch.device("cpu"), training.parallel)
        with FakeTensorMode(allow_non_fake_inputs=True), MemTracker() as tracker:
            begin = step_state.begin_micro_batch

            def begun(*arguments, **named):
                tracker.reset_mod_stats()  # which it asks for ahead of another forward pass
                begin(*arguments, **named)

            monkeypatch.setattr(step_state, "begin_micro_batch", begun)
            state = empty_state(model, training, vocabulary, 0, world)
            tracker.track_external(state.model)
            inputs = torch.zeros(ROWS, model.seq_len, dtype=torch.int64)
            for _ in range(2):
                tracker._peak_mem.clear()
                tracker._peak_mem_snap.clear()
                step_state.train_step(state, inputs, inputs.clone(), step_state.StepPlan(1e-3), training, world)
            return tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
    finally:
        monkeypatch.undo()
        dist.destroy_process_group()


def formula(model: ModelConfig, training: TrainingConfig, ranks: int, vocabulary: int = VOCABULARY) -> memory.Memory:
    layout = Layout(ranks // training.parallel.replicas, training.parallel.replicas)
    product = 4 if training.precision == "fp32" else 2
    counted = memory.counts(model, vocabulary)
    return memory.peak(model, training, counted, vocabulary, layout, 1, ROWS, product, compiled=False, cuda=False)


def settings(ranks: int, **given) -> TrainingConfig:
    fixed = {"precision": "bf16", "accumulate": "sharded", "compile": False, "micro_batch": 1, "batch": ROWS * ranks}
    return TrainingConfig(**(fixed | {"optimizer": "adamw"} | given))


@pytest.mark.extended
@pytest.mark.parametrize("block", ["llama", "nanochat"])
def test_the_formula_is_within_a_tenth_of_the_tracker_and_would_not_be_without_a_part(block, monkeypatch):
    training, small = settings(1), SMALL.model_copy(update={"block": block})
    truth = tracked(small, training, 1, monkeypatch, FEW)
    found = formula(small, training, 1, FEW)
    assert found.total == pytest.approx(truth, rel=ALLOWED)
    for part in ("weights", "gradients", "optimizer", "activations", "logits"):
        assert replace(found, **{part: 0.0}).total != pytest.approx(truth, rel=ALLOWED), part


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 4])
def test_the_update_by_stacked_matrices_is_within_a_tenth_of_the_tracker(ranks, monkeypatch):
    model = ModelConfig(dim=256, layers=4, heads=4, seq_len=16, tie_embeddings=True)
    training = settings(ranks, optimizer="muon", recompute="full")
    found = formula(model, training, ranks, 500)
    assert found.moment == "update"
    assert found.total == pytest.approx(tracked(model, training, ranks, monkeypatch, 500), rel=ALLOWED)
    assert replace(found, buffers=0.0).total < 0.9 * found.total


SETTINGS = {
    "AdamW": {},
    "AdamW, selective": {"recompute": "selective"},
    "AdamW, full": {"recompute": "full"},
    "Muon": {"optimizer": "muon"},
    "Muon, full": {"optimizer": "muon", "recompute": "full"},
    "8 pieces of the loss": {"loss_chunks": 8},
    "z-loss": {"z_loss": 1e-4},
    "whole gradients": {"accumulate": "whole"},
    "blocks kept whole": {"reshard_after_forward": False},
    "float32": {"precision": "fp32"},
    "gradients sent in bf16": {"reduce_dtype": "bf16"},
    "two replicas": {"parallel": {"replicas": 2}},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_peaks_of_whole_models(name, monkeypatch):
    """`python -m pytest -m slow -s tests/flows/planning/test_peak_memory.py` prints the table of
    docs/guides/plan-a-training.md."""
    print(f"\n{'settings':22} {'model':5} ranks {'tracker':>9} {'formula':>9}  difference")
    rows = []
    for what, given in list(SETTINGS.items())[:5]:
        for ranks in (1, 8, 64):
            rows.append((what, MODELS[name], ranks, given))
    rows += [(what, MODELS[name].model_copy(update={"layers": 2}), 8, SETTINGS[what]) for what in list(SETTINGS)[5:]]
    wrong = []
    for what, model, ranks, given in rows:
        training = settings(ranks, **given)
        truth, found = tracked(model, training, ranks, monkeypatch), formula(model, training, ranks)
        difference = found.total / truth - 1
        sizes = f"{truth / 2**20:9,.0f} {found.total / 2**20:9,.0f}"
        print(f"{what:22} {name:5} {ranks:5} {sizes}  {difference:+.1%}  {model.layers} layers", flush=True)
        if abs(difference) > ALLOWED:
            wrong.append((what, ranks, difference))
    assert not wrong


# Peaks of runs on an H100 of 80 GB (torch 2.11, blocks and loss compiled, vocabulary of 32,768, tied, AdamW, four
# micro-batches): model, rows of a micro-batch, pieces of the loss, GB.
MEASURED = (("124M", 32, 1, 13.7), ("124M", 64, 1, 27.6), ("124M", 32, 8, 12.0), ("1.3B", 8, 1, 48.4))


@pytest.mark.parametrize(("name", "rows", "pieces", "gigabytes"), MEASURED)
def test_compiled_peaks_are_within_an_eighth_of_what_was_measured(name, rows, pieces, gigabytes):
    model = MODELS[name]
    training = TrainingConfig(optimizer="adamw", micro_batch=rows, batch=4 * rows, loss_chunks=pieces)
    counted = memory.counts(model, 32_768)
    found = memory.peak(model, training, counted, 32_768, Layout(1), rows, 4)
    assert found.total / 1e9 == pytest.approx(gigabytes, rel=0.125)
