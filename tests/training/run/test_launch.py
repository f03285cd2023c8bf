"""Several processes: the same training as one, and nothing left behind when any of them is killed."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from gristmill.storage import checked_json
from gristmill.training.checkpoint import keeping
from gristmill.training.run.environment import available_cpus, environment_of
from gristmill.training.run.launch import KILLED, STOPPED, Nodes, launch
from gristmill.training.run.loop import train
from gristmill.training.run.tracking import METRICS

pytestmark = pytest.mark.extended

ROOT = Path(__file__).resolve().parents[3]


def started(run, processes: int, on_line=lambda line: None, **rest) -> int:
    run.out.mkdir(parents=True, exist_ok=True)
    checked_json.write(str(run.out / "run.json"), run.model_dump(mode="json"))
    return launch(run.out / "run.json", processes, run.out / "log.txt", on_line=on_line, **rest)


def metrics(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / METRICS).read_text().splitlines()]


def assert_close(ours: list[dict], expected: list[dict], tolerance: float) -> None:
    """All but the noise scale, which each cut of a batch into micro-batches estimates otherwise."""
    ours, expected = (
        [{name: value for name, value in line.items() if name != "train/noise_scale"} for line in lines]
        for lines in (ours, expected)
    )
    assert [line.keys() for line in ours] == [line.keys() for line in expected]
    for line, truth in zip(ours, expected, strict=True):
        assert line == pytest.approx(truth, rel=tolerance, abs=tolerance)


@pytest.fixture(scope="module")
def two(make_run, tmp_path_factory):
    """The undisturbed run of two processes."""
    run = make_run(tmp_path_factory.mktemp("two"))
    lines = []
    assert started(run, 2, lines.append) == 0
    assert any(line.startswith("step 40/40") for line in lines)
    assert (run.out / "log.txt").read_text().splitlines() == lines
    return run


@pytest.mark.slow
def test_two_processes_train_like_one(two, run_small):
    ours, alone = metrics(two.out), metrics(run_small.out)
    # Rounding grows from step to step: the first ones show that nothing else differs. The norm is a sum over all
    # parameters in float32 (an ulp is 1.2e-7), in an order that is the processor's: 2e-6 were seen, and 7e-6 at step 8.
    assert_close(ours[:6], alone[:6], 5e-6)
    assert_close(ours, alone, 1e-4)
    timing = [json.loads(line) for line in (two.out / "timing.jsonl").read_text().splitlines()]
    assert all(1 <= line["time/slowest_rank_over_mean"] <= 2 for line in timing)


@pytest.mark.slow
def test_three_processes_train_like_one(make_run, run_small, tmp_path):
    """7 rows for 3 ranks and micro-batches of 2: rows of padding on two of them."""
    run = make_run(tmp_path, training={"steps": 40})
    assert started(run, 3) == 0
    assert_close(metrics(tmp_path)[:6], metrics(run_small.out)[:6], 1e-6)  # rounding grows from step to step
    assert_close(metrics(tmp_path), metrics(run_small.out), 1e-4)


FEW = {"steps": 20, "batch": 3, "learning_rate": 1e-3, "checkpoint_every": 10, "eval_every": 20, "sample_tokens": 0}


@pytest.fixture(scope="module")
def few(make_run, tmp_path_factory):
    """Three sequences a step, of one process: with four, one has padding alone."""
    run = make_run(tmp_path_factory.mktemp("few"), training=FEW)
    train(run)
    return run


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3, 4])
def test_any_number_of_processes_trains_like_one(few, make_run, tmp_path, size):
    """Ragged rows on two, one row each on three, none on the fourth of four; and again, to the same bits."""
    run = make_run(tmp_path / "all", training=FEW)
    assert started(run, size) == 0
    assert_close(metrics(run.out), metrics(few.out), 1e-6)
    again = make_run(tmp_path / "again", training=FEW)
    assert started(again, size) == 0
    assert (again.out / METRICS).read_bytes() == (run.out / METRICS).read_bytes()
    ours, expected = (load_file(each.out / "model.safetensors") for each in (again, run))
    assert all(torch.equal(ours[name], expected[name]) for name in expected)


@pytest.mark.slow
def test_a_checkpoint_of_two_goes_on_with_one_three_and_four(few, make_run, tmp_path):
    two = make_run(tmp_path / "two", training=FEW)
    assert started(two, 2) == 0
    for size in (1, 3, 4):
        run = make_run(tmp_path / str(size), training=FEW, resume_from=two.out / "checkpoints" / "step-00000010")
        assert started(run, size) == 0
        assert_close(metrics(run.out), metrics(two.out)[10:], 1e-6)


def test_a_checkpoint_moves_from_two_processes_to_one(two, make_run, tmp_path):
    name = "step-00000020"
    shutil.copytree(two.out / "checkpoints" / name, tmp_path / "checkpoints" / name)
    train(make_run(tmp_path))
    ours, expected = metrics(tmp_path), metrics(two.out)[20:]
    assert_close(ours[:10], expected[:10], 1e-6)
    assert_close(ours, expected, 1e-4)


@pytest.mark.slow
def test_a_checkpoint_of_the_default_optimizer_moves_from_two_processes_to_one(make_run, tmp_path):
    muon = ({"qk_norm": True}, FEW | {"optimizer": "muon"})
    whole = make_run(tmp_path / "two", *muon)
    assert started(whole, 2) == 0
    saved = whole.out / "checkpoints" / "step-00000010"
    train(make_run(tmp_path / "one", *muon, resume_from=saved))
    assert_close(metrics(tmp_path / "one"), metrics(whole.out)[10:], 2e-6)


def processes_of(run_json: Path) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if os.fsencode(run_json) in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:  # it ended while we looked
            continue
    return found


KILLS_ITSELF = """
import os, signal, sys
from gristmill.training.run.launch import launch
def on_line(line):
    if line.startswith(("step", "resuming")):
        os.kill(os.getpid(), signal.SIGKILL)
launch(sys.argv[1], 2, sys.argv[2], on_line=on_line)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="parent-death signals are Linux's")
@pytest.mark.slow
def test_stopped_then_killed_then_finished(two, make_run, tmp_path):
    """Ctrl-C saves a checkpoint; kill -9 of the launcher leaves no rank; the end is as if neither had been."""
    run = make_run(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        started(run, 2, lambda line: line.startswith("step") and os.kill(os.getpid(), signal.SIGINT))
    saved = keeping.latest(tmp_path / "checkpoints")
    steps = int(saved.name.removeprefix("step-"))
    assert 0 < steps < 40 and not (tmp_path / "result.json").exists()

    run_json = (tmp_path / "run.json").resolve()
    killed = subprocess.run(
        [sys.executable, "-c", KILLS_ITSELF, run_json, tmp_path / "log.txt"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=120,
    )
    assert killed.returncode == -signal.SIGKILL
    patience = time.monotonic() + 30
    while processes_of(run_json) and time.monotonic() < patience:
        time.sleep(0.05)
    assert processes_of(run_json) == []
    assert not (tmp_path / "result.json").exists()
    assert steps <= len(metrics(tmp_path)) < 40

    assert started(run, 2) == 0
    assert (tmp_path / METRICS).read_bytes() == (two.out / METRICS).read_bytes()
    ours, expected = (load_file(out / "model.safetensors") for out in (tmp_path, two.out))
    assert all(torch.equal(ours[name], expected[name]) for name in expected)


def of_nodes(runs: list) -> list[int]:
    """The exit codes of two agents that meet at an address, with one rank each."""
    for run in runs:
        checked_json.write(str(run.out / "run.json"), run.model_dump(mode="json"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"

    def agent(rank: int) -> int:
        out, nodes = runs[rank].out, Nodes(2, rank, address)
        return launch(out / "run.json", 1, out / f"{rank}.txt", env={"OMP_NUM_THREADS": "1"}, nodes=nodes)

    with ThreadPoolExecutor() as agents:
        return list(agents.map(agent, range(2)))


@pytest.mark.slow
def test_two_nodes_train_like_one(two, make_run, tmp_path):
    assert of_nodes([make_run(tmp_path)] * 2) == [0, 0]
    assert (tmp_path / METRICS).read_bytes() == (two.out / METRICS).read_bytes()


@pytest.mark.slow
def test_nodes_with_disks_of_their_own_train_like_one(two, make_run, tmp_path):
    """A third machine takes the place of the second, of which nothing is left; then one goes on alone."""
    store = f"file://{tmp_path}/home/checkpoints"
    first, second, third = (make_run(tmp_path / name, store=store) for name in ("first", "second", "third"))
    assert of_nodes([first, second]) == [0, 0]
    assert (first.out / METRICS).read_bytes() == (two.out / METRICS).read_bytes()
    assert [path.name for path in second.out.glob("*.json*")] == ["run.json"]
    assert keeping.stored(store) == {20, 40}
    keeping.remove_stored(store, 40)
    shutil.rmtree(second.out)
    assert of_nodes([first, third]) == [0, 0]
    assert "resuming from" in (first.out / "0.txt").read_text()
    assert (first.out / METRICS).read_bytes() == (two.out / METRICS).read_bytes()
    ours, expected = (load_file(each.out / "model.safetensors") for each in (first, two))
    assert all(torch.equal(ours[name], expected[name]) for name in expected)
    keeping.remove_stored(store, 40)
    assert keeping.restore(store, third.out, third.out / "checkpoints").name == "step-00000020"
    train(third)
    assert_close(metrics(third.out), metrics(two.out), 1e-4)


@pytest.mark.slow
def test_nodes_of_other_settings_do_not_train_together(make_run, tmp_path):
    store = f"file://{tmp_path}/home/checkpoints"
    runs = [make_run(tmp_path / str(rank), store=store, training={"seed": rank}) for rank in range(2)]
    assert all(code not in (0, STOPPED, KILLED) for code in of_nodes(runs))
    said = (runs[0].out / "0.txt").read_text()
    assert "rank 1 has a different training.seed than rank 0: end the run, and start it on all machines again" in said
    assert not keeping.stored(store)


@pytest.mark.slow
def test_a_killed_rank_is_started_again(two, make_run, tmp_path):
    """From the newest checkpoint, as often as is allowed."""
    run, lines = make_run(tmp_path), []
    checked_json.write(str(run.out / "run.json"), run.model_dump(mode="json"))

    def kill(line: str) -> None:
        lines.append(line)
        if (
            line.startswith("step")
            and int(line[4:].split("/")[0]) > 12
            and not any("restart" in each for each in lines)
        ):
            for pid in processes_of(run.out / "run.json"):
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                if b"gristmill.training.run.launch" in command and b"gristmill.training.run.agent" not in command:
                    os.kill(pid, signal.SIGKILL)
                    return

    assert launch(run.out / "run.json", 2, run.out / "log.txt", on_line=kill) == KILLED
    assert not any("restart" in line for line in lines)
    lines.clear()
    shutil.rmtree(run.out / "checkpoints")
    assert launch(run.out / "run.json", 2, run.out / "log.txt", on_line=kill, restarts=1) == 0
    assert sum("restart 1 of 1" in line for line in lines) == 1
    assert sum(line.startswith("resuming from") for line in lines) == 1
    assert (tmp_path / METRICS).read_bytes() == (two.out / METRICS).read_bytes()


@pytest.mark.slow
def test_a_failing_rank_is_a_failing_launch(make_run, tmp_path):
    run = make_run(tmp_path, data=tmp_path / "missing.json")
    assert started(run, 2, restarts=1) not in (0, STOPPED, KILLED)
    text = (tmp_path / "log.txt").read_text()
    assert "missing.json" in text and "restart 1" not in text


@pytest.mark.parametrize(
    "quota, expected", [("max 100000", None), ("150000 100000", 2), ("1000 100000", 1), ("", None)]
)
def test_threads_are_those_that_a_container_may_use(quota, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    (tmp_path / "cpu.max").write_text(quota)
    assert available_cpus(tmp_path) == (expected or 6)
    assert available_cpus(tmp_path / "none") == 6


def test_the_allocator_is_the_users_if_that_is_set(monkeypatch):
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    assert environment_of(1, "")["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "backend:native")
    assert "PYTORCH_CUDA_ALLOC_CONF" not in environment_of(1, "")
