"""A full disk, said in one sentence, whoever met it: Python, Arrow, a C++ library, SQLite, a process of ours."""

import errno
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gristmill.storage import files

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# strerror(3) of these, and what SQLite says
_WORDS = ("No space left on device", "Disk quota exceeded", "File too large", "database or disk is full")


class DiskFullError(OSError):
    """There is no space left where a stage is made; the message names the folder, the free space and the remedy."""


def is_full(error: BaseException) -> bool:
    """Whether an error, or one behind it, says that a disk is full or that a file may not grow."""
    seen: BaseException | None = error
    while seen is not None:
        if getattr(seen, "errno", None) in _FULL or any(word in str(seen) for word in _WORDS):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


@contextmanager
def said_of(folder: str) -> Iterator[None]:
    """Raise DiskFullError, which names the folder, in place of an error within the block that says a disk is full."""
    try:
        yield
    except DiskFullError:
        raise
    except Exception as error:
        if is_full(error):
            raise disk_full(folder) from error
        raise


def disk_full(folder: str) -> DiskFullError:
    """The error for a stage's folder: what is free there, and where temporary files lie."""
    scratch = tempfile.gettempdir()
    free = f"{_free(scratch)} for temporary files in {scratch}"
    if files.is_local(folder):
        free = f"{_free(folder)} there, {free}"
    return DiskFullError(
        f"{folder}: a file could not be written, since the disk is full or a limit is reached (free: {free}): make "
        "room and run the same command again, which goes on where it was"
    )


def _free(path: str) -> str:
    """What is free where a path lies, or will lie."""
    there = next(folder for folder in (Path(path), *Path(path).parents) if folder.exists())
    return f"{shutil.disk_usage(there).free / 1e6:,.1f} MB"
