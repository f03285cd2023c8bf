"""A file as a stage has recorded it."""

from pathlib import Path

from gristmill.storage import files
from gristmill.storage.damage import RecordedFile


def recorded(path: str | Path) -> RecordedFile:
    return RecordedFile(str(path), files.checksum(str(path)))
