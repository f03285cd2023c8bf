"""Ten defects, each of which a trial must find: what a pipeline could do wrong when it writes.

Each is put into the product of a process that is forked for a run, behind the operations that are watched.
"""

import errno
import math
import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

import orjson

from gristmill.storage import checked_json, files, layout, leftovers
from gristmill.storage.damage import RecordedFile
from gristmill.storage.layout import Part
from gristmill.tasks.engine import lease


@dataclass(frozen=True)
class Defect:
    """`unnamed`: whether the disk has files without a name."""

    what: str
    put: Callable[[], None]
    unnamed: bool = True


def _no_temporary_file() -> None:
    leftovers.temporary_name = lambda name: name


def _late(folder: str, names: Iterable[str], write: Callable[[], Any]) -> Any:
    """Do `write`, which says that files are there, ahead of their last step."""
    paths = [files.join(folder, name) for name in names]
    for path in paths:
        os.replace(path, f"{path}.late")
    result = write()
    for path in paths:
        os.replace(f"{path}.late", path)
    return result


def _mark_first() -> None:
    mark = layout.mark_done

    def early(folder: str, phase: str, number: int, done: dict) -> None:
        _late(folder, done["files"], lambda: mark(folder, phase, number, done))

    layout.mark_done = early


def _manifest_first() -> None:
    write = layout.write_manifest

    def early(folder: str, value: dict, parts: Iterable[Part]) -> dict:
        last = [part for part in parts if part.files][-1]
        return _late(folder, last.files, lambda: write(folder, value, parts))

    layout.write_manifest = early


def _no_fsync_no_check() -> None:
    os.fsync = lambda descriptor: None
    RecordedFile.read = lambda self: files.read_bytes(self.path)

    def unchecked(data: bytes, path: str) -> dict:
        return {key: value for key, value in orjson.loads(data).items() if key != "checksum"}

    checked_json.content = unchecked


def _lease_for_ever() -> None:
    leftovers.has_ended = lambda owner: False
    lease.SILENCE_SECONDS = math.inf


def _names_not_synced() -> None:
    files.sync = lambda path: None


def _temporary_among_parts() -> None:
    leftovers.temporary_name = lambda name: f"{uuid.uuid4().hex}-{name}"


class _Writer:
    """A file whose writes are `write(real write, data)`."""

    def __init__(self, file: IO[bytes], write: Callable[[Callable[[Any], Any], Any], Any]) -> None:
        self._file, self._write = file, write

    def write(self, data: Any) -> Any:
        return self._write(self._file.write, data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _writing(write: Callable[[Callable[[Any], Any], Any], Any]) -> None:
    create = files.create

    @contextmanager
    def created(path: str) -> Iterator[Any]:
        with create(path) as file:
            yield _Writer(file, write)

    files.create = created


def _full_is_nothing() -> None:
    def write(real: Callable[[Any], Any], data: Any) -> Any:
        try:
            return real(data)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            return len(data)

    _writing(write)


def _again_without_rewinding() -> None:
    def write(real: Callable[[Any], Any], data: Any) -> Any:
        try:
            return real(data)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return real(data)

    _writing(write)


def _appends() -> None:
    create = files.create

    @contextmanager
    def created(path: str) -> Iterator[Any]:
        before = files.read_bytes(path) if not path.endswith(".json") and files.exists(path) else b""
        with create(path) as file:
            file.write(before)
            yield file

    files.create = created


DEFECTS = {
    1: Defect("a file has its name before it is whole", _no_temporary_file, unnamed=False),
    2: Defect("a job is marked done before its files are in place", _mark_first),
    3: Defect("the manifest is written before the last part", _manifest_first),
    4: Defect("no file is fsynced, and no digest is compared", _no_fsync_no_check),
    5: Defect("the lease of a process that has ended is not taken over", _lease_for_ever),
    6: Defect("names are not made to last: a mark stays whose files are gone", _names_not_synced),
    7: Defect("the temporary file of a dead process is called like a part", _temporary_among_parts, unnamed=False),
    8: Defect("a full disk is passed over", _full_is_nothing),
    9: Defect("a failed write is made again without going back", _again_without_rewinding),
    10: Defect("a job that is done again appends to its files", _appends),
}
