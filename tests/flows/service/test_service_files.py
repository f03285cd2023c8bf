"""The files of a service: all that the repository has, carried by the wheel, and written without overwriting."""

import stat
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gristmill.flows.cli import app
from gristmill.flows.run.service_files import NAMES

ROOT = Path(__file__).parents[3]


def test_all_that_the_repository_has_is_named():
    tracked = subprocess.run(
        ["git", "ls-files", "docker", "prefect.yaml"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    ).stdout.split()
    assert sorted(NAMES) == sorted(tracked)


def test_they_are_written_once_and_never_over_others(tmp_path):
    command = ["service", "init", "--to", str(tmp_path / "there")]
    for _ in range(2):
        shown = CliRunner().invoke(app, command)
        assert shown.exit_code == 0 and "prefect --no-prompt deploy --all" in shown.stdout
    for name in NAMES:
        assert (tmp_path / "there" / name).read_bytes() == (ROOT / name).read_bytes()
    assert (tmp_path / "there/docker/entrypoint.sh").stat().st_mode & stat.S_IXUSR
    own = tmp_path / "there/docker/compose.yaml"
    own.write_text("services: {}\n")
    (tmp_path / "there/prefect.yaml").unlink()
    with pytest.raises(FileExistsError, match=f"{own} already exists and differs"):
        CliRunner().invoke(app, command, catch_exceptions=False)
    assert own.read_text() == "services: {}\n" and not (tmp_path / "there/prefect.yaml").exists()
