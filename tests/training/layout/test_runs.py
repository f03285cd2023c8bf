"""Whole runs under launch, by layout: what is recorded, evaluated, sampled and exported is that of one process, and a
run that is stopped goes on in another layout."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from gristmill.storage import checked_json, parquet
from gristmill.training.model_config import Parallel
from gristmill.training.run.launch import FAILURE, launch
from gristmill.training.run.tracking import METRICS

STEPS = 20
LAYOUTS = {
    "pipeline 2": (2, {"pipeline": 2}),
    "tensor 2": (2, {"tensor": 2}),
    "context 2": (2, {"context": 2}),
    "pipeline 2, interleave 2": (2, {"pipeline": 2, "interleave": 2}),
    "pipeline 2, tensor 2": (4, {"pipeline": 2, "tensor": 2}),
    "shard 2, context 2": (4, {"context": 2}),
}
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in list(LAYOUTS)[1:]]


class Stop(Exception):
    """Raised while training goes on, as a cancelled flow does."""


def started(run, processes: int, parallel: dict, stop_at: str = "") -> None:
    """Train to the end, or until a line of the log begins with `stop_at`."""
    training = run.training.model_copy(update={"parallel": Parallel(**parallel)})
    run = run.model_copy(update={"training": training})
    run.out.mkdir(parents=True, exist_ok=True)
    checked_json.write(str(run.out / "run.json"), run.model_dump(mode="json"))

    def on_line(line: str) -> None:
        if stop_at and line.startswith(stop_at):
            raise Stop

    log = run.out / "log.txt"
    one = {"OMP_NUM_THREADS": "1"}
    assert launch(run.out / "run.json", processes, log, env=one, on_line=on_line) == 0, log.read_text()


def metrics(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / METRICS).read_text().splitlines()]


@pytest.fixture
def settings(tmp_path) -> dict:
    """Four layers, tasks, and the losses of all documents."""
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    questions = [
        {"context": "labe do" * turn, "choices": [" riba", " mo sunk do", " é☃"], "answer": turn % 3}
        for turn in range(9)
    ]
    (tasks / "planted.jsonl").write_text("".join(json.dumps(question) + "\n" for question in questions))
    training = {
        "steps": STEPS,
        "eval_every": 10,
        "checkpoint_every": 5,
        "monitor_every": 5,
        "batch": 8,
        "learning_rate": 3e-3,
        "eval_tasks": str(tasks),
    }
    return {"model": {"layers": 4}, "training": training, "document_losses": True}


@pytest.mark.slow
@pytest.mark.parametrize("name", [next(iter(LAYOUTS)), *SLOW])
def test_a_run_that_is_stopped_goes_on_in_a_layout_and_ends_as_in_one_process(name, settings, make_run, tmp_path):
    alone, run = make_run(tmp_path / "alone", **settings), make_run(tmp_path / "run", **settings)
    started(alone, 1, {})
    processes, parallel = LAYOUTS[name]
    with pytest.raises(Stop):
        started(run, processes, parallel, stop_at="step 12/")
    before = metrics(run.out)
    assert 10 < len(before) < STEPS
    started(run, processes, parallel)
    assert "resuming from" in (run.out / "log.txt").read_text()
    found, expected = metrics(run.out), metrics(alone.out)
    assert [line["step"] for line in found] == list(range(1, STEPS + 1)) and found[: len(before)] == before
    for ours, truth in zip(found, expected, strict=True):
        # gradients of single micro-batches are on no rank
        assert truth.keys() - ours.keys() <= {"train/noise_scale"} and ours.keys() <= truth.keys()
        for key in ours:
            wide = key.startswith(("tasks/", "monitor/"))
            assert ours[key] == pytest.approx(truth[key], rel=1e-3 if wide else 1e-5), (key, ours["step"])
    assert {key.partition("/")[0] for key in found[-1]} >= {"tasks", "monitor", "heldout", "unigram"}
    theirs, bits = (parquet.read_table(str(each.out / "document_losses.parquet")) for each in (run, alone))
    assert theirs["bits"].to_pylist() == pytest.approx(bits["bits"].to_pylist(), rel=1e-4)
    results = [json.loads((each.out / "result.json").read_text()) for each in (run, alone)]
    assert results[0]["sample"] == results[1]["sample"] and results[0]["steps"] == STEPS
    weights = [load_file(each.out / "model.safetensors") for each in (run, alone)]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.allclose(weights[0][key], each, atol=2e-4) for key, each in weights[1].items())


@pytest.mark.slow
def test_a_layout_that_cannot_be_trained_ends_with_a_sentence(settings, make_run, tmp_path):
    run = make_run(tmp_path / "run", **settings | {"training": {**settings["training"], "micro_batch": 8}})
    with pytest.raises(AssertionError):
        started(run, 2, {"pipeline": 2})
    sentence = "training.micro_batch is 8, which makes 1 micro-batch of a step's 8 sequences per pipeline, but "
    sentence += "training.parallel.pipeline 2 needs at least 2; set micro_batch to 4"
    assert sentence in (run.out / FAILURE).read_text()
