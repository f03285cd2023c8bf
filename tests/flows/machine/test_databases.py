"""Databases of the home: damage is found and told with a remedy that works, and there is a copy before an upgrade."""

import os
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gristmill.flows.machine.databases import DamagedDatabaseError, damage, ensure_database, ensure_mlflow, trouble


def rows(path: Path) -> list[tuple]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute("select x from kept order by x").fetchall()


def make(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("pragma journal_mode=wal")
        database.execute("create table kept (x)")
        database.executemany("insert into kept values (?)", [(f"{number:0100}",) for number in range(2000)])


def add(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("insert into kept values ('upgraded')")


def fail(path: Path) -> None:
    raise sqlite3.OperationalError("no such revision")


def begun(path: Path, release: str = "release 1", upgrade=fail) -> None:
    ensure_database(path, release, make, upgrade, "the records")


def test_a_database_is_copied_before_it_is_upgraded(tmp_path):
    path, backup = tmp_path / "records.db", tmp_path / "records.db.backup"
    begun(path)
    begun(path)
    assert not backup.exists()
    with closing(sqlite3.connect(path)) as other:  # another run, which has written what is in the log alone
        other.execute("insert into kept values ('late')")
        other.commit()
        begun(path, "release 2", add)
    assert ("late",) in rows(backup) and ("upgraded",) not in rows(backup)
    assert ("late",) in rows(path) and ("upgraded",) in rows(path)
    assert backup.stat().st_mode & 0o777 == 0o600
    begun(path, "release 2", fail)


def test_an_upgrade_that_fails_is_a_sentence_and_tried_again(tmp_path):
    path = tmp_path / "records.db"
    begun(path)
    before = rows(path)
    with pytest.raises(
        DamagedDatabaseError, match=r"cannot be upgraded to release 2 \(no such revision\).*it holds the re"
    ):
        begun(path, "release 2", fail)
    assert rows(tmp_path / "records.db.backup") == before
    begun(path, "release 2", add)


@pytest.mark.parametrize("how", ["garbage", "middle", "empty header", "cut"])
def test_what_is_damaged_is_told_and_the_remedy_works(how, tmp_path):
    path = tmp_path / "records.db"
    begun(path)
    begun(path, "release 2", add)
    before = rows(path)
    content = bytearray(path.read_bytes())
    if how == "garbage":
        content[:] = os.urandom(len(content))
    elif how == "middle":
        content[len(content) // 2 : len(content) // 2 + 8192] = os.urandom(8192)
    elif how == "empty header":
        content[:100] = bytes(100)
    else:
        del content[len(content) // 2 :]
    for left in tmp_path.glob("records.db-*"):
        left.unlink()
    path.write_bytes(content)
    with pytest.raises(DamagedDatabaseError) as raised:
        begun(path, "release 2")
    said = str(raised.value)
    assert said.startswith(f"{path} ") and "\n" not in said and said.endswith("it holds the records")
    assert trouble(path, "the records") == said
    (backup,) = re.findall(r"copy (\S+) to its place", said)
    path.rename(tmp_path / "away")
    shutil.copy(backup, path)
    begun(path, "release 2", add)
    assert rows(path) == before
    path.rename(tmp_path / "away")
    begun(path, "release 2")
    assert len(rows(path)) == 2000


def test_a_sound_database_is_never_taken_for_a_damaged_one(tmp_path):
    path = tmp_path / "records.db"
    begun(path)
    assert damage(path) == trouble(path, "") == ""
    with closing(sqlite3.connect(path)) as other:
        other.execute("begin exclusive")
        other.execute("insert into kept values ('open')")
        assert damage(path) == ""


@pytest.mark.extended
def test_mlflows_database_of_an_older_schema_is_upgraded_and_its_copy_is_not(tmp_path):
    sqlalchemy, alembic = pytest.importorskip("sqlalchemy"), pytest.importorskip("alembic.command")
    from mlflow.store.db import utils
    from mlflow.store.tracking.dbmodels.initial_models import Base

    path, older = tmp_path / "mlflow.db", "181f10493468"

    def revision(of: Path) -> str:
        with closing(sqlite3.connect(of)) as database:
            ((found,),) = database.execute("select version_num from alembic_version").fetchall()
        return found

    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    Base.metadata.create_all(engine)
    alembic.upgrade(utils._get_alembic_config(str(engine.url)), older)
    engine.dispose()
    assert revision(path) == older
    ensure_mlflow(path)
    assert revision(path) == utils._get_latest_schema_revision()
    assert revision(tmp_path / "mlflow.db.backup") == older


def test_the_next_database_of_a_release_is_a_copy(tmp_path):
    kept = tmp_path / "cache" / "records.db"
    ensure_database(tmp_path / "1.db", "release 1", make, fail, "the records", kept)
    ensure_database(tmp_path / "2.db", "release 1", fail, fail, "the records", kept)
    assert rows(tmp_path / "2.db") == rows(tmp_path / "1.db") == rows(kept)
    assert {path.stat().st_mode & 0o777 for path in (kept, tmp_path / "2.db")} == {0o600}
    add(tmp_path / "1.db")
    begun(tmp_path / "2.db")  # it is of this release, and not that of another home
    assert ("upgraded",) not in rows(tmp_path / "2.db")


@pytest.mark.parametrize("wrong", ["damaged", "of another release", "cut", "a folder"])
def test_a_copy_that_is_of_no_use_is_made_again(wrong, tmp_path):
    kept = tmp_path / "records.db"
    ensure_database(
        tmp_path / "1.db", "release 0" if wrong == "of another release" else "release 1", make, fail, "", kept
    )
    content = bytearray(kept.read_bytes())
    if wrong == "damaged":
        content[4096:12288] = os.urandom(8192)
    elif wrong == "cut":
        del content[len(content) // 2 :]
    kept.write_bytes(content)
    if wrong == "a folder":
        kept.unlink()
        kept.mkdir()
    ensure_database(tmp_path / "2.db", "release 1", make, fail, "the records", kept)
    assert not damage(tmp_path / "2.db") and rows(tmp_path / "2.db") == rows(tmp_path / "1.db")
    if wrong != "a folder":
        ensure_database(tmp_path / "3.db", "release 1", fail, fail, "the records", kept)
