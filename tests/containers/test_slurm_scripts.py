"""The SLURM scripts of a run and its workers: exit codes, signals and requeues. Commands are stand-ins."""

import os
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "docker" / "slurm"
SCONTROL = """#!/bin/sh
echo "$2" >> "$CALLS/requeued"
"""
# Ends with a code, or waits for a signal: `exec`, so that no shell is between.
GRISTMILL = """#!/bin/sh
env > "$CALLS/environment"
echo "$@" > "$CALLS/arguments"
if [ -n "$CODE" ]; then exit "$CODE"; fi
exec sleep 1000
"""


@pytest.fixture
def start(tmp_path):
    for name, text in (("scontrol", SCONTROL), ("gristmill", GRISTMILL)):
        path = tmp_path / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def start(script: str, argument: str, code: str, **variables: str) -> subprocess.Popen:
        """`code`: of the command that the script runs; "" if it waits for a signal."""
        environment = {
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "CALLS": str(tmp_path),
            "CODE": code,
            "SLURM_JOB_ID": "1234",
            "SLURM_ARRAY_JOB_ID": "1200",
            "SLURM_ARRAY_TASK_ID": "7",
            "MAX_REQUEUES": "4",
        }
        return subprocess.Popen(["bash", SCRIPTS / script, argument], env=environment | variables)

    return start


def requeued(folder: Path) -> list[str]:
    return (folder / "requeued").read_text().split() if (folder / "requeued").exists() else []


def begun(folder: Path) -> str:
    """The arguments of the command, once it runs."""
    while not (folder / "arguments").exists() or not (text := (folder / "arguments").read_text()):
        time.sleep(0.02)
    return text.strip()


@pytest.mark.parametrize(
    ("code", "restarts", "requeues"),
    [("0", "", False), ("1", "", False), ("75", "", True), ("137", "3", True), ("143", "1", True), ("75", "4", False)],
)
def test_a_driver_that_may_go_on_is_requeued_a_limited_number_of_times(start, tmp_path, code, restarts, requeues):
    variables = {"SLURM_RESTART_COUNT": restarts} if restarts else {}
    assert start("driver.sbatch", "recipe.yaml", code, **variables).wait() == (0 if requeues else int(code))
    assert requeued(tmp_path) == ["1234"] * requeues
    assert begun(tmp_path) == "run recipe.yaml --tokens-only"
    lines = (tmp_path / "environment").read_text().splitlines()
    assert {"GRISTMILL_EXECUTOR=slurm", "GRISTMILL_CLUSTER=docker/slurm/workers.sbatch"} <= {*lines}


@pytest.mark.parametrize(
    ("script", "number", "expected"),
    [
        ("driver.sbatch", signal.SIGUSR1, ["1234"]),  # the time limit
        ("driver.sbatch", signal.SIGTERM, []),  # SLURM itself requeues, or the user has cancelled the job
        ("workers.sbatch", signal.SIGUSR1, ["1200_7"]),
        ("workers.sbatch", signal.SIGTERM, []),
    ],
)
def test_only_the_time_limit_puts_a_job_back_in_the_queue(start, tmp_path, script, number, expected):
    process = start(script, "argument", "")
    begun(tmp_path)
    process.send_signal(number)
    assert process.wait() == (0 if expected else 143)
    assert requeued(tmp_path) == expected


def test_a_worker_that_ends_by_itself_is_not_requeued(start, tmp_path):
    assert start("workers.sbatch", "/shared/home/slurm/job-1", "0").wait() == 0
    assert begun(tmp_path) == "home worker /shared/home/slurm/job-1" and not requeued(tmp_path)
