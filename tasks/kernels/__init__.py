"""Kernels over Arrow buffers, compiled by numba and kept on disk.

numba notices that the file of a kept kernel has changed, but not that a function from another file has, which it
has compiled into it. So kernels are kept in a folder named by the sources of all packages that have kernels, and what
goes into a kernel lies in one of these: none outlives a change.
"""

import hashlib
from pathlib import Path

import numba


def _sources() -> str:
    digest = hashlib.sha256()
    packages = {
        path.parent for path in Path(__file__).parents[1].rglob("*.py") if b"\nimport numba" in path.read_bytes()
    }
    for path in sorted(path for package in packages for path in package.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


# mypy does not see this name: numba sets those of its configuration when it is imported
numba.config.CACHE_DIR = str(Path.home() / ".cache" / "gristmill" / f"kernels-{_sources()}")  # type: ignore[attr-defined]
