"""Homes of earlier releases: only what has changed since is made again, and every command reads them."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import orjson
import pytest

from gristmill.flows.curation import curate
from gristmill.flows.machine.installed import LIBRARIES
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.finished import finished, verify_stages
from gristmill.flows.reports.recorded import would_make
from gristmill.flows.run import garbage
from gristmill.storage.home import Home
from gristmill.tasks.rules.gopher_quality import GopherQuality
from tests.corpora import context
from tests.golden.contents import other_installed
from tests.homes.versions import PACKED, changed


def name_of(packed: Path) -> str:
    return packed.name.removesuffix(".tar.xz")


CURRENT = [path for path in PACKED if not changed(path)]  # of which a run makes nothing again
# They were made by the releases of constraints.txt. Others are in the keys of stages, so a run makes these again.
OTHERS = other_installed(LIBRARIES)
of_these_releases = pytest.mark.skipif(bool(OTHERS), reason=f"stages are made again with {OTHERS}")


@pytest.fixture(params=PACKED, ids=name_of)
def unpacked(request, tmp_path, monkeypatch) -> Path:
    """The folder of a home, in which we stand: its recipe names its sources from there."""
    unpack(request.param, tmp_path, monkeypatch)
    return tmp_path


def unpack(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tarfile.open(path) as packed:
        packed.extractall(folder, filter="data")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GRISTMILL_HOME", str(folder / "home"))


def stage_of(label: str) -> str:
    return label.rpartition("-")[0]


def manifests(folder: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in (folder / "home/stages").glob("*/manifest.json")}


@of_these_releases
def test_what_has_changed_is_made_again_and_said_beforehand(unpacked, monkeypatch):
    """A step with another version stands for one that a later release has changed."""
    monkeypatch.setattr(GopherQuality, "work_version", 99)
    before = manifests(unpacked)
    text = (unpacked / "recipe.yaml").read_text()
    # defaults of that release, by which the changelog says that an older recipe gives what it gave
    for step, defaults in (("quality", "epochs: 5"), ("language", "model: lid.176, characters: 1000")):
        assert f"{{step: {step}," in text
        text = text.replace(f"{{step: {step},", f"{{step: {step}, {defaults},")
    (unpacked / "recipe.yaml").write_text(text)
    remade = would_make(load("recipe.yaml"), MachineSettings())
    certain = {stage_of(one.label): one.why for one in remade.certain}
    others = {"mixture", "model", "edited"}  # of mixtures, models and the step `pii` there are other versions, too
    assert certain.keys() <= {"documents", *others}
    assert f"its step gopher_quality was {version_of(before, 'gopher_quality')}, is 99" in certain["documents"]
    list(curate(context(str(unpacked / "home")), load("recipe.yaml")))
    after = manifests(unpacked)
    assert {label: after[label] for label in before} == before, "the earlier release still reads its own"
    made = {stage_of(label) for label in {*after} - {*before}}
    assert {"documents"} <= made <= {"documents", "edited"}, "the contents after it are the same"


def version_of(manifests: dict[str, bytes], step: str) -> int:
    """Of a step in the stage `documents`."""
    [text] = [text for label, text in manifests.items() if stage_of(label) == "documents"]
    return orjson.loads(text)["versions"][step]


@of_these_releases
@pytest.mark.parametrize("unpacked", CURRENT, ids=name_of, indirect=True)
def test_nothing_is_made_again(unpacked):
    before = manifests(unpacked)
    found = would_make(load("recipe.yaml"), MachineSettings())
    assert found.certain == [] and found.perhaps == [] and not found.open_end
    assert found.reused == len(before)
    *_, last = curate(context(str(unpacked / "home")), load("recipe.yaml"))
    assert all(stage.reused for stage in last.left.stages)
    assert manifests(unpacked) == before


@of_these_releases
@pytest.mark.parametrize("unpacked", CURRENT, ids=name_of, indirect=True)
def test_a_changed_setting_makes_its_stage_and_perhaps_those_after_it(unpacked):
    recipe = unpacked / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("{step: minhash}", "{step: minhash, threshold: 0.95}"))
    found = would_make(load("recipe.yaml"), MachineSettings())
    assert [stage_of(one.label) for one in found.certain] == ["near_duplicates"]
    assert "verifying.threshold was 0.8, is 0.95" in found.certain[0].why
    assert {"line_dedup", "model"} <= {stage_of(label) for label in found.perhaps}


def test_the_garbage_collector_lets_it_be(unpacked):
    assert [one for one in garbage.find(str(unpacked / "home"), 0).garbage if one.kind != "kernels"] == []


def test_python_and_verify_read_it(unpacked):
    run = finished("recipe.yaml")
    assert run.corpus.rows > 50 and run.data is not None and run.trained is not None
    assert run.corpus.rows == run.documents.to_pandas(["id"]).shape[0]
    verified = list(verify_stages("recipe.yaml"))
    assert len(verified) > 20 and not any(stage.damages for stage in verified)
    assert len(Home(str(unpacked / "home")).stages()) == len(manifests(unpacked))


COMMANDS = [
    *("home verify recipe.yaml", "report recipe.yaml", "explain duplicates recipe.yaml", "home status"),
    *("explain diff recipe.yaml recipe.yaml", "explain tokenizers recipe.yaml", "decide mixture recipe.yaml"),
    *("decide capacity recipe.yaml", "recipe columns recipe.yaml", "explain show dropped", "explain show documents"),
    *("decide whatif recipe.yaml --set gopher_quality.min_words=30", "explain audit recipe.yaml"),
    *("browse recipe.yaml --to page.html", "home gc --days 0", "home forget", "check recipe.yaml"),
]


SHORT = ("home verify recipe.yaml", "report recipe.yaml", "check recipe.yaml")


@pytest.mark.parametrize(
    "command", [each if each in SHORT else pytest.param(each, marks=pytest.mark.extended) for each in COMMANDS]
)
def test_commands_read_it(unpacked, command):
    before = manifests(unpacked)
    program = "import sys; from gristmill.flows.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, *command.split()], capture_output=True, text=True, env=os.environ
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert "not finished" not in done.stdout + done.stderr
    after = manifests(unpacked)
    assert {label: after[label] for label in before} == before, "nothing of it was made again"
