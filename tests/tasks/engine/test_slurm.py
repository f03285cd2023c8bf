"""Runs on SLURM without SLURM: the meeting folder, lost workers, and a task that joins, loses and finds schedulers."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from distributed import KilledWorker

from gristmill.tasks.engine.slurm import cluster, worker
from gristmill.tasks.engine.slurm.cluster import SlurmPlace
from gristmill.tasks.engine.slurm.losses import MAX_CRASHES, MAX_LOSSES, MAX_WAITS, Losses
from gristmill.tasks.engine.slurm.meeting import Meeting, SchedulerPlace, meetings
from gristmill.tasks.engine.slurm.worker import Allocation, stagger_seconds, work

TASK = {"SLURM_ARRAY_JOB_ID": "20", "SLURM_ARRAY_TASK_ID": "3", "SLURM_CPUS_PER_TASK": "4"}
PLACE = SchedulerPlace("a1", "tls://192.0.2.1:4000", "node0", 1000.0, 0)


@pytest.fixture
def meeting(tmp_path) -> Meeting:
    made = Meeting(tmp_path / "slurm" / "job-7")
    made.open()
    return made


def modes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mode & 0o777 for path in folder.rglob("*")}


def test_a_key_is_there_while_its_scheduler_is(meeting):
    meeting.publish(PLACE, "certificate", "secret")
    assert meeting.scheduler() == PLACE and meeting.folder.stat().st_mode & 0o777 == 0o700
    found = modes(meeting.folder)
    assert found["tls-a1"] == 0o700 and found["tls-a1/key.pem"] == found["tls-a1/cert.pem"] == 0o600
    assert "secret" not in (meeting.folder / "scheduler.json").read_text()
    meeting.withdraw()
    assert meeting.scheduler() is None and not list(meeting.folder.glob("tls-*")) and not meeting.is_ended()
    meeting.publish(PLACE, "certificate", "secret")
    meeting.end()
    assert meeting.is_ended() and meeting.scheduler() is None and not list(meeting.folder.glob("tls-*"))
    meeting.open()  # a run with the same name begins
    assert not meeting.is_ended()


@pytest.mark.parametrize("mode", [0o750, 0o701])
def test_a_folder_that_others_may_enter_is_refused(meeting, mode):
    meeting.folder.chmod(mode)
    for call in (meeting.open, lambda: work(str(meeting.folder), Allocation.of_environment(TASK))):
        with pytest.raises(PermissionError, match="job-7 is not private"):
            call()


def test_events_and_the_newest_meeting(meeting, tmp_path):
    meeting.add_event("one")
    meeting.add_event("two")
    with open(meeting.folder / "events.jsonl", "ab") as file:
        file.write(b'{"time": 1, "te')  # being written
    assert [event.text for event in meeting.events()] == ["one", "two"]
    (tmp_path / "slurm" / "something").mkdir()
    assert [each.folder for each in meetings(str(tmp_path / "slurm"))] == [meeting.folder]
    assert meetings(str(tmp_path / "nowhere")) == []


@pytest.mark.parametrize(
    ("variables", "processes", "expected"),
    [
        ({}, 0, (3, "20_3", 4, "auto", 0)),
        ({"SLURM_MEM_PER_NODE": "8192", "SLURM_RESTART_COUNT": "2"}, 0, (3, "20_3", 4, 2 << 30, 2)),
        ({"SLURM_MEM_PER_CPU": "1024"}, 1, (3, "20_3", 1, 4 << 30, 0)),
    ],
)
def test_a_task_takes_what_slurm_has_given_it(variables, processes, expected):
    given = Allocation.of_environment(TASK | variables, processes)
    assert (given.task, given.job, given.processes, given.memory, given.restarts) == expected


def test_tasks_join_one_after_the_other():
    waits = [stagger_seconds(task, 32) for task in range(128)]
    assert waits[0] == 0 and waits == sorted(waits) and waits[-1] <= 60
    assert waits[2] - waits[1] >= 32 * 0.0035, "the scheduler has time for their connections"
    by_second = Counter(int(stagger_seconds(task, 32)) for task in range(6000))
    assert len(by_second) == 60 and max(by_second.values()) < 1.1 * 100, "as evenly if they are many"


def test_only_crashes_are_the_fault_of_a_job():
    """Workers that vanish are counted by their number, and crashes by the address of the process."""
    crashed: set[str] = set()
    losses = Losses(crashed, len)

    def lose(index: int, address: str) -> None:
        error = KilledWorker("key", SimpleNamespace(address=address), 0)
        lost = SimpleNamespace(key="key", status="error", exception=lambda: error)
        fine = SimpleNamespace(key="other", status="finished")
        begun = {"key": [(index, "job")], "other": [(9, "job")]}
        assert losses.split([lost, fine], begun) == ([fine], [(index, "job")]) and begun == {"other": [(9, "job")]}

    for number in range(MAX_LOSSES - 1):
        lose(0, f"vanished-{number}")
    assert losses.waits[0] == MAX_WAITS and losses.waits[1] == 0
    with pytest.raises(RuntimeError, match="workers died repeatedly"):
        lose(0, "vanished-last")
    for number in range(MAX_CRASHES - 1):
        lose(1, f"crashed-{number}")
        crashed.add(f"crashed-{number}")  # known when the process is there again
    lose(1, "vanished")
    crashed.add("crashed-last")
    with pytest.raises(RuntimeError, match="workers died repeatedly"):
        lose(1, "crashed-last")


def test_a_process_that_comes_back_under_its_name_has_crashed(meeting):
    """And a task that comes back has other names: it was taken away with all of its processes."""
    arrivals, workers = cluster._arrivals(meeting), {}
    scheduler = SimpleNamespace(workers=workers)
    for address, name in (("a", "3-0-s1"), ("b", "3-1-s1"), ("c", "3-0-s1"), ("d", "3-0-s2")):
        if address == "d":
            arrivals.remove_worker(scheduler, "b")
            arrivals.remove_worker(scheduler, "c")
        workers[address] = SimpleNamespace(name=name)
        arrivals.add_worker(scheduler, address)
        if address == "b":
            arrivals.remove_worker(scheduler, "a", stimulus_id="x")
    assert arrivals.crashed == {"a"}
    died = "task 3: a worker process died and was started again"
    assert [event.text for event in meeting.events()] == ["task 3 joined", died, "task 3 left", "task 3 joined"]


SLURM = """#!{python}
import json, os, sys
name = os.path.basename(sys.argv[0])
with open(os.environ["CALLS"], "a") as file:
    file.write(json.dumps([name, *sys.argv[1:], [n for n in os.environ if n.startswith("SLURM_")]]) + "\\n")
if name == "squeue":
    print(os.environ.get("QUEUED", ""))
if name == "sbatch":
    if os.environ.get("REFUSED"):
        sys.exit("sbatch: error: invalid partition specified: cpu")
    print("20")
"""


@pytest.fixture
def slurm(tmp_path, monkeypatch) -> Path:
    """Stand-ins for SLURM's commands; the file of their calls."""
    for name in ("squeue", "sbatch", "scancel"):
        (tmp_path / name).write_text(SLURM.format(python=sys.executable))
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "100")
    return tmp_path / "calls"


def calls(path: Path) -> dict[str, list]:
    return {call[0]: call[1:] for call in map(json.loads, path.read_text().splitlines())}


def test_a_requeued_run_submits_the_tasks_that_are_missing(slurm, tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    monkeypatch.setenv("QUEUED", "0\n3\nN/A")
    place = SlurmPlace(str(tmp_path / "slurm"), "lo")
    with pytest.raises(KeyboardInterrupt), cluster.started(5, "workers.sbatch", place):
        meeting = Meeting(tmp_path / "slurm" / "job-7")
        assert meeting.scheduler().restarts == 2 and meeting.scheduler().address.startswith("tls://127.0.0.1:")
        raise KeyboardInterrupt
    found = calls(slurm)
    array, folder = f"--output={meeting.workers}/%a.log", str(meeting.folder)
    expected = ["--parsable", "--array=1,2,4", "--job-name=gristmill-job-7", array, "workers.sbatch", folder]
    assert found["sbatch"] == [*expected, []], "and no variable of the run's own job"
    assert "scancel" not in found and not meeting.is_ended(), "workers wait for the next start"
    with cluster.started(5, "workers.sbatch", place):
        assert not meeting.is_ended()
    assert meeting.is_ended()
    assert calls(slurm)["scancel"] == ["--me", "--name=gristmill-job-7", "--state=PENDING", []]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_run_outside_of_a_job_ends_its_workers(slurm, tmp_path, monkeypatch, error):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    place = SlurmPlace(str(tmp_path / "slurm"), "lo")
    with pytest.raises(error), cluster.started(2, "workers.sbatch", place):
        raise error
    [meeting] = meetings(place.folder)
    assert meeting.is_ended() and meeting.folder.name.startswith("run-") and "scancel" in calls(slurm)


def test_an_array_that_slurm_refuses_ends_the_run_with_its_reason(slurm, tmp_path, monkeypatch):
    monkeypatch.setenv("REFUSED", "yes")
    with (
        pytest.raises(RuntimeError, match="sbatch failed: sbatch: error: invalid partition specified: cpu"),
        cluster.started(2, "workers.sbatch", SlurmPlace(str(tmp_path / "slurm"), "lo")),
    ):
        pass
    assert all(meeting.is_ended() for meeting in meetings(str(tmp_path / "slurm")))


def test_a_task_of_a_run_that_has_ended_does_nothing(meeting):
    meeting.end()
    assert work(str(meeting.folder), Allocation.of_environment(TASK)) == "ended"
    assert meeting.tasks() == []


def test_a_task_gives_up_after_its_wait(meeting, monkeypatch):
    """Also where the file names a scheduler that is gone."""
    monkeypatch.setattr(worker, "_POLL_SECONDS", 0.01)
    assert work(str(meeting.folder), Allocation.of_environment(TASK), 0.05) == "gave up"
    meeting.publish(SchedulerPlace("b2", "tls://127.0.0.1:1", "node0", 1000.0, 0), "certificate", "key")
    assert work(str(meeting.folder), Allocation.of_environment(TASK), 0.05) == "gave up"
    [state] = meeting.tasks()
    assert (state.task, state.job, state.state, state.joins) == (3, "20_3", "gave up", 0)


@contextmanager
def scheduler(meeting: Meeting, id_: str) -> Iterator[int]:
    """A scheduler in a process of its own, which the test kills."""
    script = (
        "import sys, time, uuid\n"
        "from distributed import LocalCluster, Security\n"
        "from gristmill.tasks.engine.slurm.meeting import Meeting, SchedulerPlace\n"
        "if __name__ == '__main__':\n"
        "    security = Security.temporary()\n"
        "    cluster = LocalCluster(n_workers=0, threads_per_worker=1, protocol='tls://', security=security,\n"
        "                           dashboard_address='127.0.0.1:0')\n"
        "    place = SchedulerPlace(sys.argv[2], cluster.scheduler_address, 'here', 0.0, 0)\n"
        "    pem = security.tls_scheduler_cert, security.tls_scheduler_key\n"
        "    Meeting(sys.argv[1]).publish(place, *pem)\n"
        "    time.sleep(1000)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(meeting.folder), id_])
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_task_joins_the_next_scheduler_and_ends_with_the_run(meeting):
    """The first scheduler is killed: its file and its key stay, as after the death of a node."""
    environment = os.environ | TASK | {"SLURM_CPUS_PER_TASK": "1", "SLURM_ARRAY_TASK_ID": "0"}
    command = "import sys; from gristmill.flows.cli import main; sys.argv[0] = 'gristmill'; main()"
    task = subprocess.Popen([sys.executable, "-c", command, "home", "worker", str(meeting.folder)], env=environment)

    def until(state: str, joins: int) -> None:
        while not any((each.state, each.joins) == (state, joins) for each in meeting.tasks()):
            assert task.poll() is None
            time.sleep(0.1)

    try:
        with scheduler(meeting, "one") as process:
            until("working", 1)
            os.kill(process, signal.SIGKILL)
            until("waiting", 1)
        with scheduler(meeting, "two"):
            until("working", 2)
            meeting.end()
            assert task.wait() == 0
        assert [each.state for each in meeting.tasks()] == ["ended"]
    finally:
        task.kill()
        task.wait()
