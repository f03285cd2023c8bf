"""The SLURM script of a training: what it does with the exit code of its tasks. Commands of SLURM are stand-ins."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "docker" / "slurm" / "training.sbatch"
SCONTROL = """#!/bin/sh
case $1 in
show) echo node-a; echo node-b ;;
requeue) echo "$2" >> "$CALLS/requeued" ;;
esac
"""
SRUN = """#!/bin/sh
env > "$CALLS/environment"
exit "$CODE"
"""


@pytest.mark.parametrize(
    ("code", "restarts", "requeues"),
    [(0, "", False), (1, "", False), (75, "", True), (137, "3", True), (143, "1", True), (75, "4", False)],
)
def test_a_training_that_may_go_on_is_requeued_a_limited_number_of_times(code, restarts, requeues, tmp_path):
    for name, text in (("scontrol", SCONTROL), ("srun", SRUN)):
        path = tmp_path / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "CALLS": str(tmp_path),
        "CODE": str(code),
        "SLURM_NTASKS": "2",
        "SLURM_JOB_NODELIST": "node-[a-b]",
        "SLURM_JOB_ID": "1234",
        "MAX_REQUEUES": "4",
    }
    if restarts:
        environment["SLURM_RESTART_COUNT"] = restarts
    done = subprocess.run(["bash", SCRIPT, "recipe.yaml"], env=environment, capture_output=True, text=True)
    assert done.returncode == (0 if requeues else code), done.stderr
    called = tmp_path / "requeued"
    assert (called.read_text().split() if called.exists() else []) == ["1234"] * requeues
    assert "GRISTMILL_TRAINING_RENDEZVOUS=node-a:21234\n" in (tmp_path / "environment").read_text()
