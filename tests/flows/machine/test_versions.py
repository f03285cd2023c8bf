"""What makes stages again, and what does not: code that moves, joins and is written anew; another release of a library;
a raised version; an input that was made again."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.compute as pc
import pytest
import yaml

from gristmill.flows.curation import curate
from gristmill.flows.recipe.recipe import load
from gristmill.flows.stages.dedup import near_duplicates
from gristmill.tasks.rules import gopher_quality
from gristmill.tasks.rules.gopher_quality import GopherQuality
from tests.corpora import context

ROOT = Path(__file__).resolve().parents[3]
ROOMS = ("flows", "tasks", "storage", "training", "gristmill")

# Prints the labels of all finished stages of a recipe, the model's last; fails where one would be made again.
LOOK = """
import sys
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.finished import _finished
for stage in _finished(load(sys.argv[1]), MachineSettings(), []):
    print(stage.label, stage.manifest["code"] == stage.code)
"""


class Checkout:
    """A copy of the code that a test changes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for room in ROOMS:
            shutil.copytree(ROOT / room, folder / room, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))

    def files(self) -> list[Path]:
        rooms = [self.folder / room for room in ROOMS]
        return [path for room in rooms for path in room.rglob("*.py") if not path.is_symlink()]

    def replace(self, old: str, new: str) -> int:
        """Replace a name in all files; how many files had it."""
        count = 0
        for path in self.files():
            text = path.read_text()
            if re.search(rf"{re.escape(old)}\b", text):
                path.write_text(re.sub(rf"{re.escape(old)}\b", new, text))
                count += 1
        return count

    def run(self, program: str, *arguments: str, path: tuple[Path, ...] = (), **settings: str) -> list[list[str]]:
        """The words of each line that a program prints."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("GRISTMILL_", "PREFECT_"))}
        found = os.pathsep.join(map(str, (self.folder, *path, ROOT)))
        environment = ours | {"PYTHONPATH": found} | {f"GRISTMILL_{name.upper()}": v for name, v in settings.items()}
        command = [sys.executable, "-c", program, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=self.folder)
        assert done.returncode == 0, done.stderr
        return [line.split() for line in done.stdout.splitlines()]


def rename(checkout: Checkout) -> None:
    """A module of the storage and one of a step have other names."""
    (checkout.folder / "storage/contents.py").rename(checkout.folder / "storage/held.py")
    assert checkout.replace("gristmill.storage.contents", "gristmill.storage.held")
    step = checkout.folder / "tasks/models/quality.py"
    step.rename(step.with_name("training_and_scores.py"))
    assert checkout.replace("gristmill.tasks.models.quality", "gristmill.tasks.models.training_and_scores")


def move(checkout: Checkout) -> None:
    """A module is in another room."""
    (checkout.folder / "tasks/rules/gopher_quality.py").rename(checkout.folder / "tasks/documents/gopher_quality.py")
    assert checkout.replace("gristmill.tasks.rules.gopher_quality", "gristmill.tasks.documents.gopher_quality")


def join(checkout: Checkout) -> None:
    """Two modules are one."""
    order, takedowns = (checkout.folder / f"tasks/dedup/{name}.py" for name in ("order", "takedowns"))
    order.write_text(f"{order.read_text()}\n\n{takedowns.read_text()}")
    takedowns.unlink()
    assert checkout.replace("gristmill.tasks.dedup.takedowns", "gristmill.tasks.dedup.order")


def split(checkout: Checkout) -> None:
    """The schema of the ledger has a module of its own."""
    schema = checkout.folder / "storage/schema.py"
    before, mark, after = schema.read_text().partition("LEDGER = ")
    definition, _, rest = after.partition("\n# What the steps")
    ledger = "import pyarrow as pa\n\nLEDGER = " + definition
    (checkout.folder / "storage/ledger_schema.py").write_text('"""Columns of the ledger."""\n\n' + ledger)
    moved = "from gristmill.storage.ledger_schema import LEDGER  # noqa: F401\n"
    head = before.replace("import pyarrow as pa\n", f"import pyarrow as pa\n\n{moved}", 1)
    schema.write_text(f"{head}# What the steps{rest}")
    assert mark


def remark(checkout: Checkout) -> None:
    """A comment, and functions that nobody uses."""
    for name in ("storage/files.py", "storage/parquet.py", "tasks/engine/spec.py", "tasks/documents/decisions.py"):
        path = checkout.folder / name
        path.write_text(path.read_text() + "\n\n# a remark\ndef never_used() -> int:\n    return 1\n")


def rewrite(checkout: Checkout) -> None:
    """Lines are as long as another style has them, and imports stand in another order."""
    ruff = [sys.executable, "-m", "ruff", "format", "--quiet", "--isolated", "--line-length", "79"]
    subprocess.run([*ruff, *(str(checkout.folder / room) for room in ("tasks", "storage", "flows"))], check=True)


CHANGES: tuple[Callable[[Checkout], None], ...] = (rename, move, join, split, remark, rewrite)


@pytest.fixture(scope="module")
def looked(undisturbed, recipe, tmp_path_factory):
    """A recipe that was run by the code as it is, and a copy of the code to change."""
    folder = tmp_path_factory.mktemp("versions")
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    return Checkout(folder / "code"), str(folder / "recipe.yaml"), str(undisturbed.home("undisturbed"))


@pytest.mark.extended
def test_code_that_is_renamed_moved_joined_split_and_rewritten_changes_no_key(looked):
    checkout, recipe, home = looked
    before = checkout.run(LOOK, recipe, home=home)
    assert len(before) > 20 and {same for _, same in before} == {"True"}
    for change in CHANGES:
        change(checkout)
        after = checkout.run(LOOK, recipe, home=home)
        assert [label for label, _ in after] == [label for label, _ in before], change.__name__
    assert {same for _, same in after} == {"False"}, "the code digests did change, and are recorded"


@pytest.mark.extended
@pytest.mark.parametrize("library", ["pyarrow", "publicsuffixlist"])
def test_another_release_of_a_library_changes_no_key(looked, tmp_path, library):
    _, recipe, home = looked
    checkout = Checkout.__new__(Checkout)
    checkout.folder = ROOT
    info = tmp_path / f"{library}-999.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {library}\nVersion: 999.0\n")
    program = f"from importlib.metadata import version; assert version({library!r}) == '999.0'\n{LOOK}"
    found = checkout.run(f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{program}", recipe, home=home)
    assert len(found) > 20


@pytest.mark.extended
def test_a_raised_version_makes_its_stage_and_those_whose_inputs_differ(recipe, tmp_path, monkeypatch):
    home, named = str(tmp_path / "home"), ("name", "seed", "sources")
    steps = [{"step": name} for name in ("extract", "language", "gopher_quality", "minhash", "pii")]
    given = load({name: recipe[name] for name in named} | {"steps": steps})

    def made() -> list[str]:
        *_, last = curate(context(home), given)
        return [stage.name for stage in last.left.stages if not stage.reused]

    assert made() == ["documents", "rules", "signatures", "candidates", "near_duplicates", "edited", "rules"]
    assert made() == []
    # equal contents: nothing after it is made again, but the stage that names the version
    monkeypatch.setattr(near_duplicates, "SIGNING", 2)
    assert made() == ["signatures", "near_duplicates"]
    monkeypatch.setattr(near_duplicates, "BANDING", 2)
    assert made() == ["candidates", "near_duplicates"]
    monkeypatch.setattr(near_duplicates, "ORDERING", 2)
    assert made() == ["near_duplicates"]
    monkeypatch.setattr(GopherQuality, "work_version", 3)
    assert made() == ["documents"], "the step's signals are as before"

    # other contents: an undeclared change makes nothing again, a declared one what reads them
    def one_more(step, batch):
        found = measure(step, batch)
        return found | {"gopher_quality_words": pc.add(found["gopher_quality_words"], 1)}

    measure = gopher_quality.measure
    monkeypatch.setattr(gopher_quality, "measure", one_more)
    assert made() == []
    monkeypatch.setattr(GopherQuality, "work_version", 4)
    assert made() == ["documents", "rules", "signatures", "candidates", "near_duplicates", "edited", "rules"]
