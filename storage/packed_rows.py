"""Packed rows: which pieces of a source's tokens stand in each row that training reads.

A file of little-endian numbers: the first piece of each row, and the number of pieces (int64, rows + 1); the first
token of each piece, in the source's tokens shard after shard (int64); the tokens of each piece (int32).
"""

from pathlib import Path

import numpy as np

from gristmill.storage import files


def write_rows(path: str, first: np.ndarray, start: np.ndarray, length: np.ndarray) -> str:
    """The digest of what is written."""
    data = first.astype("<i8").tobytes() + start.astype("<i8").tobytes() + length.astype("<i4").tobytes()
    files.write_bytes(path, data)
    return files.digest(data)


def map_rows(path: Path, rows: int, pieces: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`first` (rows + 1), `start` and `length` (pieces), mapped into memory. Raises ValueError for another size."""
    expected = 8 * (rows + 1) + 12 * pieces
    if (size := path.stat().st_size) != expected:
        raise ValueError(
            f"{path}: {size} bytes, but {rows} rows of {pieces} pieces take {expected}; remove the stage directory and "
            "run that stage again"
        )
    first = np.memmap(path, "<i8", "r", 0, (rows + 1,))
    start = np.memmap(path, "<i8", "r", 8 * (rows + 1), (pieces,))
    return first, start, np.memmap(path, "<i4", "r", 8 * (rows + 1 + pieces), (pieces,))
