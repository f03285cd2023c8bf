"""Wheels that are built from the project: all files that the code reads are in them, their commands run, and two builds
are the same bytes."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
READ = (".html", ".css", ".js", ".yaml", ".json", ".safetensors", ".txt", ".toml")
COMPILED = "gristmill/tasks/models/compiled"
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def build(folder: Path, umask: int) -> Path:
    """Build the wheel of a copy of the project's files, which git knows or would add, in a folder."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        if os.path.lexists(ROOT / name):
            target = folder / "sources" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target, follow_symlinks=False)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, folder / "sources"]
    (folder / "temporary").mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"SOURCE_DATE_EPOCH": "1700000000", "TMPDIR": str(folder / "temporary")}
    subprocess.run(command, check=True, env=environment, umask=umask)
    [wheel] = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"), 0o022)


def test_a_wheel_has_the_files_that_the_code_reads(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
        archive.extractall(tmp_path / "installed")
    there = {
        path.relative_to(ROOT).as_posix()
        for room in ("flows", "tasks", "storage", "training")
        for path in (ROOT / room).rglob("*")
        if path.is_file()
        and (path.suffix in READ or path.suffix == ".py")
        and "__pycache__" not in path.parts
        and not path.name.startswith(".stamp")  # of what a checkout has compiled
    }
    assert not {f"gristmill/{name}" for name in there} - packed
    assert {"gristmill/py.typed", "gristmill/functions.pyi"} <= packed, "or type checkers see nothing"
    [man_page] = [name for name in packed if name.endswith(".data/data/share/man/man1/gristmill.1")]
    assert (tmp_path / "installed" / man_page).read_bytes() == (ROOT / "docs/gristmill.1").read_bytes()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed"), "GRISTMILL_HOME": str(tmp_path / "home")}
    code = "import gristmill, sys; print(gristmill.__file__); sys.argv[1:] = ['recipe', 'rules', 'gopher_quality']; "
    code += "from gristmill.flows.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path / "installed")) and "gopher_quality" in done.stdout


def test_a_wheel_has_the_compiled_code_of_its_python_and_the_licenses(wheel):
    interpreter = f"cp{sys.version_info.major}{sys.version_info.minor}"
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert wheel.name.endswith(f"-{interpreter}-{interpreter}-{platform}.whl")
    with zipfile.ZipFile(wheel) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
        compiled = [name for name in entries if name.startswith(COMPILED) and not name.endswith((".py", ".pyi"))]
        names = ("build_binary", f"fasttext_pybind{SUFFIX}", f"kenlm{SUFFIX}", "lmplz")
        assert sorted(compiled) == [f"{COMPILED}/{name}" for name in names]
        assert all(entries[name].external_attr >> 16 & 0o111 == 0o111 for name in compiled)
        [metadata] = [name for name in entries if name.endswith(".dist-info/METADATA")]
        lines = archive.read(metadata).decode().splitlines()
    texts = {path.name for path in (ROOT / "native" / "licenses").iterdir()}
    assert {f"License-File: native/licenses/{name}" for name in texts} < set(lines)
    assert {f"{Path(metadata).parent}/licenses/native/licenses/{name}" for name in texts} < entries.keys()
    assert not [line for line in lines if line.startswith(("Requires-Dist: kenlm", "Requires-Dist: fasttext"))]


def test_two_builds_are_the_same_bytes(wheel, tmp_path):
    other = build(tmp_path / "a folder with another, longer name", 0o077)
    assert other.name == wheel.name
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(other) as two:
        assert one.namelist() == two.namelist()
        assert [name for name in one.namelist() if one.read(name) != two.read(name)] == []
        folder = str(wheel.parent).encode()
        assert [name for name in one.namelist() if folder in one.read(name)] == []
    assert other.read_bytes() == wheel.read_bytes()
