"""Faults at the writes of a run: what the harness sees of one, and a sample of its trials."""

import os
import random
import subprocess
import sys

import pytest

from gristmill.flows.machine.runs import RunRecorder
from gristmill.storage import exclusive, files, layout
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.spec import StageSpec
from tests.fault_boundaries.faults import Fault, Power
from tests.fault_boundaries.planted import DEFECTS
from tests.fault_boundaries.trace import Boundary, Disk, Recorder, installed


def write(home: str) -> None:
    files.write_bytes(f"{home}/stages/a-0/part-00000.bin", b"0123456789")
    layout.mark_done(f"{home}/stages/a-0", "work", 0, {"record": {}, "files": {}})


def written(kind: str, path: str, folders: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """What `files.create` does to a file, and to the folders that it makes."""
    first, *others = [(kind, operation, path) for operation in ("create", "write", "fsync")]
    named = [(kind, "link", f"{path}~"), (kind, "rename", path), ("folder", "fsync", os.path.dirname(path))]
    return [first, *folders, *others, *named]


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
    made = [("folder", "mkdir", "stages"), ("folder", "mkdir", "stages/a-0"), ("folder", "fsync", "stages")]
    marks = [("folder", "mkdir", "stages/a-0/done"), ("folder", "fsync", "stages/a-0")]
    wanted = [*written("part", part, made), *written("done mark", mark, marks)]
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
    left = set()
    for seed in range(40):
        home = tmp_path / str(seed)
        home.mkdir()
        power = Power(str(home))
        with installed(Disk(str(home), Recorder(), power)):
            files.write_bytes(f"{home}/lasting", b"x" * 100)
            exclusive.create(f"{home}/lease/000001.json", b"y" * 100)
        power.goes(random.Random(seed))
        assert (home / "lasting").read_bytes() == b"x" * 100
        path = home / "lease/000001.json"
        left.add(path.stat().st_size if path.exists() else None)
    assert left == {None, 0, 50, 100}


def test_a_file_and_the_folders_made_for_it_outlast_the_loss_of_power(tmp_path):
    power = Power(str(tmp_path))
    with installed(Disk(str(tmp_path), Recorder(), power)):
        files.write_bytes(f"{tmp_path}/stages/a-0/ledger/part-00000.bin", b"x")
        files.write_bytes(f"{tmp_path}/stages/a-0/done/work-00000.json", b"y")
    for seed in range(20):
        power.goes(random.Random(seed))
    assert (tmp_path / "stages/a-0/ledger/part-00000.bin").read_bytes() == b"x"
    assert (tmp_path / "stages/a-0/done/work-00000.json").read_bytes() == b"y"


@pytest.mark.parametrize("kind", ["error", "full"])
@pytest.mark.parametrize("operation", ["write lease/000001.json", "rename lease/000001.json"])
def test_a_lease_that_cannot_be_written_leaves_nothing(tmp_path, kind, operation):
    """Or others would wait a minute for its owner, of whom it tells nothing."""
    name, path = operation.split()
    fault = Fault(kind, Boundary("begin", name, path, 1), 0, Power(str(tmp_path)), tmp_path / "reached")
    lease = f"{tmp_path}/lease/000001.json"
    with installed(Disk(str(tmp_path), fault)), pytest.raises(OSError, match="Errno"):
        assert exclusive.create(lease, b"{}")
        exclusive.replace(lease, b"[]")
    assert exclusive.names(f"{tmp_path}/lease") == ([] if name == "write" else ["000001.json"])


def test_a_lease_goes_with_what_a_killed_process_left_of_it(tmp_path):
    lease = f"{tmp_path}/lease/000001.json"
    assert exclusive.create(lease, b"{}")
    (tmp_path / "lease/000001.json.next").write_bytes(b"")
    exclusive.remove(lease)
    assert list(tmp_path.iterdir()) == []


def test_what_a_dead_process_left_beside_the_notes_of_runs_is_removed(tmp_path):
    ended = subprocess.run([sys.executable, "-c", _LEAVE, str(tmp_path)], check=True, stdout=subprocess.PIPE, text=True)
    (name,) = ended.stdout.split()
    for folder in ("runs", "fingerprints"):
        assert (tmp_path / folder / name).exists()
    RunRecorder(str(tmp_path), "small")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


_LEAVE = """
import pathlib, sys
from gristmill.storage import leftovers
name = leftovers.temporary_name("small.json")
for folder in ("runs", "fingerprints"):
    (pathlib.Path(sys.argv[1]) / folder).mkdir()
    (pathlib.Path(sys.argv[1]) / folder / name).touch()
print(name)
"""


def make_nothing(phases: object, record: Settings, places: object) -> dict:
    return {}


@pytest.mark.parametrize("operation", ["create", "write", "rename"])
def test_a_full_disk_is_said_where_a_run_notes_its_stages(tmp_path, operation):
    boundary = Boundary("begin", operation, "runs/small/run.json", 1)
    spec = StageSpec(name="a", version=1, body=make_nothing, record=Settings(), inputs={})
    fault = Fault("full", boundary, 0, Power(str(tmp_path)), tmp_path / "reached")
    said = rf"^{tmp_path}/runs: .* free some space and run the same command again"
    with installed(Disk(str(tmp_path), fault)), pytest.raises(files.DiskFullError, match=said):
        RunRecorder(str(tmp_path), "small").add(spec.label(str(tmp_path)))


# SAMPLE trials of the product, and of each planted defect as many as find it
SAMPLE, SEED = (
    int(os.environ.get("GRISTMILL_TEST_FAULTS", "40")),
    int(os.environ.get("GRISTMILL_TEST_FAULTS_SEED", "11")),
)


@pytest.mark.slow
def test_runs_go_on_after_faults():
    assert _command("--trials", str(SAMPLE), "--seed", str(SEED)).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_found(defect):
    assert _command("--plant", str(defect), "--trials", "600").returncode == 0


def _command(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "tests.fault_boundaries", *arguments])
