"""Kernels over Arrow buffers, compiled by numba and kept on disk.

numba notices that the file of a kept kernel has changed, but not that a function from another file has, which it
has compiled into it. So kernels are kept in a folder named by all sources of this package: none outlives a change.
"""

import hashlib
from pathlib import Path

import numba


def _sources() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


numba.config.CACHE_DIR = str(Path.home() / ".cache" / "gristmill" / f"kernels-{_sources()}")
