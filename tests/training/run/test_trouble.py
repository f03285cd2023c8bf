"""What goes wrong in a real run of several processes, or away from the usual path, and how the run ends."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from gristmill.samples.order import Order
from gristmill.storage import checked_json, files
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.training.checkpoint.keeping import committed
from gristmill.training.hub.model_folder import write_model_folder
from gristmill.training.hub.weights import open_model
from gristmill.training.run.launch import FAILURE
from gristmill.training.run.loop import train
from tests.training.hub.test_initial_weights import MODEL, pinned
from tests.training.run.test_launch import assert_close, metrics, started
from tests.training.step.test_guard import BAD, SHORT, decisions, plant

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def spoilt(corpus, make_run, tmp_path_factory):
    """The mixture with one token in place of all that the batches BAD read: no window comes twice in so short a run."""
    data = shutil.copytree(corpus.parent, tmp_path_factory.mktemp("spoilt") / "data")
    run = make_run(data, training=SHORT)
    order = Order(load_training_manifest(corpus), seq_len=run.model.seq_len, batch=run.training.batch, seed=0)
    mixture = checked_json.read(str(corpus))
    for source, epoch, window in order.windows_of(range(BAD.start * 7, BAD.stop * 7)):
        assert epoch == 0
        start = window * run.model.seq_len
        for shard in mixture["sources"][source]["shards"]:
            tokens = np.memmap(data / shard["path"], "<u2", "r+")
            tokens[max(0, start) : max(0, start + run.model.seq_len)] = 7
            tokens.flush()
            start -= len(tokens)
    for source in mixture["sources"]:
        for shard in source["shards"]:
            shard["digest"] = files.checksum(str(data / shard["path"]))
    checked_json.write(str(data / corpus.name), mixture)
    return data / corpus.name


@pytest.mark.slow
def test_two_processes_roll_back_as_one_does(spoilt, make_run, tmp_path):
    runs = [make_run(tmp_path / str(size), training=SHORT, data=spoilt) for size in (1, 2)]
    train(runs[0])
    assert started(runs[1], 2) == 0
    one, two = (decisions(run.out) for run in runs)
    assert [event.model_dump(exclude={"figures"}) for event in two] == [
        event.model_dump(exclude={"figures"}) for event in one
    ]
    assert {(event.what, event.why, event.to) for event in two} == {("rollback", "data window", 40)}
    assert two[0].began == BAD.start + 1
    assert_close(metrics(runs[1].out)[:10], metrics(runs[0].out)[:10], 1e-6)
    ours, expected = ([line["train/loss"] for line in metrics(run.out)] for run in reversed(runs))
    assert len(ours) == 100 and ours == pytest.approx(expected, rel=1e-2)  # rounding grows on the batches before it


@pytest.fixture(scope="module")
def exported(make_run, tmp_path_factory):
    out = tmp_path_factory.mktemp("first")
    run = make_run(out, model=MODEL, training={"steps": 60, "checkpoint_every": 60})
    train(run)
    checked_json.write(str(out / "run.json"), run.model_dump(mode="json"))
    to = tmp_path_factory.mktemp("export") / "model"
    write_model_folder(open_model(out), to, "first")
    return to


@pytest.mark.slow
def test_without_a_checkpoint_a_run_goes_back_to_its_initial_weights(exported, make_run, tmp_path, monkeypatch):
    """Those of init_from, and not drawn ones."""
    plant(monkeypatch, range(20, 30))
    training = {**SHORT, "init_from": str(exported), "checkpoint_every": 100}
    run = make_run(tmp_path, model=MODEL, training=training, init_digests=pinned(exported))
    train(run)
    assert {(event.what, event.to) for event in decisions(run.out)} == {("rollback", 0)}
    found = metrics(run.out)
    assert [line["step"] for line in found] == list(range(1, 101))
    clean = make_run(tmp_path / "clean", model=MODEL, training=training, init_digests=pinned(exported))
    monkeypatch.undo()
    train(clean)
    assert_close(found[:10], metrics(clean.out)[:10], 1e-6)


@pytest.mark.slow
def test_tasks_and_initial_weights_with_two_processes(exported, make_run, tmp_path):
    asked = [{"context": "a", "choices": ["b", "c d", "e"], "answer": k % 3} for k in range(5)]
    (tmp_path / "guess.jsonl").write_text("".join(json.dumps(line) + "\n" for line in asked))
    given = {"init_from": str(exported), "eval_tasks": str(tmp_path)}
    training = {"steps": 20, "eval_every": 10, **given}
    runs = [
        make_run(tmp_path / str(size), model=MODEL, training=training, init_digests=pinned(exported)) for size in (1, 2)
    ]
    train(runs[0])
    assert started(runs[1], 2) == 0
    one, two = (metrics(run.out) for run in runs)
    assert any(name.startswith("tasks/") for name in two[9])
    assert_close(two, one, 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "said"), [("error", "planted in a step"), ("batch", "planted in a batch")])
def test_an_error_of_one_rank_ends_all_of_them(kind, said, make_run, tmp_path):
    """With that error in one line, though the others fail for want of the rank; the next try goes on."""
    run = make_run(tmp_path, training={"checkpoint_every": 5})
    checked_json.write(str(tmp_path / "run.json"), run.model_dump(mode="json"))
    command = [sys.executable, "-m", "gristmill.training.run.agent", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "tests.training.poisoned_rank", str(tmp_path / "run.json"), kind, "12"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert (tmp_path / FAILURE).read_text() == f"rank 1: ValueError: {said}\n"
    assert list(committed(tmp_path / "checkpoints")) == [10]
    assert started(run, 2) == 0
    assert not (tmp_path / FAILURE).exists()
    assert (tmp_path / "result.json").exists()


@pytest.mark.extended
def test_an_error_in_reading_ends_the_run_with_what_is_saved(make_run, run_small, tmp_path, monkeypatch):
    read = Order.batch
    with monkeypatch.context() as patch:
        patch.setattr(Order, "batch", lambda self, step, *rest: read(self, step, *rest) if step < 26 else 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train(make_run(tmp_path))
    assert list(committed(tmp_path / "checkpoints")) == [20]
    train(make_run(tmp_path))
    ours, expected = (load_file(out / "model.safetensors") for out in (tmp_path, run_small.out))
    assert all(torch.equal(ours[name], expected[name]) for name in expected)
    assert json.loads((tmp_path / "result.json").read_text())["steps"] == 40
