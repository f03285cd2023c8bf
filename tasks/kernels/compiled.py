"""numba with a disk cache for compiled kernels. Every module with kernels imports `nb` from here.

numba's own cache checks only the source file of a kernel, but a kernel also contains functions of other files that were
inlined into it. So the cache folder's name includes a digest of all modules in packages with kernels, and no kernel
outlives a change. numba also keys its cache by the path of the source file, so the name depends on that, too.

Kernels are compiled for a level of x86-64 processors instead of this machine's processor. So a wheel can bring them
(`packed`), and all machines that work on a home compute the same way.
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

# The features of the level x86-64-v3 (System V psABI 1.0, section 3.1.1), in LLVM's names: Intel since Haswell
# (2013), AMD since Excavator (2015). AVX-512 does not make rules or extraction faster. MinHash signatures take 0.8
# microseconds per document (400 hashes, 112 permutations) with it, and 1.3 without.
_X86_64_V3 = ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt")
_TASKS = Path(__file__).parents[1]
# mypy does not see its names: numba sets them when it is imported
config: Any = nb.config


def _choose_processor() -> str:
    """Set the processor that numba compiles for, and return its name.

    It is the one in `NUMBA_CPU_NAME` if that is set, x86-64-v3 if this machine supports it, or this machine's.
    """
    if not config.CPU_NAME and platform.machine() == "x86_64":
        features = llvm.get_host_cpu_features()
        if all(features.get(name) for name in _X86_64_V3):
            config.CPU_NAME = "x86-64-v3"
            config.CPU_FEATURES = ",".join(f"+{name}" for name in _X86_64_V3)
    return str(config.CPU_NAME or llvm.get_host_cpu_name())


def _sources() -> dict[str, str]:
    """Digests of the modules in all packages with kernels, by path relative to `tasks`."""
    packages = {path.parent for path in _TASKS.rglob("*.py") if b"kernels.compiled import nb" in path.read_bytes()}
    modules = sorted(path for package in packages for path in package.glob("*.py"))
    return {path.relative_to(_TASKS).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in modules}


def _name(*parts: object) -> str:
    return f"kernels-{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}"


def _caches() -> Path:
    """The user's cache folder, or a private folder in the temporary directory if that is not writable.

    Raises RuntimeError if neither is writable: numba would store kernels next to their sources, for good.
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
        f"compiled kernels cannot be stored: neither {home / 'gristmill'} nor {tempfile.gettempdir()} is "
        "writable only by you; set XDG_CACHE_HOME to a private folder"
    )


# Kernels of another numba, Python or processor cannot be used.
NAME = _name(_sources(), nb.__version__, sys.implementation.cache_tag, _choose_processor(), config.CPU_FEATURES)
FOLDER = _caches() / _name(NAME, bytes(_TASKS))
# This file exists once all kernels are compiled.
COMPLETE = FOLDER / "complete"

config.CACHE_DIR = str(FOLDER)

if not COMPLETE.is_file() and packed.unpack(NAME, FOLDER):
    COMPLETE.touch()
