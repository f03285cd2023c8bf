"""Two runs on one home that ask the same at once: each question is paid for once, also when one of them is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from gristmill.tasks.engine.lease import lease
from gristmill.tasks.language_model.annotate import Annotate
from tests.language_model.asking import limits, made, recipe, stored, texts
from tests.language_model.serving import ROOT, Served, serving

# Waits for a line after it has imported all it needs, so that two runs begin at once.
PROGRAM = """
import sys, yaml
from pathlib import Path
from tests.language_model.asking import limits, made
home, path, url = sys.argv[1:]
with limits(url, concurrency=4):
    print("ready", flush=True)
    sys.stdin.readline()
    stage = made(Path(home), yaml.safe_load(Path(path).read_text()))["annotate"]
    print(stage.folder, flush=True)
"""


def recipe_file(folder: Path, name: str, asked: list[str], **step) -> Path:
    documents = [{"id": f"{name}{number}", "text": text} for number, text in enumerate(asked)]
    (folder / name).mkdir()
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({**recipe(folder / name, {name: documents}, **step), "name": name}))
    return path


def begun(home: Path, path: Path, server: Served) -> subprocess.Popen:
    """A process that is ready to run a recipe."""
    command = [sys.executable, "-c", PROGRAM, str(home), str(path), server.base_url]
    log = path.with_suffix(".log").open("w")
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
    )
    assert process.stdout.readline() == "ready\n", path.with_suffix(".log").read_text()
    return process


def begin(process: subprocess.Popen) -> None:
    process.stdin.write("\n")
    process.stdin.flush()


def ended(process: subprocess.Popen) -> str:
    """The folder of the stage, when the run is finished."""
    folder = process.stdout.readline().strip()
    assert process.wait() == 0
    return folder


@pytest.fixture
def runs(tmp_path):
    """Two recipes whose texts are partly the same, and a third with another prompt."""
    asked = texts(60)
    other = {"user": "Is it good? {{ document }}", "answer": {"good": {"type": "boolean"}}}
    return [
        recipe_file(tmp_path, "first", asked[:50]),
        recipe_file(tmp_path, "second", asked[10:]),
        recipe_file(tmp_path, "third", asked, prompt=other),
    ]


@pytest.mark.extended
def test_two_runs_pay_once(tmp_path, runs):
    home = tmp_path / "home"
    with serving(latency=0.1) as server:
        processes = [begun(home, path, server) for path in runs[:2]]
        for process in processes:
            begin(process)
        assert all(ended(process) for process in processes)
        assert server.bill()["requests"] == server.bill()["distinct"] == 60
        assert server.stats()["max_in_flight"] <= 4, "one waits for the other, so the limit applies to both"
    assert len([path for path in stored(home)]) == 60
    assert not [*(home / "answers" / "asking").rglob("*.json")], "no lease is left"


@pytest.mark.extended
def test_a_run_that_is_killed_is_followed_by_the_other(tmp_path, runs):
    home = tmp_path / "home"
    with serving(latency=0.1, idempotent=True) as server:
        first, second = (begun(home, path, server) for path in runs[:2])
        begin(first)
        while server.stats()["requests"] < 8:
            time.sleep(0.01)
        begin(second)
        while server.stats()["requests"] < 16:
            time.sleep(0.01)
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
        assert ended(second)
        bill = server.bill()
        # of the first run's own documents some were asked about; the server stores what was in flight
        assert bill["requests"] == bill["distinct"] <= 60
        first = begun(home, runs[0], server)
        begin(first)
        assert ended(first)
        assert server.bill()["requests"] == server.bill()["distinct"] == 60


def test_another_prompt_does_not_wait(tmp_path, runs):
    home = tmp_path / "home"
    step = Annotate.model_validate(yaml.safe_load(runs[0].read_text())["steps"][1])
    template = step.template_of(step.full_prompt, structured=True)
    with serving(latency=0.0) as server, limits(server):
        with lease(str(home / "answers" / "asking" / template.digest[:16]), print):
            made(home, yaml.safe_load(runs[2].read_text()))
        assert server.bill()["requests"] == 60
