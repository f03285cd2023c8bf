"""numba, which keeps compiled kernels on disk: every module with kernels imports it from here.

numba notices that the file of a kept kernel has changed, but not that a function from another file has, which it
has compiled into it. So kernels are kept in a folder named by the sources of all packages that have kernels, and what
goes into a kernel lies in one of these: none outlives a change. numba keeps kernels apart by the folder of their file,
too, which is in the name as well: or what is complete for one installation would seem so for another.

Kernels are compiled for a level of processors rather than for the machine's own, so that a wheel can bring them
(`packed`), and machines with one home compute alike.
"""

import hashlib
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

import numba as nb
from llvmlite import binding as llvm

from gristmill.tasks.kernels import packed

# What processors since Intel's Haswell (2013) and AMD's Excavator (2015) have: the level x86-64-v3 of the System V ABI
# (psABI 1.0, section 3.1.1), by LLVM's names. Rules and extraction are as fast as with AVX-512; signatures of MinHash
# take 1.3 microseconds a document in place of 0.8.
_X86_64_V3 = ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt")
_TASKS = Path(__file__).parents[1]
# mypy does not see its names: numba sets them when it is imported
config: Any = nb.config


def _choose_processor() -> str:
    """Have numba compile for x86-64-v3 where this machine has it, unless `NUMBA_CPU_NAME` names another; else for this
    processor. Returns its name."""
    if not config.CPU_NAME and platform.machine() == "x86_64":
        features = llvm.get_host_cpu_features()
        if all(features.get(name) for name in _X86_64_V3):
            config.CPU_NAME = "x86-64-v3"
            config.CPU_FEATURES = ",".join(f"+{name}" for name in _X86_64_V3)
    return str(config.CPU_NAME or llvm.get_host_cpu_name())


def _sources() -> dict[str, str]:
    """The digests of the modules of all packages that have kernels, by their paths below `tasks`."""
    packages = {path.parent for path in _TASKS.rglob("*.py") if b"kernels.compiled import nb" in path.read_bytes()}
    modules = sorted(path for package in packages for path in package.glob("*.py"))
    return {path.relative_to(_TASKS).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in modules}


def _name(*parts: object) -> str:
    return f"kernels-{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}"


def _caches() -> Path:
    """The user's folder of caches, or one beside the temporary files where that cannot be written.

    Raises RuntimeError if neither can: numba would keep kernels beside their sources, which outlive a change there.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    for folder in (home / "gristmill", Path(tempfile.gettempdir()) / f"gristmill-{os.getuid()}"):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError:
            continue
        # numba unpickles what it finds here, so nobody else may write it
        if folder.stat().st_uid == os.getuid() and not folder.stat().st_mode & 0o022:
            return folder
    raise RuntimeError(
        f"compiled kernels cannot be kept: neither {home / 'gristmill'} nor {tempfile.gettempdir()} can be written by "
        "you alone; name a folder in XDG_CACHE_HOME"
    )


# numba compiles anew for another numba, Python or processor
NAME = _name(_sources(), nb.__version__, sys.implementation.cache_tag, _choose_processor(), config.CPU_FEATURES)
FOLDER = _caches() / _name(NAME, bytes(_TASKS))
# The file that is there once all kernels are.
COMPLETE = FOLDER / "complete"

config.CACHE_DIR = str(FOLDER)

if not COMPLETE.is_file() and packed.unpack(NAME, FOLDER):
    COMPLETE.touch()
