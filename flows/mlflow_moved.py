"""Artifacts of an embedded MLflow database whose home was moved or copied.

MLflow keeps their addresses absolute, and has no call that changes them: without this, a copied home would write its
artifacts into the one that it was copied from.
"""

import contextlib
import sqlite3
from pathlib import Path

_ADDRESSES = {"experiments": "artifact_location", "runs": "artifact_uri", "logged_models": "artifact_location"}


def move_artifacts(database: Path, old: str, new: str) -> None:
    """Let the experiments, runs and logged models whose artifacts are in the folder `old` have them in `new`."""
    with contextlib.closing(sqlite3.connect(database, timeout=60)) as connection, connection:
        for table, column in _ADDRESSES.items():
            connection.execute(
                f"UPDATE {table} SET {column} = ? || substr({column}, ?) "
                f"WHERE {column} = ? OR substr({column}, 1, ?) = ?",
                (new, len(old) + 1, old, len(old) + 1, f"{old}/"),
            )
