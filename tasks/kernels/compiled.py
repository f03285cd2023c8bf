"""numba, which keeps compiled kernels on disk: every module with kernels imports it from here.

numba notices that the file of a kept kernel has changed, but not that a function from another file has, which it
has compiled into it. So kernels are kept in a folder named by the sources of all packages that have kernels, and what
goes into a kernel lies in one of these: none outlives a change. numba keeps kernels apart by the folder of their file,
too, which is in the name as well: or what is complete for one installation would seem so for another.
"""

import hashlib
import os
import tempfile
from pathlib import Path

import numba as nb


def _sources() -> str:
    digest = hashlib.sha256()
    packages = {
        path.parent
        for path in Path(__file__).parents[1].rglob("*.py")
        if b"kernels.compiled import nb" in path.read_bytes()
    }
    for path in sorted(path for package in packages for path in package.glob("*.py")):
        digest.update(bytes(path))
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


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


FOLDER = _caches() / f"kernels-{_sources()}"

# mypy does not see this name: numba sets those of its configuration when it is imported
nb.config.CACHE_DIR = str(FOLDER)  # type: ignore[attr-defined]
