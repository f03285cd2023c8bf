"""Two machines that train one model, as the documentation has it: `run` on one, `join` on the other."""

import os
import socket
import subprocess
import sys
import time

import pytest

from storage import files

RUN = "import sys; from flows.cli import app; app(sys.argv[1:])"


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
