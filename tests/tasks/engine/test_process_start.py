"""What a process takes once is told from what its jobs take: planted modules, kernels and children burn CPU time."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BURN = """
import time
began = time.thread_time()
while time.thread_time() - began < {seconds}: pass
"""
HEAD = "from gristmill.tasks.engine.job_costs import measured\nwith measured() as found:"
SAID = "import json; print(json.dumps([cost.cpu_seconds, cost.start_seconds]))"


def measured(folder, work, before=""):
    """CPU seconds of some lines as a job of a fresh process, which ran others before, and of these those of its
    start."""
    program = f"{before}\n{HEAD}\n{work}\ncost = found.cost\n{SAID}"
    found = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "NUMBA_CACHE_DIR": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(found.stdout)


def indented(text):
    return textwrap.indent(text, "    ")


def test_imports_count_once_with_those_within_them_and_work_does_not(tmp_path):
    (tmp_path / "inner_planted.py").write_text(BURN.format(seconds=0.2))
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted" / "__init__.py").write_text("import inner_planted" + BURN.format(seconds=0.2))
    work = indented("import planted\nimport planted\nimport inner_planted" + BURN.format(seconds=0.3))
    taken, start = measured(tmp_path, work)
    assert 0.4 <= start < 0.5 and 0.7 <= taken < 0.85


def test_an_import_that_fails_counts_and_leaves_the_count_right(tmp_path):
    (tmp_path / "broken_planted.py").write_text(BURN.format(seconds=0.2) + "raise ImportError('planted')")
    work = "try:\n    import broken_planted\nexcept ImportError:\n    pass\ntry:\n    import nowhere_planted\n"
    work += "except ModuleNotFoundError:\n    pass" + BURN.format(seconds=0.3)
    taken, start = measured(tmp_path, indented(work))
    assert 0.2 <= start < 0.3 <= taken - start < 0.4


@pytest.mark.extended
def test_kernels_count_when_they_are_compiled_and_when_they_are_loaded(tmp_path):
    # so many lines take longer to compile than the times of two processes differ by
    lines = "".join(f"        found += (i * {k}.5) % 7.25\n" for k in range(100))
    (tmp_path / "kernel_planted.py").write_text(
        "import numba, time\n@numba.njit(cache=True)\ndef total(n):\n    found = 0.0\n    for i in range(n):\n"
        f"{lines}    return found\n"
    )
    call = "kernel_planted.total(1)" + BURN.format(seconds=0.2)
    compiled, loaded = (measured(tmp_path, indented(call), "import kernel_planted") for _ in range(2))
    assert compiled[1] > loaded[1] > 0
    assert 0.2 <= compiled[0] - compiled[1] < 0.3 and 0.2 <= loaded[0] - loaded[1] < 0.3
    taken, start = measured(tmp_path, indented("import kernel_planted\n" + call))
    assert start > loaded[1] and taken - start >= 0.2


def test_a_module_has_its_own_loader(tmp_path):
    """Who asks a module for its loader, its source or its files gets what there is without the count."""
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted" / "__init__.py").write_text("def one():\n    return 1\n")
    (tmp_path / "planted" / "data.txt").write_text("here")
    work = """
import importlib, importlib.machinery, importlib.resources, inspect
import planted, json.tool
assert type(planted.__loader__) is importlib.machinery.SourceFileLoader
assert "return 1" in inspect.getsource(planted.one)
assert (importlib.resources.files("planted") / "data.txt").read_text() == "here"
assert importlib.reload(planted).one() == 1
"""
    measured(tmp_path, indented(work))


@pytest.mark.extended
def test_a_loader_of_many_modules_is_counted_once(tmp_path):
    """As those that find and load what they themselves make: pytest's, and six's."""
    work = """
import sys
from importlib.machinery import ModuleSpec

class Maker:
    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self) if name.startswith("made_") else None
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        module.depth = len(__import__("inspect").stack(0))

sys.meta_path.append(Maker())
depths = [__import__(f"made_{number}").depth for number in range(300)]
assert len(set(depths)) == 1, (min(depths), max(depths))
"""
    measured(tmp_path, indented(work))


def test_the_start_of_a_guard_counts_with_that_of_its_child(tmp_path):
    (tmp_path / "guarded_planted.py").write_text(BURN.format(seconds=0.4) + "def double(n):\n    return {'n': 2 * n}\n")
    work = """
from gristmill.tasks.guard.parent import Guard
with Guard("guarded_planted:double") as guard:
    assert [found["n"] for found in guard.map((n,) for n in range(3))] == [0, 2, 4]
"""
    taken, start = measured(tmp_path, indented(work))
    assert 0.38 <= start <= taken
