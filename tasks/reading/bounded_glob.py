"""Local patterns that look below folders, `data/**/*.jsonl`: how much they may pass over, and a line while they look.

Separate from `gristmill.storage.files`, whose patterns of one folder need neither: `/**/*.jsonl` looks at all disks of
a machine.
"""

import logging
import time
from fnmatch import fnmatchcase
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from gristmill.storage import files

log = logging.getLogger(__name__)

MAX_PASSED = 500_000  # files and folders that a pattern looks at and does not name: half a minute
_FIRST_SECONDS, _SECONDS = 5.0, 10.0  # until a line, and between two


class _Counting(LocalFileSystem):
    """A local file system that counts what is listed, for one pattern."""

    cachable = False  # each pattern has a count of its own

    def __init__(self, pattern: str) -> None:
        super().__init__()
        self._pattern = pattern
        self._last = pattern.rstrip("/").rpartition("/")[2]
        self._passed = self._seen = 0
        self._next = time.monotonic() + _FIRST_SECONDS

    def ls(self, path: str, detail: bool = False, **kwargs: Any) -> list[Any]:
        """The entries of a folder. Raises ValueError, which the walk of fsspec lets through, for one too many."""
        entries = super().ls(path, detail=detail, **kwargs)
        names = (entry["name"] if detail else entry for entry in entries)
        self._passed += sum(not fnmatchcase(name.rpartition("/")[2], self._last) for name in names)
        self._seen += len(entries)
        if self._passed > MAX_PASSED:
            raise ValueError(
                f"the pattern {self._pattern} visits more than {MAX_PASSED:,} files and folders that do not "
                "match; begin it with the folder that has the files"
            )
        if (now := time.monotonic()) > self._next:
            self._next = now + _SECONDS
            log.warning("%s: checked %s files and folders so far, now %s", self._pattern, f"{self._seen:,}", path)
        return entries


def glob(pattern: str) -> list[str]:
    """Paths that match a pattern, as `files.glob` gives them. Raises ValueError for a local one with `**` that passes
    over more than MAX_PASSED files and folders."""
    if "**" not in pattern or not files.is_local(pattern):
        return files.glob(pattern)
    inner = pattern.removeprefix("file://")
    return sorted(_Counting(inner).glob(inner))
