"""What only looks at a model needs no larger tensor than a step of its training."""

import json

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gristmill.samples.order import Order
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.training.decoder import Decoder, initial
from gristmill.training.doremi import excess_sums, learn
from gristmill.training.evaluate.heldout import Evaluator, document_losses
from gristmill.training.evaluate.tasks import read_tasks
from gristmill.training.loss import inputs_and_targets
from gristmill.training.step.optimizer import optimizers
from gristmill.training.step.state import StepPlan, begun_state, train_step
from gristmill.training.world import processes


class Largest(TorchDispatchMode):
    """The bytes of the largest tensor that an operation has made."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        sizes = [leaf.numel() * leaf.element_size() for leaf in tree_leaves(found) if isinstance(leaf, torch.Tensor)]
        self.bytes = max([self.bytes, *sizes])
        return found


@pytest.mark.parametrize("chunks", [1, 4])
def test_no_larger_tensor_than_that_of_a_step(make_run, corpus, tmp_path, chunks):
    examples = [{"context": "ba " * n, "choices": ["ri " * 9, "ba"], "answer": 0} for n in range(1, 40)]
    (tmp_path / "task.jsonl").write_text("".join(json.dumps(example) + "\n" for example in examples))
    training = {"batch": 8, "micro_batch": 8, "loss_chunks": chunks, "eval_tasks": str(tmp_path), "warmup_steps": 0}
    run, manifest = make_run(tmp_path / "run", training=training), load_training_manifest(corpus)
    rows = torch.from_numpy(Order(manifest, seq_len=32, batch=8, seed=0).batch(0))
    with processes(60) as world:
        state = begun_state(run.model, run.training, manifest.vocab_size, manifest.end_of_text, world)
        x, y = inputs_and_targets(rows, 8)
        with Largest() as step:
            train_step(state, x, y, StepPlan(0.01), run.training, world)
        assert step.bytes == 8 * 32 * manifest.vocab_size * 4 // chunks, "the logits are the largest"
        evaluator = Evaluator(run, manifest, world)
        assert evaluator.tasks == read_tasks(tmp_path)[0]
        with Largest() as evaluation:
            evaluator(state.model, last=False)
            document_losses(state.model, manifest, world, 8 * 32)
        reference = Decoder(run.model, manifest.vocab_size)
        with torch.no_grad():
            for name, parameter in reference.named_parameters():
                parameter.copy_(initial(name, parameter.shape, run.model, 1))
        reference.each_loss = state.model.each_loss
        pieces, domains = [(x, y, torch.arange(8) % 2)], 2
        with Largest() as proxy:
            sums = excess_sums(state.model, reference, pieces, domains, world)
            weights = torch.full((domains,), 0.5, dtype=torch.float64)
            optimizer = optimizers(state.model, run.training)
            learn(state.model, optimizer, pieces, weights, sums[:, 1], 0.01, run.training, world)
    assert 0 < evaluation.bytes <= step.bytes
    assert 0 < proxy.bytes <= step.bytes
