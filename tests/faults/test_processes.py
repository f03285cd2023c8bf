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

from gristmill.flows.machine import databases
from tests.conftest import Runs

COMMAND = "import sys; from gristmill.flows.cli import main; sys.argv = ['gristmill', 'run', sys.argv[1]]; main()"
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
    """`gristmill run`, and all processes that it has started, known by the home in their environment."""

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

    def processes(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("GRISTMILL_HOME") == str(self.home):
                    found.append(process)
        return found

    def wait_for(self, pattern: str) -> None:
        """Until a file of the pattern is in the home, or a process has it in its command."""
        while not next(self.home.glob(pattern), None) and not any(pattern in each for each in self._commands()):
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.02)

    def _commands(self) -> Iterator[str]:
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                yield " ".join(process.cmdline())

    def signal(self, number: int) -> None:
        """SIGINT goes to the whole group, as from a terminal."""
        if number == signal.SIGINT:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)

    def end(self) -> int:
        """The exit code; all that the command started has ended soon after it."""
        self.process.wait()
        _, alive = psutil.wait_procs(self.processes(), timeout=SECONDS)
        assert not alive, alive
        return self.process.returncode

    def query(self, database: str, sql: str) -> list[tuple]:
        with sqlite3.connect(self.home / database) as opened:
            return opened.execute(sql).fetchall()

    def states(self) -> set[str]:
        sql = "select state_type from flow_run union all select state_type from task_run"
        return {state for (state,) in self.query("prefect/prefect.db", sql)}

    def assert_cancelled(self, number: int) -> None:
        """It has ended by the signal with one line more in its log, and recorded so."""
        assert self.end() == 128 + number, self.log.read_text()
        _, *lines, last = self.log.read_text().splitlines()
        assert last.startswith("gristmill: stopped"), lines
        once = ("prefect: creating the database", "kernels: compiling")
        told = (" INFO    ", "web is read ")
        # older releases of click end the line that a Ctrl-C interrupts
        lines = [line for line in lines if line]
        unexpected = [line for line in lines if not line.startswith(once) and not any(each in line for each in told)]
        assert not unexpected
        assert {"CANCELLED"} <= self.states() <= {"CANCELLED", "COMPLETED"}


def listening_addresses(command: Command) -> set[str]:
    """Where the processes of a command listen, by TCP or UDP."""
    found = set()
    for process in command.processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            found |= {each.laddr.ip for each in process.net_connections() if not each.raddr}
    return found


@pytest.fixture(scope="session")
def long(tiny) -> dict:
    """A recipe that does not come to its end by itself while a test runs."""
    training = tiny["training"] | {"steps": 100_000, "checkpoint_every": 100_000, "eval_every": 100_000}
    return tiny | {
        "steps": [{"step": "extract"}, {"step": "minhash"}],
        "training": training,
        "mixture": tiny["mixture"] | {"max_epochs": 10_000.0},
    }


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("when", ["prefect/server.log", "prefect/prefect.db.new"])
def test_a_signal_before_the_flow(command, long, number, when):
    """Prefect and the flows are imported, or their database is made: there is no record yet."""
    run = command(f"early-{number}-{when.replace('/', '-')}", long)
    run.wait_for(when)
    run.signal(number)
    assert run.end() == 128 + number
    first, *between, last = (line.split()[0] for line in run.log.read_text().splitlines())
    assert (first, last) == ("pipeline", "gristmill:")
    assert set(between) <= {"prefect:"}  # that its database is made


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "when",
    [
        "gristmill.flows.run.kernel_calls",
        "stages/documents-*/done/*",
        "stages/near_duplicates-*",
        "stages/model-*/metrics.jsonl",
    ],
)
def test_a_signal_cancels_the_flow(command, long, tmp_path, monkeypatch, number, when):
    if when == "gristmill.flows.run.kernel_calls":
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    run = command(f"signal-{number}-{when.replace('/', '-').replace('*', '')}", long)
    run.wait_for(when)
    assert listening_addresses(run) == {"127.0.0.1"}
    run.signal(number)
    run.assert_cancelled(number)
    if "model" in when:
        assert len(list(run.home.glob("stages/model-*/checkpoints/step-*"))) == 1
        assert run.query("mlflow.db", "select status from runs") == [("KILLED",)]
        assert not (run.home / "mlflow.db").stat().st_mode & 0o077


@pytest.mark.slow
@pytest.mark.parametrize(
    "when", ["prefect/server.log", "prefect/prefect.db", "stages/documents-*/done/*", "stages/model-*/manifest.json"]
)
def test_a_killed_run_leaves_no_process(command, tiny, when):
    run = command(f"killed-{when.replace('/', '-').replace('*', '')}", tiny)
    run.wait_for(when)
    run.signal(signal.SIGKILL)
    assert run.end() == -signal.SIGKILL


@pytest.mark.extended
def test_an_interrupted_run_is_cancelled(command, tiny):
    """A Ctrl-C at a terminal goes to the whole group; files are private; the server listens on loopback alone."""
    run = command("interrupted", tiny, executor="serial")
    run.wait_for("stages/documents-*/done/*")
    assert listening_addresses(run) == {"127.0.0.1"}
    run.signal(signal.SIGINT)
    run.assert_cancelled(signal.SIGINT)
    private = [path for path in run.home.glob("prefect/*") if path.stat().st_mode & 0o077]
    assert not private and (run.home / "prefect").stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
def test_the_next_run_ends_the_records_of_a_killed_one(command, tiny):
    killed = command("stale", tiny)
    killed.wait_for("stages/model-*/run.json")
    killed.signal(signal.SIGKILL)
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
    killed.signal(signal.SIGKILL)
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
        databases.ensure_database(path, "release 1", fail, fail, "records")
    assert not path.exists()

    def make(new: Path) -> None:
        with contextlib.closing(sqlite3.connect(new)) as database:
            database.execute("pragma journal_mode=wal")
            database.execute("create table whole (x)")

    databases.ensure_database(path, "release 1", make, fail, "records")
    databases.ensure_database(path, "release 1", fail, fail, "records")
    with sqlite3.connect(path) as database:
        assert database.execute("select name from sqlite_master").fetchall() == [("whole",)]
    assert path.stat().st_mode & 0o777 == 0o600
    assert not list(tmp_path.glob("*.new*"))
