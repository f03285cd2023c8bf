"""Compiled kernels in one archive, which wheels carry: a fresh machine unpacks them in place of compiling them.

numba keeps the kernels of a package in a folder named by the package's own path, which differs between installations.
In the archive they are named by their path below `tasks`. It is found by what decides kernels (`compiled.NAME`), so
that of another numba or of changed sources is not taken.
"""

import io
import os
import pickle
import tarfile
from pathlib import Path, PurePosixPath

from numba.core.caching import _CacheLocator
from numba.core.serialize import dumps

TASKS = Path(__file__).parents[1]
ENDINGS = (".nbi", ".nbc")


def archive(name: str) -> Path:
    """Where the archive of these kernels is, if this installation has one."""
    return Path(__file__).with_name(f"{name}.tar.xz")


def unpack(name: str, folder: Path) -> bool:
    """Write the kernels of the archive where numba looks for them below `folder`; False if there is no archive.

    Each file appears whole, so processes may do so at once.
    """
    if not archive(name).is_file():
        return False
    with tarfile.open(archive(name)) as kernels:
        for member in kernels:
            content = kernels.extractfile(member)
            assert content is not None, "it has nothing but files"
            path = PurePosixPath(member.name)
            target = folder / _numba_folder(path.parent) / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            fresh = target.with_name(f"{target.name}.tmp.{os.getpid()}")
            fresh.write_bytes(content.read())
            fresh.replace(target)
    return True


def pack(name: str, folder: Path, target: Path) -> Path:
    """Write the archive of all kernels below `folder` into the folder `target`: the same bytes for the same kernels."""
    path = target / archive(name).name
    packages = {_numba_folder(PurePosixPath(one.relative_to(TASKS))): one for one in TASKS.rglob("*") if one.is_dir()}
    with tarfile.open(path, "w:xz", format=tarfile.USTAR_FORMAT) as kernels:
        names = {
            f"{packages[file.parent.name].relative_to(TASKS).as_posix()}/{file.name}": file
            for file in folder.rglob("*")
            if file.suffix in ENDINGS
        }
        for name, file in sorted(names.items()):
            entry = tarfile.TarInfo(name)
            content = _without_annotation(file.read_bytes()) if file.suffix == ".nbc" else file.read_bytes()
            entry.size = len(content)
            kernels.addfile(entry, io.BytesIO(content))
    return path


def _without_annotation(kernel: bytes) -> bytes:
    """A kept kernel without the listing of its types, its only text, which has paths and addresses of the process."""
    return dumps(tuple("" if isinstance(part, str) else part for part in pickle.loads(kernel)))


def _numba_folder(package: PurePosixPath) -> str:
    """The name of numba's folder for the modules of a package."""
    return _CacheLocator.get_suitable_cache_subpath(str(TASKS / package / "_.py"))
