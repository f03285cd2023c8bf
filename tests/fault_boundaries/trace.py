"""The operations by which a run changes its home, each under a name by which it is found again in another run.

An operation is numbered by its path, not by its place in the run: threads may be at work.
"""

import errno
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Protocol

from gristmill.storage import exclusive, files

_RUN = re.compile(r"(runs/[^/]+/)\d{8}-\d{6}-\d{6}-[0-9a-f]{4}")  # the time of a run, and a draw
_TEMPORARY = re.compile(r"(?:^|(?<=/))\.?([^/]+?)\.[0-9a-f]{16}-\d+-[0-9a-f]{16}\.[0-9a-f]+(\.tmp|(?=\.))")
_KINDS = (
    ("lease", r"lease(/.*)?"),
    ("done mark", r"done/.*"),
    ("manifest", r"manifest\.json"),
    ("parts list", r"parts\.json"),
    ("costs", r"cost\.json"),
    ("part", r"(part-|train-|heldout-|ledger/|edits/).*"),
)


@dataclass(frozen=True, order=True)
class Boundary:
    """`at`: the folder of the stage that is being made, `<name>-<key>`; `path`: from the home, temporary files as
    `<name>~`; `nth`: of the operations of this kind on the path, from 1."""

    at: str
    operation: str
    path: str
    nth: int

    @property
    def stage(self) -> str:
        return self.at.rpartition("-")[0] or self.at

    @property
    def kind(self) -> str:
        """What kind of file or folder it is."""
        if self.path.startswith("runs"):
            return "run record"
        inner = self.path.removeprefix(f"stages/{self.at}").removeprefix("/")
        inner = inner.removeprefix("export/").removesuffix("~")
        if "." not in inner.rpartition("/")[2]:
            return "lease" if inner == "lease" else "folder"
        return next((kind for kind, pattern in _KINDS if re.fullmatch(pattern, inner)), "other file")

    def __str__(self) -> str:
        return f"{self.operation} {self.path} ({self.nth})"


class Acting(Protocol):
    """What becomes of an operation. `call` does it; `partly` does a part of it, as a disk that fails in its middle."""

    def __call__(self, boundary: Boundary, call: Callable[[], Any], partly: Callable[[], Any]) -> Any: ...


class Lasting(Protocol):
    """Keeps account of what would outlast a crash of the machine."""

    def named(self, path: str) -> None: ...

    def synced(self, descriptor: int) -> None: ...


class Disk:
    """Sees the operations below `home` while it is installed, in the order in which `acting` is given them."""

    def __init__(self, home: str, acting: Acting, lasting: Lasting | None = None) -> None:
        self.at = "begin"
        self.lasting = lasting
        self._home, self._acting = home.rstrip("/") + "/", acting
        self._counts: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def relative(self, path: str) -> str | None:
        """The path from the home, as boundaries have it; None outside of it."""
        if not (path := os.path.abspath(path)).startswith(self._home):
            return None
        return _RUN.sub(r"\1run", _TEMPORARY.sub(r"\1~", path.removeprefix(self._home)))

    def operation(self, name: str, path: str, call: Callable[[], Any], partly: Callable[[], Any] = lambda: None) -> Any:
        if (relative := self.relative(path)) is None:
            return call()
        with self._lock:
            self._counts[name, relative] += 1
            boundary = Boundary(self.at, name, relative, self._counts[name, relative])

        def named() -> Any:
            there = os.path.lexists(path)
            result = call()
            if self.lasting is not None and not there and os.path.lexists(path):
                self.lasting.named(path)
            return result

        return self._acting(boundary, named, partly)


class Recorder:
    """Does every operation, and notes its boundary if it succeeds."""

    def __init__(self) -> None:
        self.boundaries: list[Boundary] = []

    def __call__(self, boundary: Boundary, call: Callable[[], Any], partly: Callable[[], Any]) -> Any:
        result = call()
        self.boundaries.append(boundary)
        return result


class Written:
    """A file that is being written, of which each write is an operation."""

    def __init__(self, file: IO[bytes], disk: Disk, path: str) -> None:
        self._file, self._disk, self._path = file, disk, path

    def write(self, data: Any) -> int:
        whole = memoryview(data).cast("B")

        def partly() -> None:
            self._file.write(whole[: len(whole) // 2])
            self._file.flush()

        self._disk.operation("write", self._path, lambda: self._file.write(whole), partly)
        return len(whole)

    def __enter__(self) -> "Written":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _folder_of(descriptor: int | None) -> str:
    return "" if descriptor is None else os.readlink(f"/proc/self/fd/{descriptor}")


@contextmanager
def installed(disk: Disk, unnamed: bool = True) -> Iterator[None]:
    """The operations of this process go through `disk`, within the block. `unnamed`: the disk has files without a name
    (O_TMPFILE); without, as network file systems, a temporary file stands beside the one that it becomes."""
    before: list[tuple[Any, str, Any]] = []

    def put(place: Any, name: str, value: Any) -> None:
        before.append((place, name, vars(place).get(name)))
        setattr(place, name, value)

    def by_path(operation: str, name: str) -> None:
        """A function of os whose first argument is what it changes."""
        real = getattr(os, name)

        def patched(path: Any, *rest: Any, dir_fd: int | None = None, **named: Any) -> Any:
            given = {**named, **({} if dir_fd is None else {"dir_fd": dir_fd})}
            whole = os.path.join(_folder_of(dir_fd), os.fsdecode(path))
            return disk.operation(operation, whole, lambda: real(path, *rest, **given))

        put(os, name, patched)

    def by_target(operation: str, name: str) -> None:
        """One whose second argument is what it makes."""
        real = getattr(os, name)

        def patched(source: Any, target: Any, **named: Any) -> Any:
            return disk.operation(operation, os.fsdecode(target), lambda: real(source, target, **named))

        put(os, name, patched)

    fsync, opened, create, os_open = os.fsync, open, files.create, os.open

    def named_only(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return os_open(path, flags, *rest, **named)

    names: dict[tuple[int, int], str] = {}  # of files without one, by their place on the disk

    def synced(descriptor: int) -> None:
        at = os.fstat(descriptor)
        path = names.get((at.st_dev, at.st_ino)) or _folder_of(descriptor)

        def call() -> None:
            fsync(descriptor)
            if disk.lasting is not None:
                disk.lasting.synced(descriptor)

        disk.operation("fsync", path, call)

    @contextmanager
    def created(path: str) -> Iterator[Any]:
        disk.operation("create", path, lambda: None)
        with create(path) as file:
            at = os.fstat(file.fileno())
            names[at.st_dev, at.st_ino] = path
            try:
                yield Written(file, disk, path)
            except BaseException:
                del names[at.st_dev, at.st_ino]
                raise
        names.pop((at.st_dev, at.st_ino), None)

    def exclusively(path: str, mode: str) -> Any:
        return Written(disk.operation("create", path, lambda: opened(path, mode)), disk, path)

    for operation, name in (("unlink", "unlink"), ("unlink", "remove"), ("rmdir", "rmdir"), ("mkdir", "mkdir")):
        by_path(operation, name)
    for operation, name in (("rename", "replace"), ("rename", "rename"), ("link", "link")):
        by_target(operation, name)
    put(os, "fsync", synced)
    put(files, "create", created)
    put(exclusive, "open", exclusively)
    if not unnamed:
        put(os, "open", named_only)
    try:
        yield
    finally:
        for place, name, value in reversed(before):
            if value is None:
                delattr(place, name)
            else:
                setattr(place, name, value)
