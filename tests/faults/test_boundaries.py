"""Faults at the writes of a run: what the harness sees of one, and a sample of its trials."""

import os
import random
import subprocess
import sys

import pytest

from gristmill.storage import exclusive, files, layout
from tests.fault_boundaries.faults import Fault, Power
from tests.fault_boundaries.planted import DEFECTS
from tests.fault_boundaries.trace import Boundary, Disk, Recorder, installed

# what `files.create` does to a file, after its folder was made
CREATED = ["create", "write", "fsync", "link", "rename", "fsync"]


def write(home: str) -> None:
    files.write_bytes(f"{home}/stages/a-0/part-00000.bin", b"0123456789")
    layout.mark_done(f"{home}/stages/a-0", "work", 0, {"record": {}, "files": {}})


def test_every_operation_on_the_disk_is_a_boundary(tmp_path):
    recorder = Recorder()
    with installed(disk := Disk(str(tmp_path), recorder)):
        disk.at = "a-0"
        write(str(tmp_path))
        assert exclusive.create(f"{tmp_path}/stages/a-0/lease/000001.json", b"{}")
        files.remove(f"{tmp_path}/stages/a-0/done")
        files.write_bytes(f"{tmp_path}-other", b"not below the home")
    found = [(each.kind, each.operation, each.path) for each in recorder.boundaries]
    part, mark = "stages/a-0/part-00000.bin", "stages/a-0/done/work-00000.json"
    paths = [(kind, path) for kind, path in (("part", part), ("done mark", mark))]
    wanted = [("folder", "mkdir", "stages"), ("folder", "mkdir", "stages/a-0")]
    for kind, path in paths:
        if kind == "done mark":
            wanted.append(("folder", "mkdir", "stages/a-0/done"))
        folder = ("folder", os.path.dirname(path))
        places = [(kind, path)] * 3 + [(kind, f"{path}~"), (kind, path), folder]
        wanted += [(kind, operation, path) for operation, (kind, path) in zip(CREATED, places, strict=True)]
    wanted.append(("lease", "mkdir", "stages/a-0/lease"))
    wanted += [("lease", operation, "stages/a-0/lease/000001.json") for operation in ("create", "write")]
    wanted += [("done mark", "unlink", mark), ("folder", "rmdir", "stages/a-0/done")]
    assert found == wanted
    assert {each.stage for each in recorder.boundaries} == {"a"}
    assert os.replace.__module__ == "posix", "all is as it was"


@pytest.mark.parametrize(("kind", "code"), [("error", 5), ("full", 28)])
def test_a_failed_write_leaves_no_file(tmp_path, kind, code):
    boundary = Boundary("begin", "write", "stages/a-0/part-00000.bin", 1)
    fault = Fault(kind, boundary, 0, Power(str(tmp_path)), tmp_path / "reached")
    with installed(Disk(str(tmp_path), fault)), pytest.raises(OSError, match=rf"\[Errno {code}\]"):
        write(str(tmp_path))
    assert (tmp_path / "reached").exists()
    assert list((tmp_path / "stages/a-0").iterdir()) == []


def test_the_loss_of_power_takes_what_was_not_made_to_last(tmp_path):
    power = Power(str(tmp_path))
    with installed(Disk(str(tmp_path), Recorder(), power)):
        files.write_bytes(f"{tmp_path}/lasting", b"x" * 100)
        exclusive.create(f"{tmp_path}/lease/000001.json", b"y" * 100)
    left = set()
    for seed in range(20):
        power.goes(random.Random(seed))
        assert (tmp_path / "lasting").read_bytes() == b"x" * 100
        path = tmp_path / "lease/000001.json"
        left.add(path.stat().st_size if path.exists() else None)
    assert None in left and len(left) > 1


# SAMPLE trials of the product, and of each planted defect as many as find it
SAMPLE, SEED = int(os.environ.get("GRISTMILL_FAULTS", "40")), int(os.environ.get("GRISTMILL_FAULTS_SEED", "11"))


@pytest.mark.slow
def test_runs_go_on_after_faults():
    assert _command("--trials", str(SAMPLE), "--seed", str(SEED)).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_found(defect):
    assert _command("--plant", str(defect), "--trials", "600").returncode == 0


def _command(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "tests.fault_boundaries", *arguments])
