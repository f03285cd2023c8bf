"""How far runs are, read from homes as a run and its workers leave them."""

import time
from dataclasses import replace

import orjson
import pytest
from typer.testing import CliRunner

from gristmill.flows.cli.app import app
from gristmill.flows.cli.looking import progress_tables
from gristmill.flows.machine.home_progress import Reader, StageProgress
from gristmill.flows.machine.runs import RunRecorder
from gristmill.flows.reports.tables import Table
from gristmill.storage import files, leftovers
from gristmill.tasks.engine import lease as leases
from gristmill.tasks.engine.lease import Maker, PhaseProgress, maker
from gristmill.tasks.engine.slurm.meeting import Meeting, SchedulerPlace, TaskState

MAKER = Maker("node0", 7, "2026-11-29 22:00:00", 12, time=1120.0, progress=None, has_ended=False)
JOBS = PhaseProgress("pairs", jobs=40, done=16, found=6, bytes=0, read=0, found_read=0, began=1000.0)
BYTES = replace(JOBS, bytes=9_000_000, read=4_000_000, found_read=1_000_000)


def stage(progress: PhaseProgress | None, **changes: float) -> StageProgress:
    return StageProgress("minhash-ab", "in progress", "", replace(MAKER, progress=progress, **changes))


@pytest.mark.parametrize(
    ("progress", "rate", "left", "basis"),
    [
        # 10 jobs in 120 s, so 24 more take 288 s
        (JOBS, "5.0 jobs/min", 288.0, "10 jobs in 2:00; 6 jobs done earlier"),
        # 3 MB in 120 s, so 5 MB more take 200 s
        (BYTES, "5.0 jobs/min", 200.0, "3.0 MB in 2:00; 6 jobs done earlier"),
        (replace(JOBS, done=6), "", None, "0 jobs in 2:00; 6 jobs done earlier"),
        (None, "", None, ""),
    ],
)
def test_rates_and_estimates_are_of_the_process_that_works_now(progress, rate, left, basis):
    found = stage(progress)
    assert (found.rate, found.seconds_left, found.basis) == (rate, left, basis)
    assert found.jobs == ("" if progress is None else f"{progress.done} / 40 pairs")


def test_a_clock_that_was_set_back_gives_no_estimate():
    assert stage(JOBS, time=900.0).seconds_left is None and stage(JOBS, time=900.0).rate == ""


def test_a_maker_tells_how_far_it_is_with_its_heartbeats(tmp_path, monkeypatch):
    monkeypatch.setattr(leases, "HEARTBEAT_SECONDS", 0.01)
    folder = str(tmp_path / "stages" / "minhash-ab")
    assert maker(folder) is None
    with leases.lease(folder, lambda line: None) as owned:
        assert maker(folder).progress is None
        owned.note(JOBS)
        while (found := maker(folder)).progress is None:
            time.sleep(0.01)
        assert found.progress == JOBS and not found.has_ended and found.beats > 0
    assert maker(folder) is None


@pytest.fixture
def home(tmp_path):
    """A run that has a stage which no process makes any more, and its workers."""
    home = str(tmp_path / "home")
    RunRecorder(home, "small", flow="tokens").add("documents-ab", "minhash-cd")
    owner = leftovers.this_process().split("-")
    ended = f"{owner[0]}-1-{'0' * 16}"
    content = {"owner": ended, "token": "t", "process": 1, "host": "node0", "since": "", "beats": 3}
    files.write_bytes(files.join(home, "stages/documents-ab/lease/000001.json"), orjson.dumps(content))
    meeting = Meeting(f"{home}/slurm/job-7")
    meeting.open()
    now = time.time()
    working = TaskState(0, "8_0", "node1", "working", 4, 0, 1, now, now)
    meeting.report(working)
    meeting.report(replace(working, task=1, job="8_1", seen=now - 600, restarts=2))
    meeting.report(replace(working, task=2, job="8_2", seen=now - 600, state="gave up"))
    for number in range(12):
        meeting.add_event(f"event {number}")
    return home, meeting


def test_a_home_tells_of_its_runs_and_their_workers(home):
    address, meeting = home
    reader = Reader(address, f"{address}/slurm")
    progress = reader.read()
    [run] = progress.runs
    assert [(each.stage, each.state) for each in run.stages] == [
        ("documents-ab", "stopped"),
        ("minhash-cd", "stopped"),
    ]
    parts = progress_tables(progress, time.time())
    lines = [part for part in parts if isinstance(part, str)]
    assert "SLURM job-7: no scheduler; workers wait for the next start of the run" in lines
    assert [line.split("UTC  ")[1] for line in lines if "event" in line] == [f"event {n}" for n in range(4, 12)]
    tasks = [part for part in parts if isinstance(part, Table)][1]
    assert [row[:6] for row in tasks.texts()[1]] == [
        ["0", "8_0", "node1", "working", "4", "0"],
        ["1", "8_1", "node1", "lost", "4", "2"],
        ["2", "8_2", "node1", "gave up", "4", "0"],
    ]
    meeting.publish(SchedulerPlace("x", "tls://192.0.2.1:1", "node5", 0.0, 2), "", "")
    assert "SLURM job-7: last started on node5 at 1970-01-01 00:00:00 UTC, restart 2" in progress_tables(
        reader.read(), time.time()
    )
    meeting.end()
    assert reader.read().slurm == ()


def test_the_command_prints_it_once_where_no_terminal_is(home, monkeypatch):
    monkeypatch.setenv("GRISTMILL_HOME", home[0])
    shown = CliRunner().invoke(app, ["home", "status", "--watch"])
    assert shown.exit_code == 0 and "minhash-cd" in shown.output and "event 11" in shown.output
    as_json = CliRunner().invoke(app, ["home", "status", "--watch", "--json"])
    assert [each["name"] for each in orjson.loads(as_json.output)["slurm"]] == ["job-7"]
    monkeypatch.setenv("GRISTMILL_HOME", f"{home[0]}-other")
    assert CliRunner().invoke(app, ["home", "status", "--watch"]).output == "no run is in progress\n"
