"""The embedded Prefect server, as a process."""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
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


KILLED = """
import os, signal, sys, time
from pathlib import Path

import gristmill.flows.run.prefect_env
from gristmill.flows.run.server import EmbeddedServer
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

server = EmbeddedServer(Path(sys.argv[1]))
server.wait_until_ready()
first = server.process
with temporary_settings({PREFECT_API_URL: server.address, PREFECT_API_AUTH_STRING: server.login}):
    client = get_client(sync_client=True)
    client.create_flow_from_name("before")
    first.kill()
    print([flow.name for flow in client.read_flows()])
print(server.process.pid != first.pid, first.returncode, server.process.poll(), server.failure == "")
server.stop()
print(server.process.returncode)
"""


def script(tmp_path: Path, text: str, **more: str) -> subprocess.CompletedProcess:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment |= {"GRISTMILL_HOME": str(tmp_path), "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    command = [sys.executable, "-c", text, str(tmp_path / "prefect")]
    return subprocess.run(command, env=environment | more, timeout=300, capture_output=True, text=True)


@pytest.mark.slow
def test_a_server_that_is_killed_is_started_again_and_its_clients_ask_again(tmp_path):
    done = script(tmp_path, KILLED)
    assert done.stdout.splitlines() == ["['before']", "True -9 None True", "0"], done.stderr
    assert done.stderr.count("has died (signal 9) and is started again") == 1


BEGUN = """
import sys
from pathlib import Path

import gristmill.flows.run.prefect_env
from gristmill.flows.run.server import start

server = start(Path(sys.argv[1]))
try:
    server.wait_until_ready()
    print("ready")
except RuntimeError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_damaged_database_is_a_sentence_whose_remedy_works(tmp_path):
    """It is of an older release as far as its mark says, so there is a backup to go back to."""
    assert script(tmp_path, BEGUN).stdout == "ready\n"
    database = tmp_path / "prefect" / "prefect.db"
    with closing(sqlite3.connect(database)) as opened, opened:
        opened.execute("pragma user_version = 1")
        opened.execute("insert into work_pool (id, name, type, is_paused) values ('1', 'kept', 'process', 0)")
    assert script(tmp_path, BEGUN).stdout == "ready\n"
    database.write_bytes(os.urandom(300_000))
    said = script(tmp_path, BEGUN).stdout
    assert said.count("\n") == 1 and said.startswith(f"{database} is damaged (file is not a database): move it away")
    (backup,) = re.findall(r"copy (\S+) to its place", said)
    for path in database.parent.glob("prefect.db*"):
        if path.name.endswith((".db", "-wal", "-shm")):
            path.unlink()
    shutil.copy(backup, database)
    assert script(tmp_path, BEGUN).stdout == "ready\n"
    with closing(sqlite3.connect(database)) as opened:
        assert opened.execute("select name from work_pool").fetchall() == [("kept",)]


def test_a_server_that_cannot_start_is_a_sentence_at_once(tmp_path):
    """Its settings name a database of a kind that there is not."""
    done = script(tmp_path, BEGUN, PREFECT_SERVER_DATABASE_CONNECTION_URL="nosuch://nowhere/db")
    log = tmp_path / "prefect" / "server.log"
    assert done.stdout == f"the embedded Prefect server cannot start (exit code 1): see {log}\n", done.stderr
    assert "nosuch" in log.read_text()
