"""The servers and databases of a run's records die, are away or are damaged: it goes on, or says why in a sentence."""

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from gristmill.storage import files, layout
from tests.foreign_account import ForeignAccount, listening

COMMAND = "import sys; from gristmill.flows.cli import main; sys.argv = ['gristmill', *sys.argv[1:]]; main()"
# they name the home and MLflow's run, or say how fast it was
OF_ONE_RUN = ("run.json", "timing.jsonl", "cost.json")
MOMENTS = ["stages/documents-*/done/*", "stages/near_duplicates-*/manifest.json", "stages/model-*/metrics.jsonl"]


@pytest.fixture(scope="session")
def short(recipe) -> dict:
    """A recipe with a model, of few steps."""
    kept = [step for step in recipe["steps"] if step["step"] in ("extract", "language", "minhash")]
    return recipe | {"name": "short", "steps": kept}


def start(runs, home: str, recipe: dict, *options: str, **settings: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, "run", str(runs.write(recipe)), *options],
        env=runs.environment(home, **settings),
        cwd=runs.folder,
        stdout=open(runs.folder / f"{home}.log", "a"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def contents(home: Path) -> dict[str, str]:
    """The digests of what the jobs of all finished stages have written."""
    found = {}
    for manifest in home.glob("stages/*/manifest.json"):
        folder = str(manifest.parent)
        for part in layout.parts(folder, layout.manifest(folder) or {}):
            for name in part.files:
                if name not in OF_ONE_RUN:
                    found[f"{manifest.parent.name}/{name}"] = files.checksum(f"{folder}/{name}")
    return found


@pytest.fixture(scope="session")
def whole(runs, short) -> dict[str, str]:
    """What comes out of an undisturbed run."""
    assert start(runs, "whole", short).wait() == 0, runs.log("whole")
    found = contents(runs.home("whole"))
    assert any(name.startswith("model-") for name in found)
    return found


def prefect_server(run: subprocess.Popen) -> psutil.Process:
    (found,) = (
        child for child in psutil.Process(run.pid).children() if "gristmill.flows.run.server" in child.cmdline()
    )
    return found


def until(run: subprocess.Popen, home: Path, pattern: str) -> None:
    while not next(home.glob(pattern), None):
        assert run.poll() is None, "the run has ended before"
        time.sleep(0.01)


def states(home: Path) -> set[str]:
    with closing(sqlite3.connect(home / "prefect/prefect.db")) as database:
        sql = "select state_type from flow_run union all select state_type from task_run"
        return {state for (state,) in database.execute(sql)}


def warned(log: str) -> list[str]:
    return [line for line in log.splitlines() if "| WARNING |" in line or "| ERROR" in line or "Traceback" in line]


def begun(runs, name: str, recipe: dict, moment: str) -> tuple[subprocess.Popen, psutil.Process]:
    """A run at a moment, and its Prefect server."""
    run = start(runs, name, recipe)
    until(run, runs.home(name), moment)
    return run, prefect_server(run)


def goes_on(runs, name: str, recipe: dict, whole: dict[str, str]) -> None:
    """The same command gives the same bytes, and no record stays open."""
    assert start(runs, name, recipe).wait() == 0, runs.log(name)
    assert contents(runs.home(name)) == whole
    assert states(runs.home(name)) == {"CRASHED", "COMPLETED"}


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_the_prefect_server_of_a_run_dies_and_the_same_command_goes_on(runs, short, whole, moment):
    name = f"killed_{MOMENTS.index(moment)}"
    run, server = begun(runs, name, short, moment)
    server.kill()
    assert run.wait() == 1, runs.log(name)
    *_, last = runs.log(name).splitlines()
    said = "the Prefect server of this run has ended (signal 9): run the same command again"
    assert last == f"gristmill: {said}; finished stages are kept"
    assert not warned(runs.log(name)), runs.log(name)
    goes_on(runs, name, short, whole)


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_run_leaves_no_server_and_its_record_ends(runs, short, whole, moment):
    name = f"run_killed_{MOMENTS.index(moment)}"
    run, server = begun(runs, name, short, moment)
    run.kill()
    server.wait(60)
    goes_on(runs, name, short, whole)


@pytest.mark.slow
def test_nothing_of_a_whole_run_answers_another_account(runs, short, whole, tmp_path):
    """Every port that a process of the run ever listens on: the scheduler's, workers', Prefect's, the ranks'."""
    account, kinds = ForeignAccount(tmp_path / "planted"), {}
    longer = short | {"training": short["training"] | {"steps": 400}}  # or its ranks are gone too soon
    run = start(runs, "foreign", longer, training_processes="2")
    try:
        while run.poll() is None:
            ports = listening(psutil.Process(run.pid))
            assert all(command.startswith("127.0.0.1 ") for command in ports.values()), ports
            for port, command in ports.items():  # a socket may be another process's, too, and later that one's alone
                kinds.setdefault(port, set()).add(command)
            account.tell(ports)
            time.sleep(0.1)
    finally:
        run.kill()
    assert run.returncode == 0, runs.log("foreign")
    lines = account.outcomes()
    assert [line for line in lines if " done: " in line] == []
    assert not (tmp_path / "planted").exists()
    reached = {int(line.split()[0]) for line in lines if not line.endswith(("ConnectionRefusedError", "OSError"))}
    for kind in ("gristmill.flows.run.server", "multiprocessing", "gristmill.training.run.launch"):
        assert any(kind in command for port in reached for command in kinds[port]), (kind, kinds)
    found = contents(runs.home("foreign"))
    assert found.items() >= {name: digest for name, digest in whole.items() if name.startswith("tokens-")}.items()


@pytest.mark.slow
@pytest.mark.parametrize("database", ["mlflow.db", "prefect/prefect.db"])
def test_a_damaged_database_is_one_sentence_and_the_run_goes_on_as_it_says(runs, short, whole, database):
    name = f"damaged_{Path(database).stem}"
    home = runs.home(name)
    shutil.copytree(runs.home("whole"), home)
    for gone in (*home.glob("stages/model-*"), home / "mlflow-runs"):
        shutil.rmtree(gone)
    path = home / database
    path.write_bytes(os.urandom(300_000))
    assert start(runs, name, short).wait() == 1
    last = runs.log(name).splitlines()[-1]
    assert last.startswith(f"gristmill: {path} is damaged (file is not a database): move it away with ")
    assert not warned(runs.log(name))
    for ending in ("", "-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
    assert start(runs, name, short).wait() == 0, runs.log(name)
    assert contents(home) == whole


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[None]:
    """A file system of its own at a folder, for a block."""
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> None:
    with open(folder / "other", "wb", buffering=0) as other, contextlib.suppress(OSError):
        while other.write(bytes(1 << 12)):
            pass


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="a small disk is mounted")
def test_a_full_disk_is_one_sentence_and_the_run_goes_on_when_there_is_room(runs, short, whole):
    home = runs.home("full")
    with small_disk(home, 20):
        run = start(runs, "full", short, "--tokens-only")
        until(run, home, "stages/documents-*/done/*")
        fill(home)
        assert run.wait() == 1
        lines = runs.log("full").splitlines()
        assert lines[-1].startswith("gristmill: ") and "free some space" in lines[-1], lines[-1]
        assert len(warned("\n".join(lines))) <= 1, lines
        (home / "other").unlink()
        assert start(runs, "full", short, "--tokens-only").wait() == 0, runs.log("full")
        assert contents(home).items() <= whole.items()


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="a small disk is mounted")
@pytest.mark.parametrize("moment", ["model-*/run.json", "model-*/manifest.json"])
def test_a_full_disk_of_the_records_is_one_sentence_and_the_run_goes_on(runs, short, whole, moment):
    """MLflow's and Prefect's databases, and MLflow's artifacts, are in the local folder: while a model is trained, and
    when it is recorded."""
    name = f"full_records_{Path(moment).stem}"
    home, local = runs.home(name), runs.home(f"{name}_local")
    with small_disk(local, 40):
        run = start(runs, name, short, local=str(local))
        until(run, home, f"stages/{moment}")
        fill(local)
        assert run.wait() == 1, runs.log(name)
        lines = runs.log(name).splitlines()
        assert lines[-1].startswith("gristmill: ") and "free some space" in lines[-1] and str(local) in lines[-1], (
            lines[-1]
        )
        assert len(warned("\n".join(lines))) <= 1, lines
        (local / "other").unlink()
        assert start(runs, name, short, local=str(local)).wait() == 0, runs.log(name)
        assert contents(home) == whole
        with closing(sqlite3.connect(local / "mlflow.db")) as database:
            assert {status for (status,) in database.execute("select status from runs")} == {"FINISHED"}
