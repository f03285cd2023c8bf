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


ASKED = """
import sys
import urllib.error
import urllib.request
from pathlib import Path

import gristmill.flows.run.prefect_env
from gristmill.flows.run.server import EmbeddedServer
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

server = EmbeddedServer(Path(sys.argv[1]))
server.wait_until_ready()
for path in ("version", "flow_runs/filter", "admin/settings", "admin/version"):
    request = urllib.request.Request(f"{server.address}/{path}", method="POST" if path.endswith("filter") else "GET")
    try:
        print(path, urllib.request.urlopen(request).status)
    except urllib.error.HTTPError as error:
        print(path, error.code)
with temporary_settings({PREFECT_API_URL: server.address, PREFECT_API_AUTH_STRING: server.login}):
    print(get_client(sync_client=True).read_flow_runs())
print(server.login in Path(f"/proc/{server.process.pid}/cmdline").read_text())
server.stop()
"""


def test_who_has_not_the_login_of_the_run_is_answered_nothing(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment |= {"GRISTMILL_HOME": str(tmp_path), "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    command = [sys.executable, "-c", ASKED, str(tmp_path / "prefect")]
    done = subprocess.run(command, env=environment, check=True, timeout=300, capture_output=True, text=True)
    refused = ["version 401", "flow_runs/filter 401", "admin/settings 401", "admin/version 401"]
    assert done.stdout.splitlines() == [*refused, "[]", "False"]
