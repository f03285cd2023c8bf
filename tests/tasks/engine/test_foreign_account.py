"""A cluster that a run starts, beside another account of the machine: nothing runs on it and nothing is read."""

import contextlib
import logging
import os
import sys

import psutil
import pytest

from gristmill.tasks.engine.executors import executor
from gristmill.tasks.engine.slurm.cluster import SlurmPlace
from tests import slurm_server
from tests.foreign_account import attacked, listening

ME = psutil.Process()


@pytest.mark.extended
@pytest.mark.timeout(240)
def test_nothing_runs_and_nothing_is_read(tmp_path, caplog):
    before = listening(ME)
    with executor("local", 1) as running:
        assert sorted(running.map(abs, [-1, 2])) == [(0, 1), (1, 2)]
        ports = listening(ME).keys() - before.keys()
        assert len(ports) >= 3  # the scheduler, a worker, its nanny
        assert attacked(ports, tmp_path / "planted") == []
        assert not (tmp_path / "planted").exists()
        assert sorted(running.map(abs, [-3])) == [(0, 3)]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING], "a user sees nothing of it"
    assert not listening(ME).keys() - before.keys()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_same_attack_on_an_open_cluster_succeeds(tmp_path):
    from distributed import LocalCluster

    before = listening(ME)
    with LocalCluster(n_workers=1, host="127.0.0.1", dashboard_address="127.0.0.1:0", silence_logs=logging.CRITICAL):
        done = attacked(listening(ME).keys() - before.keys(), tmp_path / "planted")
    assert (tmp_path / "planted").exists()
    assert {line.split()[2] for line in done} == {"run", "run_function", "read", "raw"}


def of_slurm(configuration: str) -> list[psutil.Process]:
    """The processes of its jobs, which are no children of its daemons."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            environment = process.environ()
            if environment.get("SLURM_CONF") == configuration and "SLURM_JOB_ID" in environment:
                found.append(process)
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nothing_runs_and_nothing_is_read_on_slurm(tmp_path, monkeypatch):
    if lacking := slurm_server.missing():
        pytest.skip(f"this machine lacks {lacking}")
    (tmp_path / "slurm").mkdir()
    with slurm_server.serve(tmp_path / "slurm") as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("PATH", f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}")
        script, place = str(slurm_server.worker_script(tmp_path)), SlurmPlace(str(tmp_path / "meeting"), "lo")
        # the servers' own
        before = listening(ME)
        with executor("slurm", 2, template=script, home=str(tmp_path), slurm=place) as running:
            assert sorted(running.map(abs, [-1, 2])) == [(0, 1), (1, 2)]
            (folder,) = (tmp_path / "meeting").glob("*/tls-*")
            assert folder.stat().st_mode & 0o77 == folder.parent.stat().st_mode & 0o77 == 0
            assert all(path.stat().st_mode & 0o77 == 0 for path in folder.iterdir())
            workers = listening(*of_slurm(environment["SLURM_CONF"])).keys() - before.keys()
            assert len(workers) >= 4  # two workers and their nannies
            scheduler = listening(ME).keys() - before.keys()
            assert scheduler
            assert attacked(scheduler | workers, tmp_path / "planted") == []
            assert not (tmp_path / "planted").exists()
            assert sorted(running.map(abs, [-3])) == [(0, 3)]
        assert not folder.exists()
