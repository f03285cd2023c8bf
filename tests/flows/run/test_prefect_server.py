"""The embedded Prefect server, as a process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

THREE = """
import sys
from pathlib import Path

import gristmill.flows.run.prefect_env
from gristmill.flows.run.server import EmbeddedServer

servers = [EmbeddedServer(Path(sys.argv[1])) for _ in range(3)]
for server in servers:
    server.wait_until_ready()
for server in servers:
    server.stop()
"""


@pytest.mark.slow
def test_servers_that_start_at_once_in_a_new_home_are_all_ready(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment |= {"GRISTMILL_HOME": str(tmp_path), "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    command = [sys.executable, "-c", THREE, str(tmp_path / "prefect")]
    subprocess.run(command, env=environment, check=True, timeout=300)
    assert "rror" not in (tmp_path / "prefect" / "server.log").read_text()
