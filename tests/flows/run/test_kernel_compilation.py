"""All kernels are compiled ahead, by one process, and a run finds each of them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gristmill.flows.run.kernel_calls import CALLS
from gristmill.flows.run.kernel_compilation import PARTS, kernels
from tests.golden.contents import other_installed

ROOT = Path(__file__).resolve().parents[3]
COMPILE = [sys.executable, "-P", "-c", "from gristmill.flows.cli import main; main()", "compile"]
# what numba compiles in this process, one name a line
LISTEN = """
import sys
from numba.core import event
class Compiled(event.Listener):
    def on_start(self, event): pass
    def on_end(self, event): print("compiled", event.data["dispatcher"].py_func.__qualname__)
event.register("numba:compile", Compiled())
"""


def test_every_kernel_is_known_by_its_text():
    """As numba knows them: all dispatchers of the modules that are not inlined."""
    from importlib import import_module

    from numba.core.dispatcher import Dispatcher

    found = set()
    for path in (ROOT / "tasks").rglob("*.py"):
        if "@nb.njit" in path.read_text(encoding="utf-8"):
            name = ".".join(("gristmill", *path.relative_to(ROOT).with_suffix("").parts))
            for value in vars(import_module(name)).values():
                if isinstance(value, Dispatcher) and value.targetoptions.get("inline", "never") == "never":
                    found.add(f"{value.py_func.__module__}.{value.py_func.__qualname__}")
    assert kernels() == found


@pytest.mark.extended
def test_kernels_are_kept_in_one_folder_whatever_is_imported_first(tmp_path):
    """A package that cannot be written has no __pycache__, and one that can would keep them past a change."""
    read = """
import sys
from importlib import import_module
from numba.core.dispatcher import Dispatcher
for value in list(vars(import_module(sys.argv[1])).values()):
    if isinstance(value, Dispatcher):
        print(value.stats.cache_path)
"""
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    for module in ("gristmill.tasks.extraction.classifier", "gristmill.tasks.extraction.nesting"):
        command = [sys.executable, "-P", "-c", read, module]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        paths = done.stdout.splitlines()
        assert paths and all(path.startswith(f"{tmp_path}/gristmill/kernels-") for path in paths)


def test_each_part_has_its_calls():
    assert tuple(CALLS) == PARTS


@pytest.mark.extended
@pytest.mark.parametrize("part", PARTS)
def test_each_part_runs_to_its_end(part):
    """Where kernels are there already a run does not call it, and a new step that it cannot call would not be seen."""
    CALLS[part]()


@pytest.mark.extended
def test_kernels_of_a_run_that_was_killed_are_found_by_the_next(tmp_path):
    """numba stores each kernel when it is ready, so the next process compiles none of those that are counted."""
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    names = {"_holdout", "_holdouts"}
    use = f"""{LISTEN}
import os, signal
import numpy as np
from gristmill.flows.run.kernel_compilation import _stored, kernels
from gristmill.tasks.kernels.minhash import holdout
print("stored", *_stored(kernels()))
holdout(np.arange(4, dtype=np.uint64), np.array([0, 2, 4]), 1)
print("stored", *_stored(kernels()), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    said = []
    for _ in range(2):
        run = subprocess.run([sys.executable, "-P", "-c", use], env=environment, stdout=subprocess.PIPE, text=True)
        said.append([{word.rpartition(".")[2] for word in line.split()} for line in run.stdout.splitlines()])
    assert said[0][0] == {"stored"} and said[0][-1] == {"stored", *names}
    assert {"compiled", "_holdout"} in said[0] and {"compiled", "_holdouts"} in said[0]
    assert said[1] == [{"stored", *names}] * 2


@pytest.mark.slow
def test_two_processes_compile_all_kernels_once_and_a_run_compiles_none(tmp_path):
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    both = [
        subprocess.Popen(COMPILE, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    said = sorted(child.communicate()[0].splitlines()[-1] for child in both)
    assert said == [f"kernels: {len(kernels())} compiled", "kernels: already compiled"]
    assert {child.returncode for child in both} == {0}
    run = [sys.executable, "-c", f"{LISTEN}\nimport pytest; sys.exit(pytest.main(sys.argv[1:]))", "-q", "-s"]
    tests = ["tests/flows/test_dedup_steps.py", "tests/tasks/extraction/test_extract.py"]
    done = subprocess.run([*run, *tests], env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    anew = {f"compiled {name.rpartition('.')[2]}" for name in kernels()} & set(done.stdout.splitlines())
    assert anew == set()


def installed(place):
    """An installation of the kernels alone."""
    package = place / "gristmill" / "tasks" / "kernels"
    shutil.copytree(ROOT / "tasks" / "kernels", package, ignore=shutil.ignore_patterns("__pycache__"))
    for above in package.parents[:2]:
        (above / "__init__.py").touch()
    return package


@pytest.mark.extended
def test_kernels_of_another_installation_are_not_taken_for_ours(tmp_path):
    """numba would not find them there, and each process would compile its own."""
    folders = set()
    for place in ("one", "two"):
        installed(tmp_path / place)
        environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(tmp_path / place)}
        command = [
            sys.executable,
            "-P",
            "-c",
            "import gristmill.tasks.kernels.compiled; print(gristmill.tasks.kernels.compiled.FOLDER)",
        ]
        folders.add(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(folders) == 2


# what numba compiles, where it keeps that, and the archive of it, if there is an argument
USE = f"""{LISTEN}
import numpy as np
from pathlib import Path
from gristmill.tasks.kernels import compiled, packed
from gristmill.tasks.kernels.minhash import holdout
holdout(np.arange(4, dtype=np.uint64), np.array([0, 2, 4]), 1)
print("complete", compiled.COMPLETE.is_file())
for target in sys.argv[1:]:
    print("packed", packed.pack(compiled.NAME, compiled.FOLDER, Path(target)))
"""


def used(place, *targets):
    environment = os.environ | {"XDG_CACHE_HOME": str(place / "cache"), "PYTHONPATH": str(place)}
    command = [sys.executable, "-P", "-c", USE, *map(str, targets)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=place)
    return dict(line.split(maxsplit=1) for line in done.stdout.splitlines())


@pytest.mark.slow
@pytest.mark.skipif(bool(other_installed(["numba"])), reason="wheels are built with numba of constraints.txt")
def test_an_installation_that_brings_its_kernels_compiles_none(tmp_path):
    one, two, changed = (tmp_path / name for name in ("one", "another/two", "changed"))
    kernels_of = {place: installed(place) for place in (one, two, changed)}
    with (kernels_of[changed] / "characters.py").open("a") as module:
        module.write("# kernels of this may be other ones\n")
    made = used(one, *kernels_of.values())
    assert "compiled" in made and made["complete"] == "False"
    assert used(two) == {"complete": "True"}
    assert used(changed).keys() == {"compiled", "complete"}
    # the same kernels are the same archive, wherever they were compiled
    other, again = tmp_path / "elsewhere" / "three", tmp_path / "again"
    installed(other)
    again.mkdir()
    archive = Path(used(other, again)["packed"])
    assert archive.read_bytes() == (kernels_of[one] / archive.name).read_bytes()
