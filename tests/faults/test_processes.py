"""However a run ends, by the real command: no process of it is left, and no record stays open."""

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from flows import databases
from flows.process_identity import has_ended, this_process
from tests.conftest import Runs

COMMAND = "import sys; from flows.cli import main; sys.argv = ['gristmill', 'run', sys.argv[1]]; main()"
SECONDS = 60.0


@pytest.fixture(scope="session")
def tiny(recipe) -> dict:
    """The smallest recipe that has a model."""
    return recipe | {"name": "tiny", "steps": [{"step": "extract"}], "mixture": {"heldout_fraction": 0.05}}


class Command:
    """`gristmill run`, and all processes that it has started."""

    def __init__(self, runs: Runs, home: str, recipe: dict, **settings: str) -> None:
        self.home = runs.home(home)
        self.log = runs.folder / f"{home}.log"
        self.process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, str(runs.write(recipe))],
            env=runs.environment(home, **settings),
            cwd=runs.folder,
            stdout=open(self.log, "a"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.children: dict[int, psutil.Process] = {}

    def look(self) -> None:
        try:
            for child in psutil.Process(self.process.pid).children(recursive=True):
                self.children[child.pid] = child
        except psutil.NoSuchProcess:
            pass

    def wait_for(self, pattern: str) -> None:
        """Until a file of the pattern is in the home."""
        while not next(self.home.glob(pattern), None):
            self.look()
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.01)
        self.look()

    def wait_for_children(self, count: int) -> None:
        while len(self.children) < count:
            self.look()
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.01)

    def end(self) -> int:
        """The exit code; all that the command started has ended soon after it."""
        while self.process.poll() is None:
            self.look()
            time.sleep(0.01)
        _, alive = psutil.wait_procs(list(self.children.values()), timeout=SECONDS)
        assert self.children and not alive, alive
        return self.process.returncode

    def query(self, database: str, sql: str) -> list[tuple]:
        with sqlite3.connect(self.home / database) as opened:
            return opened.execute(sql).fetchall()

    def states(self) -> set[str]:
        sql = "select state_type from flow_run union all select state_type from task_run"
        return {state for (state,) in self.query("prefect/prefect.db", sql)}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("when", ["prefect/server.log", "prefect/prefect.db", "stages/documents-*/done/*"])
def test_a_killed_run_leaves_no_process(runs, tiny, number, when):
    command = Command(runs, f"killed-{number}-{when.replace('/', '-').replace('*', '')}", tiny)
    command.wait_for(when)
    command.wait_for_children(1)
    command.process.send_signal(number)
    assert command.end() in (-number, 128 + number)


@pytest.mark.slow
def test_a_run_killed_at_its_end_leaves_no_process(runs, tiny):
    command = Command(runs, "killed-at-the-end", tiny)
    command.wait_for("stages/model-*/manifest.json")
    command.process.kill()
    assert command.end() == -signal.SIGKILL


def test_an_interrupted_run_is_cancelled(runs, tiny):
    """A Ctrl-C at a terminal goes to the whole group; files are private; the server listens on loopback alone."""
    command = Command(runs, "interrupted", tiny, executor="serial")
    command.wait_for("stages/documents-*/done/*")
    mine = [psutil.Process(command.process.pid), *command.children.values()]
    listening = {each.laddr.ip for one in mine for each in one.net_connections() if each.status == "LISTEN"}
    assert listening == {"127.0.0.1"}
    os.killpg(command.process.pid, signal.SIGINT)
    assert command.end() == 130
    log = command.log.read_text()
    assert "Traceback" not in log and log.splitlines()[-1].startswith("gristmill: stopped"), log
    assert command.states() <= {"CANCELLED", "COMPLETED"} and "CANCELLED" in command.states()
    private = [path for path in command.home.glob("prefect/*") if path.stat().st_mode & 0o077]
    assert not private and (command.home / "prefect").stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
def test_an_interrupted_training_has_one_checkpoint_and_is_killed_in_mlflow(runs, tiny):
    long = tiny | {"training": tiny["training"] | {"steps": 10_000, "checkpoint_every": 10_000, "eval_every": 10_000}}
    command = Command(runs, "training", long | {"mixture": {"heldout_fraction": 0.05, "max_epochs": 1000.0}})
    command.wait_for("stages/model-*/metrics.jsonl")
    os.killpg(command.process.pid, signal.SIGINT)
    assert command.end() == 130
    assert len(list(command.home.glob("stages/model-*/checkpoints/step-*"))) == 1
    assert command.query("mlflow.db", "select status from runs") == [("KILLED",)]
    assert command.states() == {"CANCELLED", "COMPLETED"}
    assert not (command.home / "mlflow.db").stat().st_mode & 0o077


@pytest.mark.slow
def test_the_next_run_ends_the_records_of_a_killed_one(runs, tiny):
    killed = Command(runs, "stale", tiny)
    killed.wait_for("stages/model-*/run.json")
    killed.process.kill()
    killed.end()
    assert "RUNNING" in killed.states()
    assert killed.query("mlflow.db", "select status from runs") == [("RUNNING",)]
    again = Command(runs, "stale", tiny | {"seed": tiny["seed"] + 1})
    assert again.end() == 0, again.log.read_text()
    assert again.states() == {"CRASHED", "COMPLETED"}
    assert sorted(again.query("mlflow.db", "select status from runs")) == [("FINISHED",), ("KILLED",)]


@pytest.mark.slow
def test_two_first_runs_at_once(runs, tiny):
    """One home for the databases; two for the stages."""
    local = str(runs.home("shared"))
    both = [Command(runs, name, tiny, local=local) for name in ("one", "two")]
    assert [command.end() for command in both] == [0, 0], [command.log.read_text() for command in both]
    for database, sql in (
        ("prefect/prefect.db", "select count(*) from flow_run where state_type = 'COMPLETED'"),
        ("mlflow.db", "select count(*) from runs where status = 'FINISHED'"),
    ):
        with sqlite3.connect(runs.home("shared") / database) as opened:
            expected = 8 if "prefect" in database else 1
            assert opened.execute(sql).fetchone()[0] >= expected


@pytest.mark.slow
@pytest.mark.parametrize("database", ["prefect/prefect.db", "mlflow.db"])
def test_killed_in_the_first_migration(runs, tiny, database):
    home = f"migration-{Path(database).stem}"
    killed = Command(runs, home, tiny)
    killed.wait_for(f"{database}.new")
    killed.process.kill()
    killed.end()
    assert not (killed.home / database).exists()
    again = Command(runs, home, tiny)
    assert again.end() == 0, again.log.read_text()
    assert not (again.home / f"{database}.new").exists()


def test_a_database_that_was_begun_is_begun_anew(tmp_path):
    path = tmp_path / "records.db"

    def fail(new: Path) -> None:
        with sqlite3.connect(new) as database:
            database.execute("create table half (x)")
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        databases.ensure_database(path, fail)
    assert not path.exists()

    def make(new: Path) -> None:
        with sqlite3.connect(new) as database:
            database.execute("pragma journal_mode=wal")
            database.execute("create table whole (x)")

    databases.ensure_database(path, make)
    databases.ensure_database(path, fail)
    with sqlite3.connect(path) as database:
        assert database.execute("select name from sqlite_master").fetchall() == [("whole",)]
    assert path.stat().st_mode & 0o777 == 0o600
    assert {each.name for each in tmp_path.iterdir()} <= {
        "records.db",
        "records.db-wal",
        "records.db-shm",
        "records.db.lock",
    }


def test_a_process_is_known_by_its_start():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    host, _, started = this_process().rsplit("/", 2)
    running = f"{host}/{child.pid}/{psutil.Process(child.pid).create_time():.0f}"
    assert host == socket.gethostname()
    assert not has_ended(this_process()) and not has_ended(running)
    assert has_ended(f"{host}/{child.pid}/{float(started) - 1000:.0f}"), "the number was given to another process"
    child.communicate()
    assert has_ended(running)
    assert not has_ended(running.replace(host, "another-machine"))
