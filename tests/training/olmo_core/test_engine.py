"""OLMo-core trains what our own loop trains, in an environment that has it:

python -m venv OLMO
OLMO/bin/pip install --constraint constraints.txt -r training/olmo_core/requirements.txt
GRISTMILL_OLMO_CORE_PYTHON=OLMO/bin/python python -m pytest -m bench -s tests/training/olmo_core/test_engine.py
"""

import json
import os
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from gristmill.storage import checked_json, parquet
from gristmill.training.config import Parallel
from gristmill.training.run.launch import FAILURE, Nodes, launch
from gristmill.training.run.tracking import METRICS

PYTHON = os.environ.get("GRISTMILL_OLMO_CORE_PYTHON", "")
STEPS = 50
pytestmark = [
    pytest.mark.bench,
    pytest.mark.skipif(not PYTHON, reason="GRISTMILL_OLMO_CORE_PYTHON names no Python that has OLMo-core"),
]


class Stop(Exception):
    """Raised while training goes on, as a cancelled flow does."""


def started(run, processes: int, engine: str, stop_at: str = "", **parallel) -> None:
    """Train by an engine, to the end, or until a line of the log begins with `stop_at`."""
    training = run.training.model_copy(update={"engine": engine, "parallel": Parallel(**parallel)})
    run = run.model_copy(update={"training": training})
    run.out.mkdir(parents=True, exist_ok=True)
    checked_json.write(str(run.out / "run.json"), run.model_dump(mode="json"))
    log = run.out / "log.txt"

    def on_line(line: str) -> None:
        if stop_at and line.startswith(stop_at):
            raise Stop

    python = PYTHON if engine == "olmo_core" or training.fp8_min_dim else ""  # torchao is there, if anywhere
    code = launch(run.out / "run.json", processes, log, python=python, on_line=on_line)
    assert code == 0, log.read_text()


def metrics(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / METRICS).read_text().splitlines()]


def trained(run, processes: int, engine: str = "olmo_core", **parallel) -> list[dict]:
    """The metrics of a whole run."""
    started(run, processes, engine, **parallel)
    return metrics(run.out)


def differences(found: list[dict], expected: list[dict], name: str) -> list[float]:
    """Relative ones, of the steps that have the metric in what is expected."""
    pairs = [(line[name], truth[name]) for line, truth in zip(found, expected, strict=True) if name in truth]
    return [abs(ours - theirs) / abs(theirs) for ours, theirs in pairs]


def assert_close(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.allclose(found[name], tensor, atol=5e-4), name


LAYOUTS = {
    "one process": (1, {}),
    "two shards": (2, {}),
    "tensor 2": (2, {"tensor": 2}),
    "context 2": (2, {"context": 2}),
    "replicas 2, shard 2": (4, {"replicas": 2, "shard": 2}),
    "shard 2, tensor 2": (4, {"shard": 2, "tensor": 2}),
}
TIED = {"dim": 64, "layers": 2, "heads": 4, "kv_heads": 2, "seq_len": 64, "qk_norm": True}
OWN_OUTPUT = {
    "dim": 64,
    "layers": 2,
    "heads": 4,
    "kv_heads": 4,
    "seq_len": 64,
    "tie_embeddings": False,
    "qk_norm": False,
}
TRAINING = {"steps": STEPS, "learning_rate": 0.003, "z_loss": 1e-4}


@pytest.fixture(scope="module", params=[TIED, OWN_OUTPUT], ids=["tied", "own output"])
def ours(request, make_run, tmp_path_factory):
    """(settings of a run, its metrics and its weights by our own loop on one process)."""
    settings = {"model": request.param, "training": TRAINING}
    run = make_run(tmp_path_factory.mktemp("ours"), **settings)
    return settings, trained(run, 1, "gristmill"), load_file(run.out / "model.safetensors")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_losses_are_those_of_our_own_loop(layout, ours, make_run, tmp_path):
    settings, expected, weights = ours
    processes, parallel = LAYOUTS[layout]
    run = make_run(tmp_path / "run", **settings)
    found = trained(run, processes, **parallel)
    losses, norms = (differences(found, expected, f"train/{name}") for name in ("loss", "grad_norm"))
    print(f"\n{layout}: {STEPS} losses differ by {max(losses):.1e} at most, norms by {max(norms):.1e}")
    assert len(losses) == STEPS and max(losses) < 1e-4
    assert norms[0] < 1e-5  # later ones have the rounding of all updates so far
    for name in ("train/z_loss", "heldout/loss", "heldout/web/bits_per_byte"):
        assert max(differences(found, expected, name)) < 1e-2, name
    for name in ("train/learning_rate", "train/tokens"):
        assert [line[name] for line in found] == [line[name] for line in expected]
    assert_close(load_file(run.out / "model.safetensors"), weights)
    names = {name for line in expected for name in line}
    absent = names - {name for line in found for name in line}
    assert {name.rsplit("/", 1)[0] for name in absent - {"train/noise_scale"}} == {
        "monitor/activation_rms",
        "monitor/attention_logit",
    }
    assert ("train/noise_scale" in absent) == bool({"tensor", "context"} & parallel.keys())


ENDS = {
    "ours, then tensor 2": (("gristmill", 2, {}), ("olmo_core", 2, {"tensor": 2})),
    "shard 2 and tensor 2, then ours": (("olmo_core", 4, {"tensor": 2}), ("gristmill", 1, {})),
    "ours, then context 2": (("gristmill", 1, {}), ("olmo_core", 2, {"context": 2})),
    "two shards, then ours": (("olmo_core", 2, {}), ("gristmill", 2, {})),
}


@pytest.mark.parametrize("ends", ENDS)
def test_a_run_that_is_cancelled_goes_on_with_the_other_engine(ends, ours, make_run, tmp_path):
    settings, expected, weights = ours
    run = make_run(tmp_path / "run", **settings)
    (engine, processes, parallel), (other, others, layout) = ENDS[ends]
    with pytest.raises(Stop):
        started(run, processes, engine, stop_at="step 22/50", **parallel)
    before = metrics(run.out)
    assert 20 < len(before) < STEPS
    found = trained(run, others, other, **layout)
    assert f"resuming from {run.out}/checkpoints/step-{len(before):08}" in (run.out / "log.txt").read_text()
    assert found[: len(before)] == before
    losses = differences(found, expected, "train/loss")
    print(f"\n{ends}, from step {len(before)} on: losses differ by {max(losses):.1e} at most")
    assert len(losses) == STEPS and max(losses) < 1e-4
    assert_close(load_file(run.out / "model.safetensors"), weights)


def test_muon_and_its_state_go_from_one_engine_to_the_other(make_run, tmp_path):
    settings = {"model": TIED, "training": {**TRAINING, "optimizer": "muon"}}
    expected = trained(make_run(tmp_path / "ours", **settings), 1, "gristmill")
    run = make_run(tmp_path / "run", **settings)
    with pytest.raises(Stop):
        started(run, 4, "olmo_core", stop_at="step 22/50", replicas=2)
    losses = differences(trained(run, 2, "gristmill"), expected, "train/loss")
    print(f"\nMuon: losses differ by {max(losses):.1e} at most")
    assert max(losses) < 1e-4
    assert_close(*(load_file(tmp_path / name / "model.safetensors") for name in ("run", "ours")))


SETTINGS = {
    "full recomputation": (1e-4, {"recompute": "full"}, {"tensor": 2}),
    "selective recomputation": (1e-4, {"recompute": "selective"}, {"tensor": 2}),
    "bf16": (1e-2, {"precision": "bf16", "reduce_dtype": "bf16"}, {}),
    "muP": (1e-4, {"parametrization": {"rule": "mup", "base_dim": 32}}, {"tensor": 2}),
    "CompleteP": (1e-4, {"parametrization": {"rule": "completep", "base_dim": 32, "base_layers": 1}}, {}),
    "batches that grow": (1e-4, {"batch_ramp": [{"tokens": 2000, "times": 2}]}, {"context": 2}),
    "Muon and context": (1e-4, {"optimizer": "muon"}, {"context": 2}),
    "targets of a part": (1e-4, {"objective": "prefix_lm", "accumulate": "sharded"}, {"context": 2}),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_mean_the_same(name, make_run, tmp_path):
    tolerance, training, parallel = SETTINGS[name]
    settings = {"model": TIED, "training": {**TRAINING, "steps": 12, **training}}
    expected = trained(make_run(tmp_path / "ours", **settings), 1, "gristmill")
    found = trained(make_run(tmp_path / "run", **settings), 2, **parallel)
    losses = differences(found, expected, "train/loss")
    print(f"\n{name}: losses differ by {max(losses):.1e} at most")
    assert max(losses) < tolerance


def test_a_killed_process_is_started_again_from_the_newest_checkpoint(make_run, tmp_path):
    training = {**TRAINING, "engine": "olmo_core", "parallel": {"tensor": 2}}
    run = make_run(tmp_path / "run", model=TIED, training=training)
    run.out.mkdir()
    path, lines = run.out / "run.json", []
    checked_json.write(str(path), run.model_dump(mode="json"))

    def kill(line: str) -> None:
        lines.append(line)
        if line.startswith("step 22/") and not any("restart 1 of 1" in each for each in lines):
            ranks = [
                each
                for each in psutil.Process().children(recursive=True)
                if str(path) in each.cmdline() and "gristmill.training.run.agent" not in each.cmdline()
            ]
            ranks[-1].kill()

    assert launch(path, 2, run.out / "log.txt", python=PYTHON, on_line=kill, restarts=1) == 0
    assert any("restart 1 of 1" in line for line in lines)
    assert any(line.startswith("resuming from") for line in lines)
    assert [line["step"] for line in metrics(run.out)] == list(range(1, STEPS + 1))


def test_two_machines_train_like_one(make_run, tmp_path):
    settings = {"model": TIED, "training": {**TRAINING, "engine": "olmo_core", "parallel": {"tensor": 2}}}
    run = make_run(tmp_path / "run", **settings)
    run.out.mkdir()
    checked_json.write(str(run.out / "run.json"), run.model_dump(mode="json"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"

    def machine(rank: int) -> int:
        nodes, one = Nodes(2, rank, address), {"OMP_NUM_THREADS": "1"}  # both are this machine
        return launch(run.out / "run.json", 1, run.out / f"{rank}.txt", python=PYTHON, env=one, nodes=nodes)

    with ThreadPoolExecutor() as machines:
        assert list(machines.map(machine, range(2))) == [0, 0]
    expected = trained(make_run(tmp_path / "one", **settings), 2, tensor=2)
    assert max(differences(metrics(run.out), expected, "train/loss")) < 1e-6


def test_products_in_fp8_round_as_those_of_our_own_engine(make_run, tmp_path):
    """Emulated on a CPU. Rounding is ten thousandths of a loss, and that of no fp8 is another."""
    if subprocess.run([PYTHON, "-c", "import torchao"], capture_output=True).returncode:
        pytest.skip("the environment of OLMo-core has no torchao")

    def losses(name: str, engine: str, **training) -> list[float]:
        run = make_run(tmp_path / name, model=TIED, training={**TRAINING, "steps": 12, **training})
        return [line["train/loss"] for line in trained(run, 1, engine)]

    ours, theirs = (losses(engine, engine, fp8_min_dim=48) for engine in ("gristmill", "olmo_core"))
    plain = losses("plain", "olmo_core")
    assert theirs == pytest.approx(ours, rel=1e-3)
    assert theirs[0] != pytest.approx(plain[0], rel=2e-6)
    print(f"\nfp8: first losses {ours[0]:.6f}, {theirs[0]:.6f}, without it {plain[0]:.6f}")


@pytest.mark.parametrize("parallel", [{}, {"tensor": 2}, {"context": 2}], ids=["shard", "tensor", "context"])
def test_tasks_and_documents_of_any_length_are_evaluated_as_by_our_own_engine(parallel, make_run, tmp_path):
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    questions = [
        {"context": "labe do" * turn, "choices": [" riba", " mo sunk do", " é☃"], "answer": turn % 3}
        for turn in range(9)
    ]
    (tasks / "planted.jsonl").write_text("".join(json.dumps(question) + "\n" for question in questions))
    settings = {"model": TIED, "training": {**TRAINING, "steps": 12, "eval_tasks": str(tasks)}, "document_losses": True}
    ours = make_run(tmp_path / "ours", **settings)
    expected = trained(ours, 1, "gristmill")[-1]
    run = make_run(tmp_path / "run", **settings)
    found = trained(run, 2, **parallel)[-1]
    scores = [name for name in expected if name.startswith("tasks/")]
    assert scores
    for name in scores:
        assert found[name] == pytest.approx(expected[name], rel=1e-4), name
    theirs, bits = (parquet.read_table(str(each.out / "document_losses.parquet")) for each in (run, ours))
    assert theirs["bits"].to_pylist() == pytest.approx(bits["bits"].to_pylist(), rel=1e-4)


@pytest.mark.parametrize(
    ("processes", "parallel", "training", "said"),
    [
        (2, {"tensor": 2}, {"fp8_min_dim": 32}, "fp8_min_dim is 32, but CPUs cannot send fp8"),
        (
            4,
            {"context": 2},
            {},
            "context is 2 of 4 processes, but on CPUs torch exchanges heads only among all of them",
        ),
        (3, {"tensor": 2}, {}, "training.parallel.tensor is 2: together 2, which do not divide 3 processes"),
    ],
)
def test_processes_that_cannot_be_laid_out_end_with_a_sentence(processes, parallel, training, said, make_run, tmp_path):
    run = make_run(tmp_path / "run", model=TIED, training=training)
    with pytest.raises(AssertionError):
        started(run, processes, "olmo_core", **parallel)
    assert said in (run.out / FAILURE).read_text()
