"""Trainings of several processes and machines that something happens to, and that end as if nothing had.

Slow: each starts real ranks two or three times. `tests.training.run.test_heartbeat` has the decisions without torch.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from gristmill.storage import checked_json
from gristmill.training.run.heartbeat import Limits
from gristmill.training.run.launch import FAILURE, HUNG
from tests.training.run.test_launch import started

ROOT = Path(__file__).resolve().parents[3]
HANG = 20.0  # seconds; on a busy machine a step of this size takes less than one
SETTINGS = {"steps": 40, "checkpoint_every": 5, "log_every": 1, "sample_tokens": 0}
NODE = """
import sys
from pathlib import Path
from gristmill.training.run.launch import Nodes, launch
from gristmill.training.run.heartbeat import Limits
out, node, address, hang = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
log = out / f"log-{node}.txt"
sys.exit(launch(out / "run.json", 1, log, nodes=Nodes(2, node, address), restarts=3, limits=Limits(hang, 600)))
"""


@pytest.fixture(scope="module")
def undisturbed(make_run, tmp_path_factory):
    run = make_run(tmp_path_factory.mktemp("undisturbed"), training=SETTINGS)
    assert started(run, 2) == 0
    return load_file(run.out / "model.safetensors")


def assert_same_weights(out: Path, expected: dict[str, torch.Tensor]) -> None:
    ours = load_file(out / "model.safetensors")
    assert all(torch.equal(ours[name], expected[name]) for name in expected)


def child(of: int, kind: str) -> psutil.Process:
    """The last process of a launcher that is an agent or a rank."""
    found = []
    for process in psutil.Process(of).children(recursive=True):
        line = " ".join(process.cmdline())
        if "gristmill.training.run.launch" in line and ("gristmill.training.run.agent" in line) == (kind == "agent"):
            found.append(process)
    return found[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "number"), [("rank", signal.SIGSTOP), ("agent", signal.SIGSTOP), ("agent", signal.SIGKILL)]
)
def test_one_machine(kind, number, undisturbed, make_run, tmp_path):
    run, lines = make_run(tmp_path, training=SETTINGS), []

    def disturb(line: str) -> None:
        lines.append(line)
        if line.startswith("step 14/") and not any("restart" in each for each in lines):
            child(os.getpid(), kind).send_signal(number)
            if (kind, number) == ("agent", signal.SIGSTOP):  # training would go on without it, to its end
                child(os.getpid(), "rank").send_signal(signal.SIGSTOP)

    assert started(run, 2, disturb, restarts=3, limits=Limits(HANG, 600)) == 0
    assert sum("restart 1 of 3" in line for line in lines) == 1
    assert sum(line.startswith("resuming from") for line in lines) == 1
    assert_same_weights(tmp_path, undisturbed)
    assert (tmp_path / "hang-0-1").exists() == (number == signal.SIGSTOP)
    if (kind, number) == ("rank", signal.SIGSTOP):
        said = (tmp_path / "hang-0-1" / "ranks.txt").read_text()
        assert "stopped by a signal" in said.splitlines()[0] and "last collective gloo:" in said
        assert "train_step" in (tmp_path / "hang-0-1" / "rank-0-stacks.txt").read_text()


@pytest.mark.slow
def test_a_run_that_hangs_too_often_ends_with_a_sentence(make_run, tmp_path):
    run = make_run(tmp_path, training=SETTINGS)

    def disturb(line: str) -> None:
        if line.startswith("step 14/"):
            child(os.getpid(), "rank").send_signal(signal.SIGSTOP)

    assert started(run, 2, disturb, limits=Limits(HANG, 600)) == HUNG
    said = (tmp_path / FAILURE).read_text()
    assert "rank 1" in said and "0 restarts within an hour" in said


class Machines:
    """Two launchers, each with one rank."""

    def __init__(self, outs: list[Path]) -> None:
        self.outs = outs
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.nodes = [self.start(node) for node in range(2)]

    def start(self, node: int) -> subprocess.Popen:
        command = [sys.executable, "-c", NODE, self.outs[node], str(node), self.address, str(HANG)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, env=environment)

    def log(self, node: int) -> str:
        path = self.outs[node] / f"log-{node}.txt"
        return path.read_text() if path.exists() else ""

    def wait_for(self, text: str) -> None:
        while text not in self.log(0):
            assert all(node.poll() is None for node in self.nodes), self.log(0) + self.log(1)
            time.sleep(0.05)

    def end(self) -> None:
        for node in self.nodes:
            node.kill()
            node.wait()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("what", ["stopped rank", "killed rank", "killed launcher 1", "killed launcher 0"])
@pytest.mark.parametrize("own_disks", [False, True])
def test_two_machines(what, own_disks, undisturbed, make_run, tmp_path):
    if own_disks:
        store = f"file://{tmp_path}/home/model-1/checkpoints"
        runs = [make_run(tmp_path / str(node), training=SETTINGS, store=store) for node in range(2)]
    else:
        runs = [make_run(tmp_path, training=SETTINGS)] * 2
    for run in runs:
        checked_json.write(str(run.out / "run.json"), run.model_dump(mode="json"))
    machines = Machines([run.out for run in runs])
    try:
        machines.wait_for("step 14/")
        if what == "stopped rank":
            child(machines.nodes[1].pid, "rank").send_signal(signal.SIGSTOP)
        elif what == "killed rank":
            child(machines.nodes[1].pid, "rank").kill()
        else:
            number = int(what[-1])
            machines.nodes[number].kill()
            machines.nodes[number].wait()
            machines.nodes[number] = machines.start(number)
        codes = [node.wait() for node in machines.nodes]
        assert codes == [0, 0], machines.log(0) + machines.log(1)
    finally:
        machines.end()
    assert "resuming from" in machines.log(0)
    assert_same_weights(runs[0].out, undisturbed)
    reports = [sorted(path.name for path in run.out.glob("hang-*")) for run in runs]
    if what == "stopped rank":
        both = ["hang-0-1", "hang-1-1"]
        # at least these: on a very busy machine a step may take longer than HANG
        expected = [{name} for name in both] if own_disks else [{*both}, {*both}]
        assert all(each <= {*found} for each, found in zip(expected, reports, strict=True))
        said = (runs[1].out / "hang-1-1" / "ranks.txt").read_text()
        assert "rank 1" in said.splitlines()[0] and "stopped by a signal" in said.splitlines()[0]
    else:
        assert reports == [[], []]
