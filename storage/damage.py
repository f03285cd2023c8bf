"""Damage to files that this project wrote: it is detected by their digest and name before they are read. Libraries
trust their files, and return other values or end the process if a file is damaged.

Also one-sentence errors for files from elsewhere that a library cannot open. Imports only the standard library, except
where it reads, since `gristmill.samples` uses these errors without the rest of the storage.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gristmill.storage.printable import redact_url


class DamagedFileError(RuntimeError):
    """A file that was written by this project differs from its digest; the message names the file and the remedy."""


def damaged(path: str, trouble: str) -> DamagedFileError:
    """The error for a file: a stage's file is made again once the stage's folder is gone, any other once it is gone
    itself."""
    home, stages, inner = path.rpartition("/stages/")
    remove = f"the stage's folder {home}{stages}{inner.partition('/')[0]}" if stages else path
    return DamagedFileError(f"{redact_url(path)} {trouble}; remove {redact_url(remove)} and run the recipe again")


class MissingFileError(DamagedFileError, FileNotFoundError):
    """A file that was written by this project is gone."""


def missing(path: str) -> MissingFileError:
    if "/stages/" in path:
        return MissingFileError(str(damaged(path, "is missing")))
    return MissingFileError(f"{redact_url(path)} is missing; restore it, or use another file, and run again")


# <name>-<key>/<file within the stage's folder>
_IN_STAGE = re.compile(r".*/stages/([^/]+-[0-9a-f]{16}/.+)", re.DOTALL)


def name_of(path: str) -> str:
    """What a file notes as its own name when it is written: `<stage>-<key>/<file>` in a stage, wherever the home is;
    elsewhere the last part of its path."""
    match = _IN_STAGE.fullmatch(path)
    return match[1] if match else path.rstrip("/").rpartition("/")[2]


def check_name(path: str, name: str) -> None:
    """Raise DamagedFileError for a file that notes a name other than its own. A stage's folder may have been
    copied out of its home."""
    if name != name_of(path) and not ("/" in name and path.endswith(f"/{name}")):
        raise damaged(path, f"is another file: it was written as {name}")


# The state of each local file when this process last found it complete, by path and digest.
_compared: dict[tuple[str, str], tuple[int, ...]] = {}


def _state(path: str) -> tuple[int, ...]:
    """What changes when a file is written or exchanged; an account that may write it cannot set the last of these."""
    info = os.stat(path)
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns


@dataclass(frozen=True)
class RecordedFile:
    """`path`: any address; `digest`: xxh3-128 of its content, hexadecimal."""

    path: str
    digest: str

    def local(self) -> str:
        """A local path with the content, for libraries that read local files only: itself, or a copy in the user's
        cache folder. Reads the file once in a process, and again when it has been written since. Raises
        MissingFileError, and DamagedFileError."""
        from gristmill.storage import files

        local = self._copied()
        if self._is_whole(local):
            return local
        if not files.is_local(self.path):
            files.remove(local)
            if self._is_whole(files.local_copy(self.path)):
                return local
            files.remove(local)
        raise damaged(self.path, "is not what was written")

    def _is_whole(self, local: str) -> bool:
        """Whether a local file has the content, by what this process has read of it in its present state."""
        from gristmill.storage import files

        state = _state(local)
        if _compared.get((local, self.digest)) == state:
            return True
        if files.checksum(local) != self.digest:
            return False
        _compared[local, self.digest] = state
        return True

    def _copied(self) -> str:
        from gristmill.storage import files

        try:
            local = files.local_copy(self.path)
            files.info(local)
        except FileNotFoundError:
            raise missing(self.path) from None
        return local

    def read(self) -> bytes:
        """The content. Raises MissingFileError, and DamagedFileError."""
        from gristmill.storage import files

        try:
            data = files.read_bytes(self.path)
        except FileNotFoundError:
            raise missing(self.path) from None
        if files.digest(data) != self.digest:
            raise damaged(self.path, "is not what was written")
        return data


# of pyo3, a BaseException that no package exports
_PANIC = "PanicException"
_SHOWN = 300  # characters of a library's message


@contextmanager
def opening(path: str, kind: str, fix: str, error: Callable[[str], Exception] = ValueError) -> Iterator[None]:
    """A block in which a library opens or reads a file.

    Raises `error` instead of the library's exception, with one sentence: the file, that it is not a `kind`, the reason,
    and `fix`, what to do. MemoryError and exceptions that end the process are not caught.
    """
    try:
        yield
    except BaseException as caught:
        if isinstance(caught, MemoryError) or not (isinstance(caught, Exception) or type(caught).__name__ == _PANIC):
            raise
        reason = " ".join(str(caught).split())[:_SHOWN] or type(caught).__name__
        raise error(f"{redact_url(path)} is not a valid {kind}: {reason}; {fix}") from caught
