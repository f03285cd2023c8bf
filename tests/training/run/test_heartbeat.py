"""Ranks that make no progress: found in time and not before, described, and started again as often as is allowed."""

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.storage import checked_json
from gristmill.training.run import restarts
from gristmill.training.run.heartbeat import HEARTBEATS, Beat, Hang, Limits, RankState, Watch
from gristmill.training.run.launch import FAILURE, HUNG, launch
from gristmill.training.run.restarts import Attempts, Restarts

ROOT = Path(__file__).resolve().parents[3]
OBEYS = """
import os, sys, threading
from gristmill.training.run import heartbeat
heartbeat.begin()
def innermost():
    for line in sys.stdin:
        phase, step = line.split()
        heartbeat.beat(phase, int(step))
        print("done", flush=True)
print("ready", flush=True)
innermost()
"""


class Rank:
    """A process that reports what it is told to."""

    def __init__(self, folder: Path, number: int) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), HEARTBEATS: str(folder), "RANK": str(number)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", OBEYS], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.process.stdout.readline()

    def beat(self, phase: str, step: int) -> None:
        self.process.stdin.write(f"{phase} {step}\n")
        self.process.stdin.flush()
        self.process.stdout.readline()


@pytest.fixture
def ranks(tmp_path):
    folder = tmp_path / "beats"
    folder.mkdir()
    made = [Rank(folder, number) for number in range(2)]
    yield folder, made
    for rank in made:
        rank.process.kill()
        rank.process.communicate()


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def waits(watch: Watch, clock: Clock, seconds: float) -> bool:
    """Whether a hang is found within so many seconds, of which the watch looks at each."""
    for _ in range(int(seconds)):
        clock.now += 1
        if watch.look():
            return True
    return False


def test_each_phase_has_its_time(ranks, tmp_path):
    folder, (first, second) = ranks
    clock = Clock()

    def new() -> Watch:
        watch = Watch(folder, 2, Limits(20, 200), tmp_path / f"hang-{clock.now}", os.getpid(), clock=clock)
        assert watch.look() is None
        return watch

    watch = new()
    assert not waits(watch, clock, 199) and waits(watch, clock, 3), "the start is slow"
    for phase in ("evaluation", "checkpoint", "rollback", "end"):
        watch = new()
        for rank in (first, second):
            rank.beat(phase, 7)
        assert not waits(watch, clock, 190)
        for rank in (first, second):
            rank.beat("step", 8)
        assert not waits(watch, clock, 19) and waits(watch, clock, 3), phase
    watch = new()
    for step in range(9, 12):  # steps of 15 seconds, of which one may take 60
        for rank in (first, second):
            rank.beat("step", step)
        assert not waits(watch, clock, 15)
    assert not waits(watch, clock, 40) and waits(watch, clock, 10)
    watch = new()
    first.beat("step", 13)
    second.beat("step", 13)
    assert not waits(watch, clock, 5)
    clock.now += 10_000  # the machine, or this process with it, was suspended
    assert not watch.look()
    first.beat("step", 14)
    assert not waits(watch, clock, 9) and waits(watch, clock, 3), "the second rank is as it was"


def test_a_stopped_process_is_found_in_a_slow_phase_too(ranks, tmp_path):
    folder, (first, second) = ranks
    clock = Clock()
    watch = Watch(folder, 2, Limits(20, 200), tmp_path / "hang", os.getpid(), clock=clock)
    watch.look()
    for rank in (first, second):
        rank.beat("checkpoint", 40)
    assert not waits(watch, clock, 100)
    process = psutil.Process(second.process.pid)
    process.suspend()
    while process.status() != psutil.STATUS_STOPPED:
        time.sleep(0.01)
    assert not waits(watch, clock, 19)
    hang = None
    while hang is None:
        clock.now += 1
        hang = watch.look()
    assert clock.now <= 1000 + 100 + 19 + 3
    assert [rank.rank for rank in hang.suspects()] == [1]
    assert "rank 1" in str(hang) and "checkpoint, step 40" in str(hang) and "stopped by a signal" in str(hang)
    report = {path.name: path.read_text() for path in (tmp_path / "hang").iterdir()}
    assert report.keys() >= {"ranks.txt", "rank-0-stacks.txt"} and "rank-1-stacks.txt" not in report
    assert "in innermost" in report["rank-0-stacks.txt"]
    assert f"process {second.process.pid}" in report["ranks.txt"]


def test_the_rank_that_is_late_is_named():
    def state(number: int, newest: int, place: str = "torch.distributed.all_reduce") -> RankState:
        entries = [
            {"collective_seq_id": i, "process_group": ["0", "default_pg"], "profiling_name": "nccl:all_reduce"}
            for i in range(newest + 1)
        ]
        beat = Beat(process=100 + number, count=9, phase="step", step=7)
        return RankState(number, beat, 121.0, psutil.STATUS_SLEEPING, tuple(entries), place)

    def suspected(*ranks: RankState, machines: int = 1) -> tuple[list[int], str]:
        hang = Hang("host", ranks, Path("hang"), machines)
        return [rank.rank for rank in hang.suspects()], str(hang)

    assert suspected(state(0, 5), state(1, 4), state(2, 5))[0] == [1]
    assert suspected(state(0, 5), state(1, 5, ""))[0] == [1], "it does not answer"
    assert suspected(state(0, 5))[0] == [0]
    found, said = suspected(state(0, 5), state(1, 5), machines=2)
    assert not found and "all its ranks wait, perhaps for another machine, such as rank 0 (process 100)" in said
    assert said.endswith("last collective nccl:all_reduce 5 of default_pg")


def test_ranks_that_never_begin_are_found(tmp_path):
    clock = Clock()
    watch = Watch(tmp_path, 2, Limits(20, 200), tmp_path / "hang", os.getpid(), clock=clock)
    watch.look()
    assert not waits(watch, clock, 199) and waits(watch, clock, 3)
    assert "2 of its ranks have not begun" in (tmp_path / "hang" / "ranks.txt").read_text()


@pytest.mark.extended
@pytest.mark.parametrize("how", ["stopped", "sleeping", "spinning"])
def test_a_rank_that_hangs_is_ended_and_started_again(how, tmp_path):
    def started(name: str, times: int) -> tuple[int, Path, list[str]]:
        out, lines = tmp_path / name, []
        checked_json.write(str(out / "run.json"), {"out": str(out), "how": how, "times": times})
        arguments = {"module": "tests.training.run.stuck_rank", "restarts": 1, "limits": Limits(2, 120)}
        return launch(out / "run.json", 1, out / "log.txt", on_line=lines.append, **arguments), out, lines

    code, out, lines = started("once", 1)
    assert code == 0 and not (out / FAILURE).exists()
    (line,) = [line for line in lines if "hangs" in line]
    place = {"stopped": "stopped by a signal", "sleeping": "<module>", "spinning": "<module>"}[how]
    assert "rank 0" in line and "step 3" in line and place in line and "restart 1 of 1 within an hour" in line
    assert (out / "hang-0-1" / "ranks.txt").exists()
    assert len(list((out / "attempts").iterdir())) == 2

    code, out, lines = started("always", 9)
    assert code == HUNG and len(list((out / "attempts").iterdir())) == 2
    assert "1 restarts within an hour are spent" in (out / FAILURE).read_text()
    assert {path.name for path in out.glob("hang-*")} == {"hang-0-1", "hang-0-2"}


@given(st.lists(st.floats(0, 7200), min_size=1, max_size=30), st.integers(0, 4))
def test_restarts_are_counted_by_the_hour(gaps, most):
    now = list(itertools.accumulate(gaps))
    times = iter(now)
    budget, made = Restarts(most, lambda: next(times)), []
    for moment in now:
        within = [each for each in made if moment - each < restarts.HOUR]
        expected = len(within) + 1 if len(within) < most else 0
        assert budget.take() == expected
        made += [moment] * bool(expected)


def test_machines_begin_the_same_attempt_and_none_that_has_ended(tmp_path, monkeypatch):
    class Asked(Exception):
        pass

    def ask() -> None:
        raise Asked

    monkeypatch.setattr(restarts, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(restarts.time, "sleep", lambda seconds: None)
    for store in (None, f"file://{tmp_path}/home/model-1/checkpoints"):
        zero, one = (Attempts(tmp_path, store, node) for node in (0, 1))
        with pytest.raises(Asked):
            one.begin(ask)  # it waits for node 0
        assert zero.begin(ask) and one.begin(ask) and zero.name == one.name and not one.is_over()
        with pytest.raises(Asked):
            one.begin(ask)  # its ranks have ended first
        assert zero.begin(ask) and one.is_over()
        assert one.begin(ask) and zero.name == one.name
        restarted = Attempts(tmp_path, store, 1)
        assert restarted.begin(ask) and restarted.name == zero.name
        zero.end()
        monkeypatch.setattr(restarts, "ENDED_SECONDS", -1.0)
        assert not one.begin(ask), "node 0 has ended the run"
        monkeypatch.setattr(restarts, "MEETING_SECONDS", -1.0)
        with pytest.raises(TimeoutError, match="node 0 did not start the run"):
            Attempts(tmp_path, store, 1).begin(ask)
        monkeypatch.undo()
        monkeypatch.setattr(restarts, "LOOK_SECONDS", 0.0)
        monkeypatch.setattr(restarts.time, "sleep", lambda seconds: None)
