"""Databases of the home: each is made by one process, aside, and appears under its name when it is whole."""

import contextlib
import fcntl
import logging
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path


def private_folder(path: str | Path) -> Path:
    """Make a folder for recorded runs that only its user may enter, whatever the umask."""
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    return folder


def ensure_database(path: Path, make: Callable[[Path], None]) -> None:
    """Make a SQLite database if there is none: `make` fills an empty file, which is then renamed to `path`.

    A process that dies in between leaves a file that the next one begins anew. Others wait for the one that makes it.
    Only the user may read and write the database, and what SQLite keeps beside it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_name(f"{path.name}.lock"), "w", opener=_private) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            new = path.with_name(f"{path.name}.new")
            for name in (new, _beside(new, "-wal"), _beside(new, "-shm"), _beside(new, "-journal")):
                name.unlink(missing_ok=True)
            os.close(_private(str(new), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            make(new)
            _settle(new)
            os.replace(new, path)
        for name in (path, _beside(path, "-wal"), _beside(path, "-shm")):
            with contextlib.suppress(FileNotFoundError):  # SQLite makes and removes those beside it as it likes
                name.chmod(0o600)


def ensure_mlflow(path: Path) -> None:
    """Make MLflow's database at `path` if there is none."""

    def make(new: Path) -> None:
        import sqlalchemy
        from mlflow.store.db import utils

        logging.getLogger(utils.__name__).setLevel(logging.WARNING)  # two lines on what a user asked nothing of
        engine = utils.create_sqlalchemy_engine(f"sqlite:///{new}")
        # a hundred small transactions: the file is made durable once, when it is whole
        sqlalchemy.event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
        utils._initialize_tables(engine)
        engine.dispose()

    ensure_database(path, make)


def _settle(path: Path) -> None:
    """All of the database in one file, on the disk."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        busy, *_ = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        (whole,) = database.execute("PRAGMA integrity_check").fetchone()
    if busy or whole != "ok":
        raise OSError(f"{path} was not written as a whole ({whole}): look at the disk and start again")
    for ending in ("-wal", "-shm"):  # empty, and named for a file that gets another name
        _beside(path, ending).unlink(missing_ok=True)
    with open(path, "rb") as written:
        os.fsync(written.fileno())


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
