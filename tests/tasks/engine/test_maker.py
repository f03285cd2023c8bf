"""No stage ever has parts of two versions of the code: kills at random moments, code that is edited between them, two
versions on one home at the same time, and what a user asks to make again."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from gristmill.flows.machine.remaking import Remaking, remake
from gristmill.storage import checked_json, layout
from gristmill.tasks.engine import remakes
from gristmill.tasks.engine.executors import Threads
from gristmill.tasks.engine.make import MAKER, find, find_or_make
from gristmill.tasks.engine.phases import Silent
from gristmill.tasks.engine.spec import StageSpec, Work
from tests.tasks.engine.test_make import QUIET, made, spec

PARTS = 12

# A stage whose parts say which code wrote them. Jobs wait, so that a kill comes between any two of them.
WORK = '''
import sys
import time
from contextlib import nullcontext
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from gristmill.storage import files
from gristmill.tasks.engine import remakes
from gristmill.tasks.engine.executors import Threads
from gristmill.tasks.engine.make import find_or_make
from gristmill.tasks.engine.phases import Silent
from gristmill.tasks.engine.spec import StageSpec

CODE = "{code}"


class Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class Aloud(Silent):
    def message(self, line):
        print(line, flush=True)


def write(folder, number):
    time.sleep(0.01)
    files.write_bytes(f"{{folder}}/part-{{number:05d}}.txt", CODE.encode())
    return {{"number": number}}


def body(phases, record, places):
    """Write parts."""
    phases.map("write", write, dict.fromkeys(range({parts}), {{}}))
    return {{}}


def run(home):
    spec = StageSpec(name="parts", version=1, body=body, record=Record(), inputs={{}})
    made = find_or_make(home, spec, Threads(2, None), lambda: nullcontext(Aloud()))
    print("reused" if made.reused else "made", made.folder, flush=True)
'''


class Versions:
    """Folders with the work, a version of the code each, and processes that run it on one home."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "home"

    def start(self, code: str) -> subprocess.Popen[str]:
        own = self.folder / f"code-{code}"
        own.mkdir(exist_ok=True)
        (own / "planted_parts.py").write_text(WORK.format(code=code, parts=PARTS))
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(own), os.getcwd()])}
        program = f"import planted_parts; planted_parts.run({str(self.home)!r})"
        return subprocess.Popen(
            [sys.executable, "-c", program],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def folders(self) -> list[Path]:
        return sorted((self.home / "stages").glob("parts-*"))

    def done(self) -> int:
        return sum(1 for folder in self.folders() for _ in folder.glob("done/*.json"))

    def check(self) -> None:
        """Each folder has the parts of one version, that which its notes name."""
        for folder in self.folders():
            written = {path.read_text() for path in folder.glob("part-*.txt")}
            assert len(written) <= 1, f"{folder} has parts of {sorted(written)}"


@pytest.fixture
def versions(tmp_path) -> Versions:
    return Versions(tmp_path)


@pytest.mark.extended
@pytest.mark.parametrize("seed", range(3))
def test_kills_and_edits_never_mix_two_versions(versions, seed):
    draw = random.Random(seed)
    begun = set()
    for _ in range(6):
        code = draw.choice("abc")
        process, before, wanted = versions.start(code), versions.done(), draw.randint(0, PARTS - 1)
        while process.poll() is None and versions.done() - before < wanted:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        begun.add(code)
        versions.check()
        if any((folder / "manifest.json").exists() for folder in versions.folders()):
            break
    last = versions.start("a")
    said, _ = last.communicate(timeout=100)
    assert last.returncode == 0, said
    versions.check()
    finished = [folder for folder in versions.folders() if (folder / "manifest.json").exists()]
    assert len(finished) == 1 and said.splitlines()[-1].endswith(str(finished[0]))
    manifest = layout.manifest(str(finished[0]))
    assert checked_json.read(f"{finished[0]}/{MAKER}")["code"] == manifest["code"]
    assert len(list(finished[0].glob("part-*.txt"))) == PARTS


@pytest.mark.extended
def test_parts_of_the_same_code_are_kept_and_others_start_over_with_a_line(versions):
    for code, said in (("a", ""), ("a", ""), ("b", "parts was begun with other code"), ("a", "begun with other code")):
        process, before = versions.start(code), versions.done()
        while versions.done() - before < 3:
            time.sleep(0.002)
        process.kill()
        out, _ = process.communicate()
        assert (said in out) if said else not out, out
    assert len(versions.folders()) == 3, "each change of the code began a folder"
    out, _ = versions.start("a").communicate()
    assert "begun" not in out and out.startswith("made"), out
    versions.check()


@pytest.mark.extended
def test_two_versions_at_once_make_the_stage_once(versions):
    both = [versions.start(code) for code in "ab"]
    said = [process.communicate(timeout=100)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert sorted(each.splitlines()[-1].split()[0] for each in said) == ["made", "reused"], said
    versions.check()
    [folder] = versions.folders()
    assert len(list(folder.glob("part-*.txt"))) == PARTS


@pytest.mark.extended
def test_a_version_that_was_interrupted_while_another_waited_is_not_gone_on_with(versions):
    first = versions.start("a")
    while versions.done() < 2:
        time.sleep(0.002)
    second = versions.start("b")
    assert second.stdout is not None
    first.kill()
    said, _ = second.communicate(timeout=100)
    assert second.returncode == 0 and said.splitlines()[-1].startswith("made"), said
    versions.check()


def test_what_was_begun_without_a_note_of_who_did_it_starts_over(tmp_path):
    """As a folder of a version that wrote no such note."""
    whole = made(tmp_path, spec())
    for name in ("manifest.json", MAKER):
        (Path(whole.folder) / name).unlink()
    again = made(tmp_path, spec())
    assert again.folder != whole.folder and again.contents == whole.contents
    assert made(tmp_path, spec()).reused and find(str(tmp_path), spec()).folder == again.folder


def test_a_user_may_make_a_stage_again_and_the_old_one_stays(tmp_path):
    first = made(tmp_path, spec())

    def run(*names: str):
        with remake(names):
            remaking = Remaking(str(tmp_path), ["shouted"])
        remaking.begin(spec())
        remaking.begin(spec())  # once in a run
        stage = made(tmp_path, spec())
        remaking.check()
        return stage

    assert run().reused
    again = run("shouted")
    assert not again.reused and again.key != first.key and again.contents == first.contents
    assert Path(first.folder, "manifest.json").exists() and run().folder == again.folder
    assert not run("all").reused
    with pytest.raises(ValueError, match="--remake signatures: the run has no such stage or step; it has shouted"):
        run("signatures")
    with pytest.raises(ValueError, match="--remake shuted: the recipe has no such step; it has shouted"):
        run("shuted")


def test_a_lost_or_damaged_note_never_leads_to_a_folder_that_is_finished(tmp_path):
    def again():
        with remake(["shouted"]):
            remaking = Remaking(str(tmp_path), ["shouted"])
        remaking.begin(spec())
        return made(tmp_path, spec())

    folders = [made(tmp_path, spec()).folder, again().folder, again().folder]
    [note] = (tmp_path / "remade").iterdir()
    note.write_bytes(b"{")
    remakes.forget(str(tmp_path))
    assert made(tmp_path, spec()).folder == folders[-1], "the last one is known by its folder"
    note.unlink()
    folders += [again().folder, again().folder]
    assert len(set(folders)) == 5


def test_a_stage_is_named_by_the_step_that_it_is_made_for(tmp_path):
    def one(**more) -> StageSpec:
        given = spec()
        return StageSpec(
            name="signatures",
            version=1,
            body=given.body,
            record=QUIET,
            inputs=given.inputs,
            places=given.places,
            **more,
        )

    def make(which: StageSpec):
        return find_or_make(str(tmp_path), which, Threads(1, None), lambda: nullcontext(Silent()))

    make(one(work=Work(steps=("minhash",))))
    for names, again in ((["minhash"], True), (["url"], False), (["signatures"], True)):
        with remake(names):
            remaking = Remaking(str(tmp_path), ["minhash", "url"])
        remaking.begin(one(work=Work(steps=("minhash",))))
        assert make(one(work=Work(steps=("minhash",)))).reused is not again
