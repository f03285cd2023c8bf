"""Two machines that train one model, as the documentation has it: `run` on one, `join` on the other."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gristmill.storage import files
from gristmill.training.run.launch import STOPPED
from tests import slurm_server


def until(found: Callable[[], Any], process: subprocess.Popen, log: Path) -> Any:
    while not (value := found()):
        assert process.poll() is None, log.read_text()
        time.sleep(0.2)
    return value


HOME = "s3://crawl/home"
RUN = "import sys; from gristmill.flows.cli import app; app(sys.argv[1:])"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_second_machine_joins_a_run(runs, recipe):
    fewer = recipe | {"steps": recipe["steps"][:1]}
    path = str(runs.write(fewer))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    nodes = {"training_nodes": "2", "training_rendezvous": address, "training_processes": "1", "executor": "threads"}

    def started(node: int, *arguments: str) -> subprocess.Popen:
        environment = runs.environment("joined", training_node=str(node), **nodes)
        log = open(runs.folder / f"node-{node}.log", "w")
        command = [sys.executable, "-c", RUN, *arguments]
        return subprocess.Popen(command, env=environment, cwd=runs.folder, stdout=log, stderr=log)

    first = started(0, "run", path)
    found = []
    while first.poll() is None and not found:
        found = list(runs.home("joined").glob("stages/model-*/run.json"))
        time.sleep(0.2)
    assert found, (runs.folder / "node-0.log").read_text()
    second = started(1, "train", "join", os.fspath(found[0]))
    codes = first.wait(), second.wait()
    said = [(runs.folder / f"node-{node}.log").read_text() for node in (0, 1)]
    assert codes == (0, 0), "\n".join(said)
    (folder,) = (path for name, path in runs.stages("joined").items() if name.startswith("model-"))
    assert files.read_json(str(folder / "result.json"))["steps"] == 12
    assert (folder / "training-1.log").exists()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_tasks_of_a_real_slurm_train_one_model(runs, recipe, tmp_path):
    """The script that ships, with two tasks on one node; the second finds what is trained by the recipe."""
    if lacking := slurm_server.missing():
        pytest.skip(f"this machine lacks {lacking}")
    fewer = recipe | {"steps": recipe["steps"][:1], "name": "slurm"}
    runs.run("slurm", ("tokens", fewer), executor="threads")
    path = str(runs.write(fewer))
    environment = runs.environment("slurm", training_processes="1", training_interface="lo")
    log = tmp_path / "log"
    script = os.path.abspath("docker/slurm/training.sbatch")
    one_node = ["--nodes=1", "--ntasks-per-node=2", "--gpus-per-node=0", "--cpus-per-task=1", f"--output={log}"]
    (tmp_path / "slurm").mkdir()
    with slurm_server.serve(tmp_path / "slurm") as slurm:
        environment |= slurm
        environment["PATH"] = f"{os.path.dirname(sys.executable)}:{environment['PATH']}"
        assert shutil.which("gristmill", path=environment["PATH"])
        done = subprocess.run(["sbatch", "--wait", *one_node, script, path], env=environment, cwd=tmp_path)
    assert done.returncode == 0, log.read_text()
    (folder,) = (path for name, path in runs.stages("slurm").items() if name.startswith("model-"))
    assert files.read_json(str(folder / "result.json"))["steps"] == 12
    assert (folder / "training-1.log").exists()


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_machines_share_an_object_store_and_nothing_else(runs, recipe, s3, tmp_path):
    """Each has a local folder of its own; the second joins by the recipe, then by the address that the first says. A
    run that is stopped goes on where the second has lost its folder, to the weights of two processes on one."""
    fewer = recipe | {"steps": recipe["steps"][:1], "training": recipe["training"] | {"steps": 40, "log_every": 1}}
    path = str(runs.write(fewer))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    nodes = {"training_nodes": "2", "training_rendezvous": address, "training_processes": "1"}

    def started(node: int, *arguments: str, **settings: str) -> tuple[subprocess.Popen, Path]:
        given = nodes | {"training_node": str(node), "local": str(tmp_path / f"local-{node}")} | settings
        environment = runs.environment("", **given, executor="serial") | {"GRISTMILL_HOME": HOME}
        log = tmp_path / f"node-{node}.log"
        command = [sys.executable, "-u", "-c", RUN, *arguments]
        with open(log, "w") as output:
            return subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=output, stderr=output), log

    alone = {"local": str(tmp_path / "alone"), "training_processes": "2", "training_nodes": "1"}
    first, log = started(0, "run", path, **alone)
    assert first.wait() == 0, log.read_text()
    (folder,) = (f"{HOME}/stages/{name}" for name in files.names(f"{HOME}/stages") if name.startswith("model-"))
    compared = [f"{folder}/{name}" for name in ("model.safetensors", "metrics.jsonl")]
    expected = [files.checksum(path) for path in compared]
    files.remove(folder)

    second, said = started(1, "train", "join", path, "--wait", "300")
    first, log = started(0, "run", path)
    until(lambda: re.search(r"step +(1[3-9]|[2-9]\d)/40", log.read_text()), first, log)
    first.send_signal(signal.SIGTERM)
    codes = first.wait(300), second.wait(300)
    assert codes[0] != 0 and codes[1] == STOPPED, log.read_text() + said.read_text()
    assert not files.exists(f"{folder}/join.json")

    shutil.rmtree(tmp_path / "local-1")
    first, log = started(0, "run", path)
    found = until(lambda: re.search(r"run there: gristmill train join (\S+)", log.read_text()), first, log)
    second, said = started(1, "train", "join", found[1])
    assert (first.wait(600), second.wait(600)) == (0, 0), log.read_text() + said.read_text()
    assert "resuming from" in log.read_text()
    assert [files.checksum(path) for path in compared] == expected
    left = [path for path in (tmp_path / "local-1").rglob("*") if path.is_file() and "/model-" in str(path)]
    assert sorted(path.name for path in left) == ["run.json", "training-1.log"]
