"""Runs that begin with a checkpoint of another run: what they share with it to the bit, and what begins again."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from gristmill.samples.order import Order
from gristmill.storage import checked_json, files
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.training.checkpoint.commit import commit_of
from gristmill.training.checkpoint.keeping import COMMIT, committed
from gristmill.training.checkpoint.reader import METADATA
from gristmill.training.config import RunConfig
from gristmill.training.run.loop import train
from gristmill.training.run.record import Record
from gristmill.training.start import Start, offset_of
from gristmill.training.trunk import read_digest, same_rates
from tests.training.run.test_launch import metrics

pytestmark = pytest.mark.extended

WSD = {"schedule": "wsd", "decay_ratio": 0.25, "steps": 24, "checkpoint_every": 5, "eval_every": 12, "sample_tokens": 0}


def started(trunk: RunConfig, step: int, run: RunConfig, samples: int | None = None) -> RunConfig:
    """A run that begins with a step of another one, which read so many samples of its mixture. None: all of them."""
    folder = trunk.out / "checkpoints" / f"step-{step:08d}"
    plan = run.training.batches(run.model.seq_len)
    read = trunk.training.batches(trunk.model.seq_len).first(step) if samples is None else samples
    start = Start(
        address=str(folder),
        digest=files.checksum(str(folder / COMMIT)),
        step=step,
        offset=offset_of(plan, step, read),
        same_data=samples is None,
    )
    return run.model_copy(update={"start": start})


@pytest.fixture(scope="module")
def trunk(make_run, tmp_path_factory):
    run = make_run(tmp_path_factory.mktemp("trunk"), training=WSD)
    train(run)
    return run


def state(run: RunConfig) -> dict[str, str]:
    """Digests of the tensors of the last checkpoint, weights and optimizer; their layout has a number that is drawn."""
    commit = commit_of(run.out / "checkpoints" / f"step-{run.training.steps:08d}")
    return {name: digest for name, digest in commit.files.items() if name != METADATA}


def test_the_checkpoint_at_the_peak_is_made_and_kept(trunk, make_run):
    assert trunk.training.last_peak_step(32) == 18
    rates = [line["train/learning_rate"] for line in metrics(trunk.out)]
    assert rates[17] == max(rates) > rates[18]  # the first step after it is the first with a lower rate
    assert list(committed(trunk.out / "checkpoints")) == [10, 18, 24]
    assert make_run(trunk.out).training.last_peak_step(32) is None


def test_a_branch_with_equal_settings_ends_as_its_trunk(trunk, make_run, tmp_path):
    branch = started(trunk, 10, make_run(tmp_path, training=WSD))
    train(branch)
    one, other = (load_file(run.out / "model.safetensors") for run in (branch, trunk))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    assert state(branch) == state(trunk)
    assert metrics(branch.out) == metrics(trunk.out)[10:]
    results = [json.loads((run.out / "result.json").read_text()) for run in (branch, trunk)]
    assert results[0] == results[1]


def test_a_longer_run_from_the_peak_is_that_from_scratch(trunk, make_run, tmp_path):
    longer = {**WSD, "steps": 36, "eval_every": 12}
    whole = make_run(tmp_path / "whole", training=longer)
    train(whole)
    continued = started(trunk, 18, make_run(tmp_path / "continued", training=longer))
    assert same_rates(trunk.training, continued.training, 32, 18)
    assert not same_rates(trunk.training, continued.training, 32, 19)
    train(continued)
    assert state(continued) == state(whole)
    assert metrics(continued.out) == metrics(whole.out)[18:]


def test_another_mixture_is_read_from_its_beginning(trunk, corpus, make_run, tmp_path, monkeypatch):
    other = checked_json.read(str(corpus))
    for source, share in zip(other["sources"], (0.2, 0.8), strict=True):
        source["share"] = share
        for shard in source["shards"]:
            shard["path"] = str(corpus.parent / shard["path"])
    other["tokenizer"]["path"] = str(corpus.parent / other["tokenizer"]["path"])
    for heldout in other["heldout"]:
        for shard in heldout["shards"]:
            shard["path"] = str(corpus.parent / shard["path"])
    checked_json.write(str(tmp_path / "mixture.json"), other)
    run = make_run(tmp_path / "branch", training={**WSD, "batch": 5}, data=tmp_path / "mixture.json")
    branch, read = started(trunk, 18, run, samples=0), []
    batch = Order.batch
    monkeypatch.setattr(Order, "batch", lambda *given: read.append(batch(*given)) or read[-1])
    train(branch)
    fresh = Order(load_training_manifest(tmp_path / "mixture.json"), seq_len=32, batch=5, seed=0)
    assert len(read) == 6 and all(np.array_equal(ids, batch(fresh, number)) for number, ids in enumerate(read))
    lines = metrics(branch.out)
    assert [line["step"] for line in lines] == list(range(19, 25))
    # of the schedule of 24 steps, the last six
    assert [line["train/learning_rate"] for line in lines] == pytest.approx(
        [line["train/learning_rate"] for line in metrics(trunk.out)[18:]], rel=1e-12
    )
    assert lines[0]["train/tokens"] == 18 * 7 * 32 + 5 * 32


def test_a_checkpoint_that_has_changed_is_refused(trunk, make_run, tmp_path):
    run = started(trunk, 10, make_run(tmp_path, training=WSD))
    assert run.start is not None
    changed = run.model_copy(update={"start": run.start.model_copy(update={"digest": "0" * 32})})
    with pytest.raises(ValueError, match="has changed since the run was planned"):
        train(changed)


def test_a_stopped_branch_resumes_from_its_own_checkpoint(trunk, make_run, tmp_path, monkeypatch):
    branch = started(trunk, 10, make_run(tmp_path, training=WSD))
    write = Record.write

    def stop_at_12(self, heldout):
        return write(self, heldout) or self.progress.step == 12

    monkeypatch.setattr(Record, "write", stop_at_12)
    with pytest.raises(Exception, match="stopped after step 12 of 24"):
        train(branch)
    monkeypatch.undo()
    train(branch)
    assert state(branch) == state(trunk) and metrics(branch.out) == metrics(trunk.out)[10:]


def test_data_are_the_same_as_far_as_a_digest_says(trunk, corpus):
    """Compared with what batches read: shares, seed and phases change the digest where they change a batch."""
    manifest, training = load_training_manifest(corpus), trunk.training

    def digest(changed=manifest, samples=70, **settings) -> str:
        return read_digest(changed, training.model_copy(update=settings), 32, samples)

    assert digest() == digest(steps=1000, schedule="cosine", batch=10) != digest(order_seed=5)
    longer = manifest.model_copy(
        update={"sources": tuple(s.model_copy(update={"epochs": 2.0}) for s in manifest.sources)}
    )
    assert digest(longer) == digest()
    for first in (64, 96):

        def phased(begins: int):
            phases = ({"first": 0, "shares": (0.7, 0.3)}, {"first": begins * 32, "shares": (0.1, 0.9)})
            return type(manifest).model_validate({**manifest.model_dump(), "phases": phases})

        one, other = phased(first), phased(300)
        batches = [Order(each, seq_len=32, batch=70, seed=0).batch(0) for each in (one, other)]
        assert (digest(one) == digest(other)) == np.array_equal(*batches) == (first == 96)
