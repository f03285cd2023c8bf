"""An archive of compiled kernels that a wheel brings, so a new machine unpacks kernels instead of compiling them.

numba stores the kernels of a package in a folder whose name is a digest of the package's path, which differs between
installations. The archive uses paths relative to `tasks`. Its name contains `compiled.NAME`, so an archive for another
numba or for changed sources is ignored.
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
    """The path of the archive of these kernels, which exists if this installation has one."""
    return Path(__file__).with_name(f"{name}.tar.xz")


def unpack(name: str, folder: Path) -> bool:
    """Unpack the archive into the folders of `folder` in which numba looks. Returns False if there is no archive.

    Files are renamed into place, so several processes can do this at the same time.
    """
    if not archive(name).is_file():
        return False
    with tarfile.open(archive(name)) as kernels:
        for member in kernels:
            content = kernels.extractfile(member)
            assert content is not None, "the archive contains only files"
            path = PurePosixPath(member.name)
            target = folder / _numba_folder(path.parent) / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            fresh = target.with_name(f"{target.name}.tmp.{os.getpid()}")
            fresh.write_bytes(content.read())
            fresh.replace(target)
    return True


def pack(name: str, folder: Path, target: Path) -> Path:
    """Write the archive of all kernels in `folder` to the folder `target`. The same kernels give the same bytes."""
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
    """A cached kernel without the dump of its types: the only string in it, and it contains paths and addresses."""
    return dumps(tuple("" if isinstance(part, str) else part for part in pickle.loads(kernel)))


def _numba_folder(package: PurePosixPath) -> str:
    """The name of numba's cache folder for the modules of a package."""
    return _CacheLocator.get_suitable_cache_subpath(str(TASKS / package / "_.py"))
