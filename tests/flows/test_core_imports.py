"""Without the extra `train` a corpus can be made: nothing on the way to it imports torch or MLflow."""

import subprocess
import sys
from pathlib import Path

import pytest

from gristmill.flows.machine import settings

ROOT = Path(__file__).resolve().parents[2]
REFUSE = """
import importlib, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "mlflow"):
            raise ModuleNotFoundError(f"refused: {name}", name=name)
sys.meta_path.insert(0, Refuse())
for name in sys.argv[1:]:
    importlib.import_module(name)
"""
CORPUS = (
    "gristmill",
    "gristmill.flows.recipe.recipe",
    "gristmill.flows.cli",
    "gristmill.flows.curation",
    "gristmill.flows.recipe.steps",
    "gristmill.flows.pipeline",
    "gristmill.tasks.tokens.encoding",
)


def test_a_corpus_needs_neither_torch_nor_mlflow():
    program = REFUSE + "import gristmill; gristmill.corpus, gristmill.tokens, gristmill.__version__"
    done = subprocess.run([sys.executable, "-c", program, *CORPUS], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_hook_refuses():
    done = subprocess.run(
        [sys.executable, "-c", REFUSE, "gristmill.training.run.loop"], cwd=ROOT, capture_output=True, text=True
    )
    assert "refused: torch" in done.stderr


def test_a_missing_extra_is_named_with_its_remedy(monkeypatch):
    settings.require("train", "training")
    monkeypatch.setitem(settings.EXTRAS, "train", ("torch", "no_such_package"))
    with pytest.raises(
        settings.MissingExtraError, match=r"training needs no_such_package: pip install 'gristmill\[train\]'"
    ):
        settings.require("train", "training")
