"""The databases of a home are backed up, lost and restored, as docs/guides/disk-and-backup.md has it; and lost."""

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

DATABASES = ("prefect/prefect.db", "mlflow.db")


def back_up(home: Path, folder: Path) -> None:
    """What the command `sqlite3 FILE "VACUUM INTO 'COPY'"` does."""
    for name in DATABASES:
        with contextlib.closing(sqlite3.connect(home / name)) as database:
            database.execute("VACUUM INTO ?", (str(folder / Path(name).name),))


def lose(home: Path) -> None:
    for name in DATABASES:
        for path in (home / name).parent.glob(f"{Path(name).name}*"):
            path.unlink()


def flow_runs(home: Path) -> int:
    with contextlib.closing(sqlite3.connect(home / "prefect/prefect.db")) as database:
        return database.execute("SELECT count(*) FROM flow_run").fetchone()[0]


def models(home: Path) -> list[tuple[str, float]]:
    """Each model's run with its held-out loss. MLflow's own client in this process would still read the lost file."""
    named = "key LIKE 'heldout-______/bits_per_byte'"
    asked = f"SELECT run_uuid, value FROM runs JOIN latest_metrics USING (run_uuid) WHERE {named}"
    with contextlib.closing(sqlite3.connect(home / "mlflow.db")) as database:
        return database.execute(asked).fetchall()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_home_whose_databases_were_lost(undisturbed, recipe, tmp_path):
    home = undisturbed.home("restored")
    shutil.copytree(undisturbed.home("undisturbed"), home)
    before, [model] = flow_runs(home), models(home)
    back_up(home, tmp_path)
    lose(home)
    for name in DATABASES:
        shutil.copy(tmp_path / Path(name).name, home / name)
    undisturbed.run("restored", ("pipeline", recipe))
    assert flow_runs(home) > before and models(home) == [model]
    # without a backup the runs of Prefect are gone, and the model's run is written anew from its files
    lose(home)
    undisturbed.run("restored", ("pipeline", recipe))
    [(other, loss)] = models(home)
    assert other != model[0] and loss == model[1]
    assert 0 < flow_runs(home) <= before
