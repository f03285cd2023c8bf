"""A wheel that is built from the project: all files that the code reads are in it, and its commands run."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
READ = (".html", ".css", ".js", ".yaml", ".json", ".safetensors", ".txt", ".toml")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_wheel_has_the_files_that_the_code_reads(tmp_path):
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
        archive.extractall(tmp_path / "installed")
    there = {
        path.relative_to(ROOT).as_posix()
        for room in ("flows", "tasks", "storage", "training")
        for path in (ROOT / room).rglob("*")
        if path.is_file() and (path.suffix in READ or path.suffix == ".py") and "__pycache__" not in path.parts
    }
    assert not {f"gristmill/{name}" for name in there if not name.startswith("tasks/models/lmplz_bin")} - packed
    assert {"gristmill/py.typed", "gristmill/functions.pyi"} <= packed, "or type checkers see nothing"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed"), "GRISTMILL_HOME": str(tmp_path / "home")}
    code = "import gristmill, sys; print(gristmill.__file__); sys.argv[1:] = ['recipe', 'rules', 'gopher_quality']; "
    code += "from gristmill.flows.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path / "installed")) and "gopher_quality" in done.stdout
