"""The module `gristmill`: it gives the flows, writes nothing, and names a package that hides one of ours."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def run(program: str, folder: Path, *path: Path) -> subprocess.CompletedProcess[str]:
    """A program in a folder, with folders on the path of its modules."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "GRISTMILL_"))}
    environment = ours | {"PYTHONPATH": os.pathsep.join(map(str, path)), "HOME": str(folder)}
    command = [sys.executable, "-P", "-c", program]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.mark.parametrize("statement", ["import gristmill", "import flows", "from flows import recipe"])
def test_an_import_writes_nothing_and_loads_no_prefect(folder, statement):
    done = run(f"import sys; {statement}; print([n for n in ('prefect', 'numba') if n in sys.modules])", folder, ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(folder.iterdir()) == []
    assert done.stdout == "[]\n"


def test_it_gives_the_flows_and_what_goes_with_them(folder):
    program = (
        "import gristmill; from gristmill import corpus, pipeline; import flows.pipeline\n"
        "import prefect; print(isinstance(pipeline, prefect.Flow), flows.pipeline.pipeline is pipeline)\n"
        "print(pipeline.name, corpus.name)\n"
        "print(gristmill.load('demo').name, gristmill.Report.__name__, gristmill.__version__)\n"
        "print(*(getattr(gristmill, name).__name__ for name in gristmill.__all__ if name != '__version__'))\n"
        "print(set(gristmill.__all__) <= set(dir(gristmill)), hasattr(gristmill, 'nothing'))"
    )
    done = run(program, folder, ROOT)
    assert done.returncode == 0, done.stderr
    every = (
        "AgreementReport DecisionReport FoundMixture Report ScalingReport ablate agreement corpus load mix pipeline "
        "pretrain scale tokens"
    )
    assert done.stdout.splitlines() == ["True True", "pipeline corpus", "demo Report 0.1.0", every, "True False"]


@pytest.mark.parametrize("name", ["flows", "storage", "tasks", "training"])
@pytest.mark.parametrize("kind", ["package", "module"])
def test_another_package_that_hides_ours_is_named(folder, tmp_path, name, kind):
    other = tmp_path / "other" / (f"{name}/__init__.py" if kind == "package" else f"{name}.py")
    other.parent.mkdir(parents=True)
    other.write_text("raise SystemExit('must not be imported')\n")
    done = run("import gristmill", folder, tmp_path / "other", ROOT)
    assert done.returncode == 1
    error = done.stderr.splitlines()[-1]
    shown = other.parent if kind == "package" else other
    assert error.startswith(f"ImportError: gristmill needs its own package `{name}` in {ROOT}")
    assert f"finds another of that name first: {shown}. " in error and "PYTHONPATH" in error


def test_a_package_that_is_missing_is_named(folder, tmp_path):
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "gristmill.py").write_text((ROOT / "gristmill.py").read_text())
    command = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        f"import sys; sys.path.append({str(tmp_path / 'alone')!r}); import gristmill",
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert f"gristmill's own package `flows` is not in {tmp_path / 'alone'}: install" in done.stderr
