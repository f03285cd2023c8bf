"""Small files with which processes coordinate: created only if the name is free, and read and listed without caches."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import fsspec
from fsspec.implementations.local import LocalFileSystem

from gristmill.storage.printable import redact_url

T = TypeVar("T")


def _retrying(call: Callable[[], T], what: str) -> T:
    from gristmill.storage.remote import streams  # its libraries take long to import

    return streams.retrying_call(call, what)


def _next(inner: str) -> str:
    """Where a local file is written that is to replace another."""
    return f"{inner}.next"


@contextmanager
def _removed_on_error(inner: str) -> Iterator[None]:
    """Remove a file if the block fails, or others would wait for who has not written it."""
    try:
        yield
    except BaseException:
        Path(inner).unlink(missing_ok=True)
        raise


def create(path: str, data: bytes) -> bool:
    """Create a file unless there is one of its name; whether it was created. Of several that try at once one succeeds.

    Locally by O_EXCL, in an object store by a conditional request (S3: If-None-Match). A request that succeeded and
    whose answer was lost is made again, and finds the file: who gets False should read it.
    """
    fs, inner = fsspec.core.url_to_fs(path)
    if isinstance(fs, LocalFileSystem):
        while True:
            os.makedirs(os.path.dirname(inner), exist_ok=True)
            try:
                with open(inner, "xb") as f, _removed_on_error(inner):
                    f.write(data)
                    f.flush()
                return True
            except FileExistsError:
                return False
            except FileNotFoundError:
                continue  # another process has just removed the folder

    def attempt() -> bool:
        try:
            fs.pipe_file(inner, data, mode="create")
        except FileExistsError:
            return False
        return True

    return _retrying(attempt, f"writing {redact_url(path)}")


def replace(path: str, data: bytes) -> None:
    """Write a file over one that is there. Readers see the one or the other."""
    fs, inner = fsspec.core.url_to_fs(path)
    if isinstance(fs, LocalFileSystem):
        with _removed_on_error(_next(inner)):
            with open(_next(inner), "wb") as f:
                f.write(data)
            os.replace(_next(inner), inner)
    else:
        _retrying(lambda: fs.pipe_file(inner, data), f"writing {redact_url(path)}")


def read(path: str) -> bytes | None:
    """The content, None if there is no such file. fsspec's listings, which may be old, are not asked for its size."""
    fs, inner = fsspec.core.url_to_fs(path)
    try:
        if isinstance(fs, LocalFileSystem):
            return fs.cat_file(inner)
        from gristmill.storage.remote import streams

        return streams.read_at_once(path)
    except FileNotFoundError:
        return None


def names(folder: str) -> list[str]:
    """Names in a folder as it is now, sorted; empty if the folder does not exist."""
    fs, inner = fsspec.core.url_to_fs(folder)
    try:
        if isinstance(fs, LocalFileSystem):
            return sorted(os.listdir(inner))
        entries = _retrying(lambda: fs.ls(inner, detail=False, refresh=True), f"listing {redact_url(folder)}")
    except FileNotFoundError:
        return []
    return sorted(entry.rstrip("/").rsplit("/", 1)[-1] for entry in entries)


def remove(path: str) -> None:
    """Remove a file, and locally its folder if that is empty then. No error if there is none."""
    fs, inner = fsspec.core.url_to_fs(path)
    if isinstance(fs, LocalFileSystem):
        Path(inner).unlink(missing_ok=True)
        Path(_next(inner)).unlink(missing_ok=True)  # of a process that was killed when it replaced the file
        with suppress(OSError):
            os.rmdir(os.path.dirname(inner))
    else:
        with suppress(FileNotFoundError):
            _retrying(lambda: fs.rm_file(inner), f"removing {redact_url(path)}")
