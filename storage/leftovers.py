"""Temporary files that have their owner in their name, so that those of a killed process can be told and removed."""

import os
import re
import shutil
import tempfile
import uuid
from pathlib import Path

import fsspec
from fsspec.implementations.local import LocalFileSystem

from gristmill.storage import owner

_OWNER = r"(?P<owner>[0-9a-f]{16}-\d+-[0-9a-f]{16})"
_TEMPORARY = re.compile(rf"\..*\.{_OWNER}\.[0-9a-f]+\.tmp")
_SCRATCH = re.compile(rf"gristmill-{_OWNER}-.*")


def temporary_name(name: str) -> str:
    """A name for a file of which not all is written, in the folder where it will be called `name`."""
    return f".{name}.{owner.this_process()}.{uuid.uuid4().hex}.tmp"


def scratch_prefix() -> str:
    """How the names of this process's files and folders begin in the system's temporary folder."""
    return f"gristmill-{owner.this_process()}-"


def remove_temporary(folder: str) -> None:
    """Remove below a folder the temporary files of processes that have ended. An object store has none."""
    fs, inner = fsspec.core.url_to_fs(folder)
    if isinstance(fs, LocalFileSystem):
        for path in Path(inner).rglob(".*.tmp"):
            _remove(path, _TEMPORARY)


def remove_scratch() -> None:
    """Remove from the system's temporary folder what this user's processes have left that have ended."""
    for path in Path(tempfile.gettempdir()).glob("gristmill-*"):
        try:
            ours = path.lstat().st_uid == os.getuid()
        except FileNotFoundError:
            continue
        if ours:
            _remove(path, _SCRATCH)


def _remove(path: Path, pattern: re.Pattern[str]) -> None:
    match = pattern.fullmatch(path.name)
    if match is None or not owner.has_ended(match["owner"]):
        return
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)  # another run may be at it, too
    else:
        path.unlink(missing_ok=True)
