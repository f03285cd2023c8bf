"""However a run ends, by the real command: no process of it is left, and no record stays open."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from flows import databases
from tests.conftest import Runs

COMMAND = "import sys; from flows.cli import main; sys.argv = ['gristmill', 'run', sys.argv[1]]; main()"
SECONDS = 60.0


@pytest.fixture(scope="session")
def tiny(recipe) -> dict:
    """The smallest recipe that has a model."""
    return recipe | {
        "name": "tiny",
        "sources": recipe["sources"][:1],
        "steps": [{"step": "extract"}],
        "mixture": {"weights": {"web": 1.0}, "heldout_fraction": 0.05},
    }


@pytest.fixture
def command(runs) -> Iterator[Callable[..., "Command"]]:
    """Starts commands; those that a failed test leaves are killed."""
    started: list[Command] = []

    def start(*args: Any, **settings: str) -> Command:
        started.append(Command(runs, *args, **settings))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()


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
            time.sleep(0.05)
        self.look()

    def wait_for_children(self, count: int) -> None:
        while len(self.children) < count:
            self.look()
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.05)

    def end(self) -> int:
        """The exit code; all that the command started has ended soon after it."""
        while self.process.poll() is None:
            self.look()
            time.sleep(0.05)
        _, alive = psutil.wait_procs(list(self.children.values()), timeout=SECONDS)
        assert self.children and not alive, alive
        return self.process.returncode

    def query(self, database: str, sql: str) -> list[tuple]:
        with sqlite3.connect(self.home / database) as opened:
            return opened.execute(sql).fetchall()

    def states(self) -> set[str]:
        sql = "select state_type from flow_run union all select state_type from task_run"
        return {state for (state,) in self.query("prefect/prefect.db", sql)}


def listening_addresses(command: Command) -> set[str]:
    """Where the processes of a command listen, by TCP or UDP."""
    found = set()
    for process in (psutil.Process(command.process.pid), *command.children.values()):
        with contextlib.suppress(psutil.NoSuchProcess):
            found |= {each.laddr.ip for each in process.net_connections() if not each.raddr}
    return found


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("when", ["prefect/server.log", "prefect/prefect.db", "stages/documents-*/done/*"])
def test_a_killed_run_leaves_no_process(command, tiny, number, when):
    run = command(f"killed-{number}-{when.replace('/', '-').replace('*', '')}", tiny)
    run.wait_for(when)
    run.wait_for_children(1)
    run.process.send_signal(number)
    assert run.end() in (-number, 128 + number)


@pytest.mark.slow
def test_a_run_killed_at_its_end_leaves_no_process(command, tiny):
    run = command("killed-at-the-end", tiny)
    run.wait_for("stages/model-*/manifest.json")
    run.process.kill()
    assert run.end() == -signal.SIGKILL


def test_an_interrupted_run_is_cancelled(command, tiny):
    """A Ctrl-C at a terminal goes to the whole group; files are private; the server listens on loopback alone."""
    run = command("interrupted", tiny, executor="serial")
    run.wait_for("stages/documents-*/done/*")
    assert listening_addresses(run) == {"127.0.0.1"}
    os.killpg(run.process.pid, signal.SIGINT)
    assert run.end() == 130
    log = run.log.read_text()
    assert "Traceback" not in log and log.splitlines()[-1].startswith("gristmill: stopped"), log
    assert run.states() <= {"CANCELLED", "COMPLETED"} and "CANCELLED" in run.states()
    private = [path for path in run.home.glob("prefect/*") if path.stat().st_mode & 0o077]
    assert not private and (run.home / "prefect").stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
def test_an_interrupted_training_has_one_checkpoint_and_is_killed_in_mlflow(command, tiny):
    long = tiny | {"training": tiny["training"] | {"steps": 10_000, "checkpoint_every": 10_000, "eval_every": 10_000}}
    run = command("training", long | {"mixture": tiny["mixture"] | {"max_epochs": 1000.0}})
    run.wait_for("stages/model-*/metrics.jsonl")
    assert listening_addresses(run) == {"127.0.0.1"}
    os.killpg(run.process.pid, signal.SIGINT)
    assert run.end() == 130
    assert len(list(run.home.glob("stages/model-*/checkpoints/step-*"))) == 1
    assert run.query("mlflow.db", "select status from runs") == [("KILLED",)]
    assert run.states() == {"CANCELLED", "COMPLETED"}
    assert not (run.home / "mlflow.db").stat().st_mode & 0o077


@pytest.mark.slow
def test_the_next_run_ends_the_records_of_a_killed_one(command, tiny):
    killed = command("stale", tiny)
    killed.wait_for("stages/model-*/run.json")
    killed.process.kill()
    killed.end()
    assert "RUNNING" in killed.states()
    assert killed.query("mlflow.db", "select status from runs") == [("RUNNING",)]
    again = command("stale", tiny | {"seed": tiny["seed"] + 1})
    assert again.end() == 0, again.log.read_text()
    assert again.states() == {"CRASHED", "COMPLETED"}
    assert sorted(again.query("mlflow.db", "select status from runs")) == [("FINISHED",), ("KILLED",)]


@pytest.mark.slow
def test_two_first_runs_at_once(command, runs, tiny):
    """One home for the databases; two for the stages."""
    local = str(runs.home("shared"))
    both = [command(name, tiny, local=local) for name in ("one", "two")]
    assert [run.end() for run in both] == [0, 0], [run.log.read_text() for run in both]
    for database, sql in (
        ("prefect/prefect.db", "select count(*) from flow_run where state_type = 'COMPLETED'"),
        ("mlflow.db", "select count(*) from runs where status = 'FINISHED'"),
    ):
        with sqlite3.connect(runs.home("shared") / database) as opened:
            expected = 8 if "prefect" in database else 1
            assert opened.execute(sql).fetchone()[0] >= expected


@pytest.mark.slow
@pytest.mark.parametrize("database", ["prefect/prefect.db", "mlflow.db"])
def test_killed_in_the_first_migration(command, tiny, database):
    home = f"migration-{Path(database).stem}"
    killed = command(home, tiny)
    killed.wait_for(f"{database}.new")
    killed.process.kill()
    killed.end()
    assert not (killed.home / database).exists()
    again = command(home, tiny)
    assert again.end() == 0, again.log.read_text()
    assert not (again.home / f"{database}.new").exists()


def test_a_database_that_was_begun_is_begun_anew(tmp_path):
    path = tmp_path / "records.db"

    def fail(new: Path) -> None:
        with contextlib.closing(sqlite3.connect(new)) as database:
            database.execute("create table half (x)")
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        databases.ensure_database(path, fail)
    assert not path.exists()

    def make(new: Path) -> None:
        with contextlib.closing(sqlite3.connect(new)) as database:
            database.execute("pragma journal_mode=wal")
            database.execute("create table whole (x)")

    databases.ensure_database(path, make)
    databases.ensure_database(path, fail)
    with sqlite3.connect(path) as database:
        assert database.execute("select name from sqlite_master").fetchall() == [("whole",)]
    assert path.stat().st_mode & 0o777 == 0o600
    assert not list(tmp_path.glob("*.new*"))
