"""Runs on a real SLURM of several nodes: the driver is requeued and killed, tasks of its workers vanish again and
again, and time limits come. Each run ends with the bytes of a serial run."""

import contextlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from gristmill.tasks.engine.slurm.meeting import Meeting, meetings
from tests import slurm_server
from tests.faults.test_random_kills import contents
from tests.planted.text import pydoc_paragraphs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

DRIVER = Path(__file__).resolve().parents[2] / "docker" / "slurm" / "driver.sbatch"
TASKS = 4
SHARDS = 24
ALIVE = ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING")  # states of a job
# A step that keeps all documents, and whose shards take a while.
SLOW = """
import os, time
from typing import ClassVar, Literal
import pyarrow as pa
from gristmill.tasks.documents.step import DocumentStep, Signal


class Slow(DocumentStep):
    step: Literal["slow"] = "slow"
    signals: ClassVar = (Signal("slow_hits", "int64", "waits", "slow_step.py", description="nothing"),)
    signal_fields: ClassVar = ()

    def decisions(self):
        return []


def measure(step, documents):
    time.sleep(float(os.environ.get("GRISTMILL_TEST_PAUSE", "0")) * len(documents))
    return {"slow_hits": pa.array([0] * len(documents), pa.int64())}
"""


class Place(NamedTuple):
    folder: Path
    recipe: Path
    bytes: dict[str, str]


class Job:
    """A run that SLURM has been given, and its workers."""

    def __init__(self, home: Path, slurm: dict[str, str], environment: dict[str, str], recipe: Path, *options: str):
        self.home, self.environment = home, environment | slurm
        self.log = home.with_suffix(".log")
        command = ["sbatch", "--parsable", "--cpus-per-task=1", "--mem=3G", f"--output={self.log}", *options]
        self.id = self.call(*command, str(DRIVER), str(recipe)).strip()

    def call(self, *command: str) -> str:
        done = subprocess.run(command, env=self.environment, cwd=self.home.parent, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def state(self) -> str:
        return self.call("squeue", "--noheader", "--states=all", f"--jobs={self.id}", "--format=%T").strip()

    @property
    def meeting(self) -> Meeting:
        return Meeting(self.home / "slurm" / f"job-{self.id}")

    def shards(self) -> int:
        """The jobs that are done in all stages."""
        return len(list(self.home.glob("stages/*/done/*.json")))

    def until(self, what: Callable[[], bool]) -> None:
        """Wait for something while the run lasts. The timeout of the test ends it."""
        while not what():
            assert self.state in ALIVE, self.text()
            slurm_server.start_requeued(self.environment)
            time.sleep(0.5)

    def end(self) -> str:
        """Wait until the driver's job has ended; its state."""
        while (state := self.state) in ALIVE:
            slurm_server.start_requeued(self.environment)
            time.sleep(1)
        return state

    def text(self) -> str:
        logs = [self.log, *sorted(self.meeting.workers.glob("*.log"))] if self.log.exists() else []
        events = "\n".join(event.text for event in self.meeting.events())
        return "\n".join([*(f"== {path}\n{path.read_text()[-4000:]}" for path in logs), events])

    def processes(self, task: int | None = None) -> list[psutil.Process]:
        """The processes of a task of the array; None: of the driver."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                variables = process.environ()
                of_task = variables.get("SLURM_ARRAY_TASK_ID") == (None if task is None else str(task))
                if variables.get("GRISTMILL_HOME") == str(self.home) and "SLURM_JOB_ID" in variables and of_task:
                    found.append(process)
        return found


@pytest.fixture(scope="module")
def place(runs) -> Place:
    folder = runs.folder / "slurm-runs"
    folder.mkdir()
    (folder / "slow_step.py").write_text(SLOW)
    draw, prose = random.Random(3), pydoc_paragraphs()
    for shard in range(SHARDS):
        texts = ["\n".join(draw.sample(prose, 6)) for _ in range(12)]
        lines = (json.dumps({"text": text, "url": f"https://a.example/{shard}/{n}"}) for n, text in enumerate(texts))
        (folder / f"web-{shard:03d}.jsonl").write_text("\n".join(lines) + "\n")
    recipe = {
        "name": "slurm",
        "sources": [{"name": "web", "jsonl": [f"{folder}/web-*.jsonl"], "shard_bytes": 1, "url_column": "url"}],
        "steps": [{"step": "extract"}, {"step": "slow_step:Slow"}, {"step": "minhash"}],
        "tokenizer": {"vocab_size": 400, "sample_bytes": 60_000},
        "mixture": {"weights": {"web": 1.0}, "heldout_fraction": 0.05},
        "model": {"dim": 32, "layers": 1, "heads": 2, "seq_len": 64},
    }
    path = runs.write(recipe)
    command = [sys.executable, "-c", "import sys, gristmill; gristmill.tokens(sys.argv[1])", str(path)]
    subprocess.run(command, env=environment(runs, "reference", folder), cwd=folder, check=True)
    return Place(folder, path, contents(runs.stages("reference")))


def environment(runs, home: str, folder: Path, **settings: str) -> dict[str, str]:
    given = runs.environment(home, **{"executor": "serial", "steps": "slow_step"} | settings)
    return given | {"PYTHONPATH": f"{given['PYTHONPATH']}{os.pathsep}{folder}"}


@pytest.fixture(scope="module")
def slurm(tmp_path_factory) -> Iterator[dict[str, str]]:
    if lacking := slurm_server.missing():
        pytest.skip(f"this machine lacks {lacking}")
    with slurm_server.serve(tmp_path_factory.mktemp("slurm"), nodes=TASKS + 1, cpus=1) as variables:
        yield variables


@pytest.fixture
def submit(runs, place, slurm, tmp_path) -> Iterator[Callable[..., Job]]:
    """Submits a run in a home of its own. `pause`: seconds per document; `worker`: options of the array."""
    jobs: list[Job] = []

    def start(name: str, *options: str, pause: float, worker: dict[str, str] | None = None) -> Job:
        script = slurm_server.worker_script(tmp_path, **worker or {})
        settings = {"cluster": str(script), "workers": str(TASKS), "slurm_interface": "lo", "test_pause": str(pause)}
        jobs.append(
            Job(runs.home(name), slurm, environment(runs, name, place.folder, **settings), place.recipe, *options)
        )
        return jobs[-1]

    yield start
    for job in jobs:
        job.call("scancel", "--me", "--full", "--signal=KILL")
        job.call("scancel", "--me")


def check(job: Job, runs, place: Place) -> None:
    """The run has ended well, with the bytes of the reference, and nothing of it is left."""
    assert job.end() == "COMPLETED", job.text()
    assert contents(runs.stages(job.home.name)) == place.bytes
    assert job.meeting.is_ended() and not list(job.meeting.folder.glob("tls-*"))
    while job.call("squeue", "--noheader", "--me"):  # the tasks of the array end by themselves
        time.sleep(1)
    assert {state.state for state in job.meeting.tasks()} <= {"ended", "stopped", "working", "joining", "waiting"}


def test_a_driver_that_is_requeued_and_killed_goes_on_with_the_same_workers(runs, place, submit):
    job = submit("driver", pause=0.2)
    job.until(lambda: job.shards() >= 4)
    first = job.meeting.scheduler()
    assert first is not None and job.meeting.folder.stat().st_mode & 0o77 == 0
    job.call("scontrol", "requeue", job.id)
    job.until(lambda: (place := job.meeting.scheduler()) is not None and place.id != first.id)
    second = job.meeting.scheduler()
    before = job.shards()
    job.until(lambda: job.shards() >= before + 4)
    [run] = (each for each in job.processes() if "--tokens-only" in each.cmdline() and "bash" not in each.name())
    run.kill()
    job.until(lambda: (place := job.meeting.scheduler()) is not None and place.id not in (first.id, second.id))
    check(job, runs, place)
    states = job.meeting.tasks()
    assert len(states) == TASKS and all(state.restarts == 0 for state in states)
    assert max(state.joins for state in states) >= 3, "a task has joined each scheduler"
    assert "run ended" in [event.text for event in job.meeting.events()]
    for task in range(TASKS):
        assert "working" in (job.meeting.workers / f"{task}.log").read_text()


def test_half_of_the_tasks_vanish_again_and_again(runs, place, submit):
    """Without a signal that they could answer; SLURM starts them again."""
    job = submit("preempted", pause=0.15)
    draw, rounds = random.Random(11), 0
    job.until(lambda: job.shards() >= 2)
    while job.state == "RUNNING" and not job.meeting.is_ended():
        working = [state for state in job.meeting.tasks() if state.state == "working"]
        for state in draw.sample(working, len(working) // 2):
            for process in job.processes(task=state.task):  # also the script, so that nobody can say goodbye
                with contextlib.suppress(psutil.Error):
                    process.kill()
            subprocess.run(["scontrol", "requeue", state.job], env=job.environment, capture_output=True)
        rounds += bool(working)
        goal = job.shards() + 3  # as a minute on a cluster whose shards take minutes
        job.until(lambda goal=goal: job.meeting.is_ended() or job.shards() >= goal)
    check(job, runs, place)
    assert rounds >= 4
    assert sum(state.restarts for state in job.meeting.tasks()) >= 4
    assert sum(event.text.endswith("left") for event in job.meeting.events()) >= 4


def test_time_limits_of_driver_and_workers(runs, place, submit):
    """SLURM counts limits in minutes, and sends the signal up to a minute earlier than it is asked to. So the four
    workers wait 173 s in all, longer than the driver's first turn can take."""
    options = ("--time=3", "--signal=B:USR1@60")
    job = submit("limits", *options, pause=2.4, worker={"time": "2", "signal": "B:USR1@30"})
    check(job, runs, place)
    events = [event.text for event in job.meeting.events()]
    assert any("restart" in text for text in events), events
    assert "back to the queue" in job.log.read_text()
    assert sum(state.restarts for state in job.meeting.tasks()) >= 2
    assert [each.folder for each in meetings(str(job.home / "slurm"))] == [job.meeting.folder]
