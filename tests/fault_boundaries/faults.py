"""What can happen at a boundary: the process is killed, the operation fails, the disk is full, the power goes.

Power that goes takes what was not made to last: of a file that was not fsynced a part is left, and a name in a folder
that was not fsynced may be gone.
"""

import errno
import os
import random
import shutil
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from tests.fault_boundaries.trace import Boundary

# killed ahead of the operation, behind it, EIO, ENOSPC from there on, the power goes in the operation
KINDS = ("before", "after", "error", "full", "torn")
KILLS = ("before", "after", "torn")
_GROWS = ("create", "write", "mkdir", "link")  # operations that need room on the disk


def possible(kind: str, boundary: Boundary) -> bool:
    return kind != "full" or boundary.operation in (*_GROWS, "fsync", "rename")


class Power:
    """What of the files below `home` has been made to last since this object was made."""

    def __init__(self, home: str) -> None:
        self._home, self._began = home, time.time()
        self._names: set[str] = set()  # new ones, in folders that were not fsynced since
        self._lengths: dict[tuple[int, int], int] = {}  # of files, when they were fsynced

    def named(self, path: str) -> None:
        """There is a new name."""
        self._names.add(path)

    def synced(self, descriptor: int) -> None:
        """A file or a folder was fsynced."""
        at = os.fstat(descriptor)
        if stat.S_ISDIR(at.st_mode):
            folder = os.readlink(f"/proc/self/fd/{descriptor}")
            self._names = {name for name in self._names if os.path.dirname(name) != folder}
        else:
            self._lengths[at.st_dev, at.st_ino] = at.st_size

    def goes(self, draw: random.Random) -> None:
        """Take from the disk what has not been made to last."""
        for path in sorted(filter(os.path.isfile, map(str, Path(self._home).rglob("*")))):
            at = os.stat(path)
            kept = min(self._lengths.get((at.st_dev, at.st_ino), 0), at.st_size)
            if at.st_ctime >= self._began and kept < at.st_size:
                os.truncate(path, draw.choice((kept, (kept + at.st_size) // 2, at.st_size)))
        for path in sorted(filter(os.path.lexists, self._names)):
            if draw.random() < 0.5:
                shutil.rmtree(path, ignore_errors=True)
                Path(path).unlink(missing_ok=True) if not os.path.isdir(path) else None


class Fault:
    """Comes at one boundary, once; of full disks every other one stays full. `reached`: a file that it writes when it
    comes."""

    def __init__(self, kind: str, boundary: Boundary, seed: int, power: Power, reached: Path) -> None:
        self._kind, self._boundary = kind, boundary
        self._draw, self._power, self._reached = random.Random(seed), power, reached
        self._full = False

    def __call__(self, boundary: Boundary, call: Callable[[], Any], partly: Callable[[], Any]) -> Any:
        if boundary != self._boundary:
            if self._full and boundary.operation in _GROWS:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return call()
        self._reached.touch()
        if self._kind == "before":
            _kill()
        if self._kind == "after":
            call()
            _kill()
        if self._kind == "torn":
            if boundary.operation == "write":
                partly()
            elif self._draw.random() < 0.5:
                call()
            self._power.goes(self._draw)
            _kill()
        partly()
        self._full = self._kind == "full" and self._draw.random() < 0.5
        code = errno.ENOSPC if self._kind == "full" else errno.EIO
        raise OSError(code, os.strerror(code))


def _kill() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    while True:
        signal.pause()
