"""What is made is private, or a group's: tried by two accounts, which are forked from this one where it is root."""

import os
import shutil
import stat
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gristmill.flows.cli import app
from gristmill.flows.machine.context import job_options
from gristmill.flows.machine.databases import check_own, private_folder
from gristmill.flows.machine.settings import MachineSettings
from gristmill.storage import files
from gristmill.storage.home import verify
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine import options
from gristmill.tasks.engine.phases import PhaseRunner
from gristmill.tasks.engine.spec import StageSpec
from tests.corpora import build_in

ONE, OTHER, TEAM = 65534, 65533, 65532
root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another account")


def write(folder: str, number: int) -> dict:
    files.write_bytes(f"{folder}/deep/{number}.txt", b"text")
    return {"rows": 1}


def body(phases: PhaseRunner, record: Settings, places: int) -> dict:
    """Write files."""
    return {"rows": len(phases.map("write", write, dict.fromkeys(range(places), {})))}


def make(home: str, name: str) -> None:
    options.begin_making(job_options(MachineSettings(home=home)))
    spec = StageSpec(name=name, version=1, body=body, record=Settings(), inputs={}, places=2)
    result = build_in(home)(spec)
    assert not verify(result.folder).damages


def by(account: int, work: Callable[[], None]) -> str:
    """What an account says that does something: "" if it is done, or the error."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.setgroups([TEAM])
            os.setgid(TEAM)
            os.setuid(account)
            work()
            message = ""
        except BaseException as error:
            message = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
        os.write(writing, message.encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as f:
        message = f.read()
    os.waitpid(child, 0)
    return message


@pytest.fixture
def home(tmp_path) -> Iterator[Path]:
    """That belongs to a group, in a folder that all may enter: those of pytest are closed again by each of its runs.
    What a stage imports is loaded first: another account may not read it."""
    before = os.umask(0o077)
    make(str(tmp_path / "before"), "first")
    os.umask(before)
    folder = Path(tempfile.mkdtemp(prefix="gristmill-private-"))
    folder.chmod(0o755)
    home = folder / "home"
    home.mkdir()
    os.chown(home, ONE, TEAM)
    home.chmod(0o2770)
    yield home
    shutil.rmtree(folder)


def rights(home: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) & 0o777 for path in home.rglob("*")}


@root
def test_a_home_is_private(home, monkeypatch):
    before = os.umask(0o022)
    try:
        assert by(ONE, lambda: make(str(home), "first")) == ""
    finally:
        os.umask(before)
    assert rights(home) == {0o700, 0o600}
    assert "PermissionError" in by(OTHER, lambda: make(str(home), "first"))


@root
def test_a_group_shares_a_home(home, monkeypatch):
    monkeypatch.setenv("GRISTMILL_UMASK", "007")
    assert by(ONE, lambda: make(str(home), "first")) == ""
    assert rights(home) == {0o770, 0o660}
    assert by(OTHER, lambda: make(str(home), "first")) == "" and by(OTHER, lambda: make(str(home), "second")) == ""
    assert by(ONE, lambda: make(str(home), "second")) == ""
    assert {path.owner() if path.stat().st_uid == 0 else path.stat().st_uid for path in home.glob("stages/*")} == {
        ONE,
        OTHER,
    }


@root
def test_records_of_runs_stay_private_and_the_setting_is_named(home):
    assert by(ONE, lambda: private_folder(home / "prefect") and None) == ""
    for work in (lambda: private_folder(home / "prefect"), lambda: check_own(home / "prefect")):
        said = by(OTHER, work).splitlines()[0]
        assert (
            said.startswith(f"RuntimeError: {home}/prefect or its parent folder belongs to another account")
            and "set GRISTMILL_LOCAL to" in said
        )
    assert by(OTHER, lambda: check_own(home / "prefect-of-mine")) == ""


def test_reading_changes_no_rights_of_a_user_s_process():
    before = os.umask(0o027)
    try:
        options.configure(job_options(MachineSettings()))
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)


def test_commands_make_private_files(monkeypatch, tmp_path):
    before = os.umask(0o022)
    try:
        for value, expected in (("", 0o077), ("027", 0o027)):
            if value:
                monkeypatch.setenv("GRISTMILL_UMASK", value)
            assert CliRunner().invoke(app, ["settings"], catch_exceptions=False).exit_code == 0
            assert os.umask(0o022) == expected
        monkeypatch.setenv("GRISTMILL_UMASK", "9")
        with pytest.raises(ValueError, match="GRISTMILL_UMASK: '9' is not a umask; give three digits from 0 to 7"):
            MachineSettings()
    finally:
        os.umask(before)
