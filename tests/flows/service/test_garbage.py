"""Which stages go: those that no recorded run needs, never one that a process makes; and the same files are left."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gristmill.flows.cli import main
from gristmill.flows.machine.runs import RELEASED, RunRecorder, forget, recipes_by_stage, runs_of, stages_of_runs
from gristmill.flows.run import garbage
from gristmill.storage import checked_json, files, layout
from gristmill.storage.damage import DamagedFileError
from gristmill.tasks.engine import shared
from gristmill.tasks.engine.lease import lease
from gristmill.tasks.engine.slurm.meeting import Meeting, TaskState, meetings
from tests.storage.test_home import Written


@pytest.fixture(autouse=True)
def caches(tmp_path, monkeypatch) -> Path:
    """A cache of kernels that is the test's own."""
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setattr("gristmill.tasks.kernels.compiled.FOLDER", folder / "kernels-now")
    return folder


@pytest.fixture
def home(tmp_path) -> str:
    """Two recipes that share documents; stages of an older run of one of them; one that was begun; one unreadable."""
    written = Written(str(tmp_path / "home"))
    written.stage("documents", "d0")
    written.stage("rules", "old", inputs={"documents": "d0"})
    written.stage("rules", "new", inputs={"documents": "d0"})
    written.stage("tokens", "t0", inputs={"kept": "r9", "documents": "hidden"})
    written.stage("documents", "hidden")  # of no run, but what t0 was made from
    written.stage("model", "kept")  # of no run, and not released
    written.stage("model", "gone")
    files.write_bytes(f"{written.address}/stages/model-gone/{RELEASED}", b"{}")
    layout.mark_done(layout.stage_folder(written.address, "tokens", "begun"), "encode", 0, {"record": {}, "files": {}})
    files.write_bytes(f"{written.address}/stages/rules-torn/manifest.json", b'{"format":')
    record(written.address, "web", "documents-d0", "rules-new")
    record(written.address, "books", "documents-d0", "tokens-t0")
    return written.address


def record(home: str, recipe: str, *stages: str) -> None:
    """A finished run of a recipe."""
    run = RunRecorder(home, recipe, flow="corpus", recipe={"name": recipe})
    run.add(*stages)
    run.finished()


def labels(found) -> set[str]:
    return {one.label for one in found}


def test_a_removal_that_was_killed_is_finished(home):
    folder = Path(layout.stage_folder(home, "rules", "old"))
    layout.collect(str(folder))
    assert "rules-old" not in labels(garbage.find(home, 0).garbage)
    (folder / "part-00000.parquet").write_bytes(b"left")
    [one] = [one for one in garbage.find(home, 0).garbage if one.label == "rules-old"]
    assert garbage.remove(home, one)
    assert {path.name for path in folder.iterdir()} <= {"manifest.json", "parts.json", "lease"}
    assert "rules-old" not in labels(garbage.find(home, 0).garbage)


def test_only_what_no_run_needs_can_go(home):
    found = garbage.find(home, 0)
    assert labels(found.garbage) == {"rules-old", "model-gone", "tokens-begun", "rules-torn"}
    assert {one.kind for one in found.garbage} == {"finished", "unfinished", "unreadable"}
    for one in found.garbage:
        on_disk = [path for path in Path(one.folder).rglob("*") if path.is_file()]
        assert one.bytes == sum(path.stat().st_size for path in on_disk)
        assert one.modified == pytest.approx(max(path.stat().st_mtime for path in on_disk), abs=1)
    assert found.held == () and found.young == ()


def test_a_model_that_this_release_cannot_read_stays(home):
    checked_json.write(f"{home}/stages/model-old/manifest.json", {"stage": "model", "format": 5})
    assert "model-old" not in labels(garbage.find(home, 0).garbage)


def test_what_is_young_stays(home):
    old = Path(home, "stages", "model-gone", "manifest.json")
    for path in old.parent.iterdir():
        os.utime(path, (time.time() - 8 * 86_400,) * 2)
    found = garbage.find(home, 7)
    assert labels(found.garbage) == {"model-gone"}
    assert labels(found.young) == {"rules-old", "tokens-begun", "rules-torn"}


def test_removal_leaves_all_else_as_it_was(home):
    before = {path: path.read_bytes() for path in Path(home).rglob("*") if path.is_file()}
    found = garbage.find(home, 0)
    finished = [Path(one.folder) for one in found.garbage if one.kind == "finished"]
    others = [Path(one.folder) for one in found.garbage if one.kind != "finished"]
    contents = {folder: layout.contents(layout.manifest(str(folder)) or {}) for folder in finished}
    assert len(finished) == len(others) == 2
    assert all(garbage.remove(home, one) for one in found.garbage)
    assert not any(folder.exists() for folder in others)
    for folder in finished:
        assert {path.name for path in folder.iterdir()} <= {"manifest.json", "parts.json"}
        assert layout.contents(layout.manifest(str(folder)) or {}) == contents[folder]
    left = {path: path.read_bytes() for path in Path(home).rglob("*") if path.is_file()}
    apart = [*finished, *others]
    assert {path: data for path, data in left.items() if not any(path.is_relative_to(one) for one in apart)} == {
        path: data for path, data in before.items() if not any(path.is_relative_to(one) for one in apart)
    }
    assert garbage.find(home, 0).garbage == ()


def test_a_stage_that_a_process_makes_stays(home, monkeypatch):
    monkeypatch.setattr("gristmill.tasks.engine.lease.HEARTBEAT_SECONDS", 0.1)
    listed = next(one for one in garbage.find(home, 0).garbage if one.label == "tokens-begun")
    with lease(listed.folder, print):
        found = garbage.find(home, 0)
        assert found.held == ("tokens-begun",) and "tokens-begun" not in labels(found.garbage)
        assert not garbage.remove(home, listed)
        assert files.names(f"{listed.folder}/done") == ["encode-00000.json"]
    assert garbage.remove(home, listed)


def test_a_stage_whose_maker_has_died_goes(home):
    folder = f"{home}/stages/tokens-begun"
    code = """import os, sys; from gristmill.tasks.engine import lease
held = lease.lease(sys.argv[1], print)
held.__enter__()
os._exit(0)"""
    subprocess.run([sys.executable, "-c", code, folder], check=True)
    assert files.names(f"{folder}/lease") == ["000001.json"]
    assert "tokens-begun" in labels(garbage.find(home, 0).garbage)


def test_a_stage_that_a_run_has_taken_up_meanwhile_stays(home):
    found = next(one for one in garbage.find(home, 0).garbage if one.label == "rules-old")
    record(home, "third", "rules-old")
    assert not garbage.remove(home, found)
    assert files.exists(f"{found.folder}/manifest.json")


def test_a_record_that_cannot_be_read_stops_it(home):
    [path] = Path(home, "runs", "web").glob("*.json")
    path.write_bytes(b"{")
    with pytest.raises(DamagedFileError, match=path.name):
        garbage.find(home, 0)


# Leaves the work of a phase in a folder, and stays until its input ends if it is told to.
LEAVE = """import os, sys; from gristmill.tasks.engine import shared
print(shared.leave(sys.argv[1], len).path, flush=True)
sys.stdin.read()
os._exit(0)"""
ELSEWHERE = "0123456789abcdef-1-0123456789abcdef"  # a process of another host


@pytest.mark.extended
@pytest.mark.parametrize("where", ["local", "s3"])
def test_what_killed_runs_left_for_workers_goes(where, tmp_path, request, caches):
    if where == "s3":
        request.getfixturevalue("s3")
    home = str(tmp_path / "home") if where == "local" else "s3://crawl/home"
    folder = files.join(home, "work")

    def found() -> set[str]:
        return {one.folder for one in garbage.find(home, 0).garbage if one.kind == "work"}

    arguments = [sys.executable, "-c", LEAVE, folder]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        path = process.stdout.readline().strip()
        assert files.exists(path) and found() == set()
        process.stdin.close()
    foreign = files.join(folder, f".abc.{ELSEWHERE}.0.tmp")
    files.write_bytes(foreign, b"work")
    files.write_bytes(files.join(folder, "notes.txt"), b"of a user")
    assert {one.rpartition("/")[2] for one in found()} == {one.rpartition("/")[2] for one in (path, foreign)}
    young = garbage.find(home, 1).young
    assert {one.kind for one in young} == {"work"} and sum(one.bytes for one in young) > 4
    shared.remove_leftovers(folder)  # as a run that starts workers does
    assert not files.exists(path) and files.exists(foreign)
    assert all(garbage.remove(home, one) for one in garbage.find(home, 0).garbage if one.kind == "work")
    assert files.names(folder) == ["notes.txt"]


def test_what_a_run_of_another_machine_left_for_workers_stays_while_it_makes_a_stage(home, monkeypatch):
    monkeypatch.setattr("gristmill.tasks.engine.lease.HEARTBEAT_SECONDS", 0.1)
    with lease(layout.stage_folder(home, "tokens", "begun"), print):
        # so that this process is one of another host
        monkeypatch.setattr("gristmill.flows.run.garbage._lives", lambda owner: False)
        monkeypatch.setattr("gristmill.storage.leftovers.is_of_this_host", lambda owner: False)
        path = shared.leave(files.join(home, "work"), len).path
        assert [one for one in garbage.find(home, 0).garbage if one.kind == "work"] == []
    assert [one.folder for one in garbage.find(home, 0).garbage if one.kind == "work"] == [path]


def test_old_caches_of_kernels_go_and_that_of_this_version_stays(home, caches):
    for name in ("kernels-now", "kernels-then"):
        (caches / name).mkdir()
        (caches / name / "kernel.nbi").write_bytes(b"12345")
    found = [one for one in garbage.find(home, 0).garbage if one.kind == "kernels"]
    assert [(one.label, one.bytes) for one in found] == [("kernels-then", 5)]
    assert garbage.remove(home, found[0])
    assert [path.name for path in caches.iterdir()] == ["kernels-now"]


def test_a_new_cache_without_a_kernel_is_as_young_as_its_folder(home, caches):
    (caches / "kernels-begun").mkdir()
    found = garbage.find(home, 1)
    assert [one.label for one in found.young if one.kind == "kernels"] == ["kernels-begun"]
    assert "kernels" not in {one.kind for one in found.garbage}


def test_a_run_that_has_not_ended_keeps_the_stages_of_the_one_before(home):
    run = RunRecorder(home, "web")
    run.add("documents-d1")
    assert recipes_by_stage(home)["documents-d1"] == ["web"] and "rules-new" not in recipes_by_stage(home)
    again = RunRecorder(home, "web")  # the run was killed, and started again
    again.add("documents-d1")
    assert {"documents-d1", "documents-d0", "rules-new"} <= stages_of_runs(home)
    again.add("rules-new")
    again.finished()
    # the killed one had no stage more; the one before has, and holds it
    assert [run.stages for run in runs_of(home, "web")] == [
        ("documents-d1", "rules-new"),
        ("documents-d0", "rules-new"),
    ]
    forget(home, runs_of(home, "web")[1])
    assert stages_of_runs(home) == {"documents-d1", "rules-new", "documents-d0", "tokens-t0"}, (
        "the last two are of books"
    )


def test_the_command_lists_and_removes_nothing_unless_it_is_asked_to(home, monkeypatch, capsys):
    monkeypatch.setenv("GRISTMILL_HOME", home)

    def gc(*options: str) -> dict:
        monkeypatch.setattr(sys, "argv", ["gristmill", "home", "gc", "--days", "0", "--json", "--yes", *options])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        return json.loads(capsys.readouterr().out)

    first = gc()
    assert len(first["garbage"]) == 4 and first["removed"] == []
    assert gc("--delete")["removed"] == first["garbage"]
    assert gc()["garbage"] == []


def meet(folder: Path, name: str, days: float, ended: bool) -> Meeting:
    """The folder of a run on SLURM with one task, to which nothing was written for some days."""
    meeting = Meeting(folder / name)
    meeting.open()
    meeting.report(TaskState(0, "8_0", "node1", "working", 4, 0, 1, 0.0, 0.0))
    meeting.add_event("task 0 joined")
    if ended:
        meeting.end()
    age(meeting, days)
    return meeting


def age(meeting: Meeting, days: float) -> None:
    for path in (*meeting.folder.rglob("*"), meeting.folder):
        os.utime(path, (time.time() - days * 86_400,) * 2)


def test_folders_of_runs_on_slurm_go_when_nothing_writes_to_them(home, tmp_path):
    folder = tmp_path / "slurm"
    for name, days, ended in (("job-1", 9, True), ("job-2", 1, True), ("job-3", 9, False), ("job-4", 1, False)):
        meet(folder, name, days, ended)

    def can_go(days: float) -> set[tuple[str, str]]:
        kinds = ("slurm", "slurm-open")
        return {(one.label, one.kind) for one in garbage.find(home, days, str(folder)).garbage if one.kind in kinds}

    assert can_go(7) == {("job-1", "slurm"), ("job-3", "slurm-open")}
    assert can_go(30) == set()
    # a run whose workers wait in the queue writes nothing
    assert can_go(0) == {("job-1", "slurm"), ("job-2", "slurm"), ("job-3", "slurm-open")}
    found = garbage.find(home, 7, str(folder))
    assert {"job-2", "job-4"} <= labels(found.young)
    # a task gives a sign of life
    Meeting(folder / "job-3").report(TaskState(0, "8_0", "node1", "waiting", 4, 0, 1, 0.0, 0.0))
    removed = {one.label: garbage.remove(home, one) for one in found.garbage if one.kind in ("slurm", "slurm-open")}
    assert removed == {"job-1": True, "job-3": False}
    assert sorted(path.name for path in folder.iterdir()) == ["job-2", "job-3", "job-4"]


def test_a_folder_of_slurm_without_a_file_is_as_young_as_itself(home, tmp_path):
    Meeting(tmp_path / "slurm" / "job-1").open()
    found = garbage.find(home, 7, str(tmp_path / "slurm"))
    assert "job-1" in labels(found.young) and "job-1" not in labels(found.garbage)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another account")
def test_folders_of_other_accounts_are_not_looked_at(home, tmp_path):
    meet(tmp_path / "slurm", "job-1", 9, ended=True)
    os.chown(meet(tmp_path / "slurm", "job-2", 9, ended=True).folder, 12345, 12345)
    assert [each.folder.name for each in meetings(str(tmp_path / "slurm"))] == ["job-1"]


def test_the_commands_know_the_folder_of_slurm(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GRISTMILL_HOME", str(tmp_path / "home"))
    ended, interrupted = (meet(tmp_path / "home" / "slurm", name, 9, name == "job-1") for name in ("job-1", "job-2"))

    def command(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["gristmill", "home", *words])
        with pytest.raises(SystemExit) as end:
            main()
        assert not end.value.code
        return capsys.readouterr().out

    status = command("status")
    assert "SLURM job-2: no scheduler; workers wait for the next start of the run; 1 task" in status
    assert "job-1" not in status
    listed = command("gc")
    assert "slurm       job-1" in listed and "slurm-open  job-2" in listed
    assert ended.folder.exists() and interrupted.folder.exists()
    command("gc", "--delete", "--yes")
    assert not ended.folder.exists() and not interrupted.folder.exists()
