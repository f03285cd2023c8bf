"""Databases of the home. One process creates each under a temporary name, and renames it when it is complete."""

import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import shlex
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import wrapt

if TYPE_CHECKING:
    import sqlalchemy
    from mlflow.store.db import utils as mlflow_database
else:
    mlflow_database = wrapt.lazy_import("mlflow.store.db.utils")
    sqlalchemy = wrapt.lazy_import("sqlalchemy")


def private_folder(path: str | Path) -> Path:
    """Create a folder for records that only its user may enter, whatever the umask. Raises RuntimeError, with the
    setting to use, if it belongs to another account."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
    except PermissionError:
        raise _foreign(folder) from None
    return folder


def check_own(folder: Path) -> None:
    """Raise RuntimeError, with the setting to use, if this account may not enter the folder of records."""
    if folder.exists() and not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise _foreign(folder)


def _foreign(folder: Path) -> RuntimeError:
    return RuntimeError(
        f"{folder} or its parent folder belongs to another account, and run records are private; set "
        "GRISTMILL_LOCAL to your own folder"
    )


# What accounts that share a home have in it together: all but the local folder, which is private.
_SHARED = (
    *("stages", "runs", "remade", "work", "decisions", "scaling", "votes", "reports", "fingerprints"),
    *("retractions", "receipts"),
)


def unshared(error: BaseException, home: str) -> str:
    """The fix, in a sentence, for an error about a file of a local home that another account does not share; "" for any
    other error."""
    path = getattr(error, "filename", None)
    if not isinstance(error, PermissionError) or not isinstance(path, str) or "://" in home:
        return ""
    if not Path(path).is_relative_to(home):
        return ""
    owned = next((each for each in (Path(path), *Path(path).parents) if _owner(each) is not None), None)
    if owned is None or _owner(owned) in (None, os.getuid()):
        return ""
    # a home that cannot be entered shows nothing of what is in it: that is asked for by the next command
    names = [path for name in _SHARED if os.path.isdir(path := os.path.join(home, name))]
    command = f"chmod -R g+rwX {shlex.join(names)}" if names else f"chmod g+rwxs {shlex.quote(home)}"
    return (
        f"{path} is private to another account (uid {_owner(owned)}). To share the home within a group that "
        f"includes both accounts, that account runs `{command}`, and both set GRISTMILL_UMASK=007 and "
        "separate GRISTMILL_LOCAL folders; or set GRISTMILL_HOME to another folder"
    )


def _owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except OSError:  # the folder that it is in cannot be entered
        return None


class DamagedDatabaseError(RuntimeError):
    """A database cannot be read or migrated to this release. The message has the fix."""


def ensure_database(
    path: Path,
    made_by: str,
    make: Callable[[Path], None],
    upgrade: Callable[[Path], None],
    holds: str,
    template: Path | None = None,
) -> None:
    """Create a SQLite database if it does not exist: `make` fills an empty file, which is then renamed to `path`.

    A process that dies meanwhile leaves a file that the next one overwrites. Other processes wait for the one that
    creates it. template: stores a new, empty database of a release, which is copied for the next home. Only the user
    may read and write the database and SQLite's files beside it. made_by: the release of its schema. If it differs from
    the last one, the database is copied to `<name>.backup`, and `upgrade` is called. holds: what is lost without the
    database, for messages. Raises DamagedDatabaseError if it is damaged or cannot be upgraded.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    release = int(hashlib.sha256(made_by.encode()).hexdigest()[:7], 16)
    with open(path.with_name(f"{path.name}.lock"), "w", opener=_private) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            new = path.with_name(f"{path.name}.new")
            for name in (new, _beside(new, "-wal"), _beside(new, "-shm"), _beside(new, "-journal")):
                name.unlink(missing_ok=True)
            os.close(_private(str(new), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            if template is None or not _copied(template, new, release):
                make(new)
                _mark(new, release)
                _settle(new)
                if template is not None:
                    _keep(new, template)
            os.replace(new, path)
        elif why := damage(path):
            raise DamagedDatabaseError(_remedy(path, why, holds))
        elif _marked(path) != release:
            _back_up(path, path.with_name(f"{path.name}.backup"))
            try:
                upgrade(path)
            except Exception as error:
                why = f"cannot be upgraded to {made_by} ({' '.join(str(error).split())[:200]})"
                raise DamagedDatabaseError(_remedy(path, why, holds)) from error
            _mark(path, release)
        for name in (path, _beside(path, "-wal"), _beside(path, "-shm")):
            with contextlib.suppress(FileNotFoundError):  # SQLite makes and removes those beside it as it likes
                name.chmod(0o600)


def template_of(package: str) -> Path:
    """The file in the user's cache folder with an empty database of a package. Prefect's migrations take 8 s of CPU
    time, MLflow's 2 s."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "gristmill" / f"{package}.db"


def _copied(template: Path, new: Path, release: int) -> bool:
    """Copy an empty database of this release from the cache. Returns whether `new` is one now."""
    try:
        if template.stat().st_uid != os.getuid():
            return False
        shutil.copyfile(template, new)
        if not damage(new) and _marked(new) == release:
            _settle(new)
            return True
    except (OSError, sqlite3.DatabaseError):
        pass  # it is missing or of no use
    new.write_bytes(b"")
    return False


def _keep(new: Path, template: Path) -> None:
    """Copy an empty database to the cache, if the cache is writable."""
    aside = template.with_name(f"{template.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        template.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(aside, "wb", opener=_private) as copy:
            copy.write(new.read_bytes())
        os.replace(aside, template)
    with contextlib.suppress(OSError):
        aside.unlink()  # what a full disk has left of it


def damage(path: Path) -> str:
    """The result of SQLite's integrity check; empty if the database is sound.

    The check reads 100 MB in less than a second. Of a larger database only the schema is read.
    """
    check = "PRAGMA quick_check(1)" if path.stat().st_size < _CHECKED else "PRAGMA schema_version"
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=60)) as database:
            database.execute("SELECT count(*) FROM sqlite_master").fetchone()
            (result,) = database.execute(check).fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return ""  # another run is at it
        return f"cannot be read ({error})"
    except sqlite3.DatabaseError as error:
        return f"is damaged ({error})"
    return "" if result == "ok" or isinstance(result, int) else f"is damaged ({' '.join(str(result).split())[:200]})"


def trouble(path: Path, holds: str) -> str:
    """Why a database cannot be used, and the fix, in one sentence; empty if no reason is found."""
    if path.exists() and (why := damage(path)):
        return _remedy(path, why, holds)
    try:
        with tempfile.TemporaryFile(dir=path.parent) as file:
            file.write(bytes(_ROOM))
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = shutil.disk_usage(path.parent).free
            return (
                f"the disk of {path} is full ({free / 1000000.0:.1f} MB free): free some space, "
                "then run the same command again"
            )
        return f"{path.parent} cannot be written ({error.strerror}): let this user write there, then run again"
    return ""


def _remedy(path: Path, why: str, holds: str) -> str:
    backup = path.with_name(f"{path.name}.backup")
    back = f"move it away with {path.name}-wal and -shm"
    if backup.exists():
        back += f", copy {backup} to its place to restore the state before the last upgrade"
    return f"{path} {why}: {back}, then run again; it holds {holds}"


_CHECKED = 100_000_000  # bytes
_ROOM = 1 << 20  # bytes that a database grows by at the least, in the course of a run


def _back_up(path: Path, backup: Path) -> None:
    """Write a consistent copy, including concurrent writes, and rename it when it is complete."""
    new = backup.with_name(f"{backup.name}.new")
    new.unlink(missing_ok=True)
    os.close(_private(str(new), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    with closing(sqlite3.connect(path)) as old, closing(sqlite3.connect(new)) as copy:
        old.backup(copy)
    _settle(new)
    os.replace(new, backup)


def _marked(path: Path) -> int:
    """The release that a database was last made or upgraded by, as its copy has it: SQLite keeps a number for those
    whose database it is, and nobody else uses it."""
    with closing(sqlite3.connect(path, timeout=60)) as database:
        (release,) = database.execute("PRAGMA user_version").fetchone()
    return int(release)


def _mark(path: Path, release: int) -> None:
    with closing(sqlite3.connect(path, timeout=60)) as database:
        database.execute(f"PRAGMA user_version = {release}")


MLFLOW_HOLDS = (
    "only MLflow's records, no data; records of models are written again, those of decisions and forecasts are not"
)


def ensure_mlflow(path: Path) -> None:
    """Create MLflow's database at `path` if it does not exist, or migrate that of another release."""

    def make(new: Path) -> None:
        # a hundred small transactions: the file is made durable once, when it is whole
        migrate(new, "_initialize_tables", "PRAGMA synchronous=OFF")

    def migrate(database: Path, how: str, *pragmas: str) -> None:
        # two lines on what a user asked nothing of
        logging.getLogger(mlflow_database.__name__).setLevel(logging.WARNING)
        engine = mlflow_database.create_sqlalchemy_engine(f"sqlite:///{database}")
        for pragma in pragmas:
            sqlalchemy.event.listen(engine, "connect", lambda connection, _, pragma=pragma: connection.execute(pragma))
        getattr(mlflow_database, how)(engine)
        engine.dispose()

    made_by, template = f"mlflow {version('mlflow')}", template_of("mlflow")
    ensure_database(path, made_by, make, lambda old: migrate(old, "_upgrade_db"), MLFLOW_HOLDS, template)


def _settle(path: Path) -> None:
    """Write the database into one file, durably."""
    with closing(sqlite3.connect(path)) as database:
        busy, *_ = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        (whole,) = database.execute("PRAGMA integrity_check").fetchone()
    if busy or whole != "ok":
        raise OSError(f"{path} was not written completely ({whole}): check the disk and start again")
    for ending in ("-wal", "-shm"):  # empty, and named for a file that gets another name
        _beside(path, ending).unlink(missing_ok=True)
    with open(path, "rb") as written:
        os.fsync(written.fileno())


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
