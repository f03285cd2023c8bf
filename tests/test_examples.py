"""The notebooks in `examples/` run from an empty folder, and show what they are there to show."""

import json
import re
import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.conftest import Runs

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))

pytestmark = pytest.mark.slow


def executed(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """The outputs of a notebook that runs in the folder, in order."""
    for variable, value in Runs(folder).environment("unused").items():
        monkeypatch.setenv(variable, value)
    monkeypatch.delenv("GRISTMILL_HOME")  # the home is in the folder
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    shutil.copy(EXAMPLES / "docstrings.py", folder)
    notebook = nbformat.read(EXAMPLES / name, as_version=4)
    place = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=900, startup_timeout=300, kernel_name="python3", resources=place).execute()
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def texts(outputs: list[dict]) -> str:
    """What the cells return or print, as plain text."""
    shown = [
        each.get("data", {}).get("text/plain", each.get("text", "")) for each in outputs if each.get("name") != "stderr"
    ]
    return "\n".join(shown)


def plots(outputs: list[dict]) -> int:
    return sum("image/png" in each.get("data", {}) for each in outputs)


def tables(outputs: list[dict]) -> int:
    return sum("<table" in each.get("data", {}).get("text/html", "") for each in outputs)


def test_notebooks_are_saved_without_outputs():
    assert len(NOTEBOOKS) == 2
    for path in NOTEBOOKS:
        cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
        assert cells and not any(cell["outputs"] or cell["execution_count"] for cell in cells)


def test_a_first_corpus(tmp_path, monkeypatch):
    outputs = executed("first_corpus.ipynb", tmp_path, monkeypatch)
    text = texts(outputs).replace(",", "")
    kept, extracted = map(int, re.search(r"(\d+) of (\d+) documents", text).groups())
    assert 200 < kept < extracted / 4, "most docstrings are short, or repeat a parent's"
    assert "near_duplicate" in text and re.search(r"python:\S+ +0\.[789]\d* +True", text)
    assert plots(outputs) == 3 and tables(outputs) >= 5
    assert "context manager" in text and list((tmp_path / "documents").rglob("*.parquet"))


def test_a_first_decision(tmp_path, monkeypatch):
    """So few runs may be inconclusive; bytecode among the tokens costs a model of English."""
    outputs = executed("first_decision.ipynb", tmp_path, monkeypatch)
    text = texts(outputs)
    assert len(re.findall(r"^.*90% interval.*$", text, re.MULTILINE)) >= 2
    assert "gopher_quality.min_words=10" in text and "raw" in text
    assert plots(outputs) == 1 and tables(outputs) >= 1
