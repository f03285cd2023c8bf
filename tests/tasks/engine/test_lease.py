"""One maker per stage: never two at once, in a folder and in an object store, and none that is dead for ever."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gristmill.storage import exclusive, leftovers
from gristmill.tasks.engine import lease as leases
from gristmill.tasks.engine.lease import LeaseLostError, lease

FOREIGN = "0123456789abcdef-1-0123456789abcdef"

# Makes a stage of two jobs; the second one waits for a file, which a test that kills it never writes.
MAKER = """
import sys, time
from contextlib import nullcontext
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from gristmill.storage import files
from gristmill.tasks.engine.executors import Threads
from gristmill.tasks.engine.make import find_or_make
from gristmill.tasks.engine.phases import Silent
from gristmill.tasks.engine.spec import StageSpec


class Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class Aloud(Silent):
    def message(self, line):
        print(line, flush=True)


def work(folder, number, mark):
    with open(f"{mark}.jobs", "a") as f:
        f.write(f"{number}\\n")
    while number and not Path(mark).exists():
        time.sleep(0.01)
    files.write_bytes(f"{folder}/part-{number:05d}.txt", b"x" * number)
    return {}


def body(phases, record, places):
    phases.map("work", work, {number: {"mark": places} for number in range(2)})
    return {}


if __name__ == "__main__":
    home, mark = sys.argv[1:]
    from lease_maker import Record, body

    spec = StageSpec(name="shared", version=1, body=body, record=Record(), inputs={}, places=mark)
    made = find_or_make(home, spec, Threads(1, None), lambda: nullcontext(Aloud()))
    print("reused" if made.reused else "made", flush=True)
"""


@pytest.fixture(params=["folder", "s3"])
def folder(request, tmp_path) -> str:
    if request.param == "folder":
        return str(tmp_path / "stages" / "shared-0")
    request.getfixturevalue("s3")
    return "s3://crawl/home/stages/shared-0"


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(leases, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(leases, "POLL_SECONDS", 0.01)


def start(folder: Path) -> subprocess.Popen:
    (folder / "lease_maker.py").write_text(MAKER)
    return subprocess.Popen(
        [sys.executable, str(folder / "lease_maker.py"), str(folder / "home"), str(folder / "mark")],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([os.getcwd(), str(folder)])},
        stdout=subprocess.PIPE,
        text=True,
    )


def until(true) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.extended
def test_a_second_run_waits_and_takes_over_from_a_killed_one_at_once(tmp_path):
    jobs = tmp_path / "mark.jobs"
    first = start(tmp_path)
    until(lambda: jobs.exists() and jobs.read_text() == "0\n1\n")
    (stage,) = (tmp_path / "home" / "stages").iterdir()
    dead = f".part-00000.txt.{leftovers.this_process()}.ab.tmp".replace(f"-{os.getpid()}-", f"-{first.pid}-")
    (stage / dead).touch()
    second = start(tmp_path)
    said = second.stdout.readline()
    assert f"waiting for the run that makes {stage}" in said and f"process {first.pid} on" in said
    first.send_signal(signal.SIGKILL)
    first.wait()
    until(lambda: jobs.read_text() == "0\n1\n1\n")  # job 0 was done, and is not done again
    assert not (stage / dead).exists()
    third = start(tmp_path)
    assert f"process {second.pid} on" in third.stdout.readline()
    (tmp_path / "mark").touch()
    assert second.communicate()[0] == "made\n" and third.communicate()[0] == "reused\n"
    assert jobs.read_text() == "0\n1\n1\n" and not (stage / "lease").exists()


@pytest.mark.extended
def test_never_two_at_once_and_nothing_is_left(folder, quick):
    holding, most, rounds = [], [], 3

    def contend(number: int) -> None:
        for _ in range(rounds):
            with lease(folder, lambda line: None) as held:
                holding.append(number)
                most.append(len(holding))
                time.sleep(0.01)
                held.confirm()
                holding.remove(number)

    threads = [threading.Thread(target=contend, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most == [1] * (4 * rounds)
    assert exclusive.names(f"{folder}/lease") == []


def test_of_many_that_create_a_file_one_succeeds(folder):
    together, created = threading.Barrier(8), []

    def create(number: int) -> None:
        together.wait()
        if exclusive.create(f"{folder}/lease/000001.json", b"%d" % number):
            created.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(created) == 1
    assert exclusive.read(f"{folder}/lease/000001.json") == b"%d" % created[0]


@pytest.mark.extended
def test_a_foreign_lease_is_taken_over_when_its_counter_stands_still_and_its_owner_learns_it(
    folder, quick, monkeypatch
):
    their_block = lease(folder, lambda line: None)
    with monkeypatch.context() as foreign:
        foreign.setattr(leftovers, "this_process", lambda: FOREIGN)
        theirs = their_block.__enter__()
    monkeypatch.setattr(leases, "SILENCE_SECONDS", 2.0)
    messages: list[str] = []
    taken = threading.Event()

    def is_lost() -> bool:
        try:
            theirs.check()
        except LeaseLostError:
            return True
        return False

    def take() -> None:
        with lease(folder, messages.append):
            taken.set()
            until(is_lost)

    thread = threading.Thread(target=take)
    thread.start()
    first = exclusive.read(f"{folder}/lease/000001.json")
    until(lambda: exclusive.read(f"{folder}/lease/000001.json") != first)
    # as long as it is heard of, it is the maker
    assert not taken.is_set()
    theirs.confirm()
    monkeypatch.setattr(leases, "HEARTBEAT_SECONDS", 3.0)  # longer than the silence that is allowed
    assert taken.wait(60)
    thread.join(60)
    assert len(messages) == 1 and "waiting for the run that makes" in messages[0]
    with pytest.raises(LeaseLostError, match="run the same command again"):
        theirs.confirm()
    their_block.__exit__(None, None, None)
    assert exclusive.names(f"{folder}/lease") == []


def test_only_leftovers_of_the_dead_are_removed(tmp_path, monkeypatch):
    program = "from gristmill.storage import leftovers; print(leftovers.this_process(), flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    alive = child.stdout.readline().strip()
    host = alive.split("-")[0]
    assert host == leftovers.this_process().split("-")[0]
    reused = f"{host}-{child.pid}-{0:016x}"  # another process had the number
    names = {
        f".a.{alive}.ab.tmp": f"gristmill-{alive}-x",
        f".b.{FOREIGN}.ab.tmp": f"gristmill-{FOREIGN}-x",
        f".c.{reused}.ab.tmp": f"gristmill-{reused}-x",
        ".d.tmp": "gristmill-y",
    }
    (tmp_path / "deep").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for temporary, scratch in names.items():
        (tmp_path / "deep" / temporary).touch()
        (tmp_path / scratch).mkdir()

    def left() -> set[str]:
        leftovers.remove_temporary(str(tmp_path))
        leftovers.remove_scratch()
        return {path.name[:2] for path in (tmp_path / "deep").iterdir()} | {
            path.name for path in tmp_path.glob("gristmill-*")
        }

    assert left() == {".a", ".b", ".d", f"gristmill-{alive}-x", f"gristmill-{FOREIGN}-x", "gristmill-y"}
    child.communicate("\n")
    assert left() == {".b", ".d", f"gristmill-{FOREIGN}-x", "gristmill-y"}


HOLDS_A_FOLDER = """
import subprocess, sys
from gristmill.storage.leftovers import scratch_folder

with scratch_folder("test", sys.argv[1]) as folder:
    (folder / "within").mkdir()
    print(folder, flush=True)
    sys.stdin.read(1)
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, None])
def test_a_scratch_folder_goes_with_its_process_however_that_ends(end, tmp_path):
    command = [sys.executable, "-c", HOLDS_A_FOLDER, str(tmp_path)]
    given = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "start_new_session": True}
    with subprocess.Popen(command, **given) as child:
        folder = Path(child.stdout.readline().strip())
        assert (folder / "within").is_dir() and folder.stat().st_mode & 0o77 == 0
        if end is None:
            child.communicate("\n")
        else:
            os.killpg(child.pid, end)
            child.wait()
    until = time.monotonic() + 30
    while folder.exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert not list(tmp_path.iterdir())
