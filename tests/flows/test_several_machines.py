"""Two machines that train one model, as the documentation has it: `run` on one, `join` on the other."""

import os
import shutil
import socket
import subprocess
import sys
import time

import pytest

from gristmill.storage import files
from tests import slurm_server

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
    second = started(1, "join", os.fspath(found[0]))
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
