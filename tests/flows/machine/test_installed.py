"""`gristmill --version`: release, commit, and the libraries that decide what stages write."""

import ast
import json
import os
import platform
import re
import subprocess
import sys
from importlib import metadata

import pytest

from gristmill.flows.machine import installed
from gristmill.flows.recipe.steps import BUILT_IN
from gristmill.tasks.extraction.engines import ENGINES
from gristmill.tasks.models.language import CODES, Language
from gristmill.tasks.reading.sources import FORMATS
from tests.documented import ROOT

COMPUTING = {"numpy", "pyarrow"}  # of all stages


def declared() -> set[str]:
    """The distributions that decide outputs, as steps, engines, sources and stages declare them."""
    names = {name for engine in ENGINES.values() for name in engine.libraries} | {"pypdfium2"}
    for kind in (*FORMATS, *BUILT_IN.values(), *(Language(model=model) for model in CODES)):
        names |= {*kind.libraries} if isinstance(kind.libraries, tuple) else set()
        data = getattr(kind, "package_data", ())
        names |= {address.partition(":")[0].replace("_", "-") for address in data} if isinstance(data, tuple) else set()
    for path in [*(ROOT / "flows/stages").rglob("*.py"), ROOT / "tasks/tokens/tokenizer.py"]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "libraries":
                names |= {each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant)}
    return {name for name in names if isinstance(name, str)}


def test_the_libraries_are_those_that_decide_outputs():
    missing = {name for name in declared() if name not in installed.LIBRARIES and name != "byte_bpe"}
    assert not missing, "add them to flows/machine/installed.py"
    assert [*installed.LIBRARIES] == sorted({*installed.LIBRARIES})


def test_it_prints_what_is_installed():
    command = [sys.executable, "-m", "gristmill", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    first, *rest = done.stdout.splitlines()
    assert first == f"gristmill {metadata.version('gristmill')}"
    assert f"Python {platform.python_version()}" in rest and f"pyarrow {metadata.version('pyarrow')}" in rest
    shown = [line.partition(" ")[0] for line in rest]
    assert COMPUTING <= {*shown} <= {"commit", "Python", *installed.LIBRARIES}


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository with a commit and a tag."""
    for name, value in (("NAME", "a"), ("EMAIL", "a@example.com")):
        monkeypatch.setenv(f"GIT_AUTHOR_{name}", value)
        monkeypatch.setenv(f"GIT_COMMITTER_{name}", value)
    (tmp_path / "file").write_text("text")
    for words in ("init -q", "add file", "commit -q -m first", "tag v1"):
        subprocess.run(["git", *words.split()], cwd=tmp_path, check=True)
    return tmp_path


def test_the_commit_is_that_of_the_checkout(checkout, monkeypatch):
    monkeypatch.setenv("GIT_DIR", "/nowhere")  # as a hook of another repository sets it
    name = installed.commit(checkout)
    assert re.fullmatch(r"[0-9a-f]{40}", name)
    (checkout / "file").write_text("another text")
    assert installed.commit(checkout) == f"{name} with uncommitted changes"
    monkeypatch.setenv("PATH", os.devnull)
    assert installed.commit(checkout) == "", "there is no git"


@pytest.mark.parametrize(
    "recorded, name",
    [
        (None, ""),
        ({"url": "file:///checkout", "dir_info": {"editable": True}}, ""),
        ({"url": "https://example.com/a.git", "vcs_info": {"vcs": "git", "commit_id": "1a2b"}}, "1a2b"),
    ],
)
def test_without_a_checkout_it_is_the_commit_that_pip_has_recorded(tmp_path, monkeypatch, recorded, name):
    folder = tmp_path / "gristmill-0.2.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: gristmill\nVersion: 0.2.0\n")
    if recorded is not None:
        (folder / "direct_url.json").write_text(json.dumps(recorded))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert installed.commit(tmp_path / "site-packages") == name


def test_an_archive_of_a_commit_has_its_name(tmp_path):
    """`make wheel` builds from one."""
    command = ["git", "archive", "HEAD", "flows/machine/commit.txt"]
    archive = subprocess.run(command, cwd=ROOT, capture_output=True)
    if archive.returncode != 0:
        pytest.skip("this is not a checkout")
    subprocess.run(["tar", "-x", "-C", tmp_path], input=archive.stdout, check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert (tmp_path / "flows/machine/commit.txt").read_text() == head.stdout
