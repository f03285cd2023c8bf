"""The Prefect server of a run, as a process."""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.run import server

THREE = """
import sys
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.run.server import child

servers = [child(MachineSettings()) for _ in range(3)]
for server in servers:
    server.wait()
for server in servers:
    server.stop()
"""


def script(tmp_path: Path, text: str, **more: str) -> subprocess.CompletedProcess:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment |= {"GRISTMILL_HOME": str(tmp_path), "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    command = [sys.executable, "-c", text, str(tmp_path / "prefect")]
    return subprocess.run(command, env=environment | more, timeout=300, capture_output=True, text=True, cwd=tmp_path)


@pytest.mark.slow
def test_servers_that_start_at_once_in_a_new_home_are_all_ready(tmp_path):
    done = script(tmp_path, THREE)
    assert done.returncode == 0, done.stderr
    assert "rror" not in (tmp_path / "prefect" / "server.log").read_text()


ASKED = """
import urllib.error
import urllib.request
from pathlib import Path

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.run import server
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

address, login = server.endpoint(MachineSettings())
for path in ("version", "flow_runs/filter", "admin/settings", "admin/version"):
    request = urllib.request.Request(f"{address}/{path}", method="POST" if path.endswith("filter") else "GET")
    try:
        print(path, urllib.request.urlopen(request).status)
    except urllib.error.HTTPError as error:
        print(path, error.code)
with temporary_settings({PREFECT_API_URL: address, PREFECT_API_AUTH_STRING: login}):
    print(get_client(sync_client=True).read_flow_runs())
(own,) = server._children.values()
process = Path(f"/proc/{own.process.pid}")
print(*(login.partition(":")[2] in (process / name).read_text() for name in ("cmdline", "environ")))
"""


@pytest.mark.extended
def test_who_has_not_the_login_of_the_run_is_answered_nothing(tmp_path):
    done = script(tmp_path, ASKED)
    refused = ["version 401", "flow_runs/filter 401", "admin/settings 401", "admin/version 401"]
    assert done.stdout.splitlines() == [*refused, "[]", "False False"], done.stderr


SHOWN = """
import os
import subprocess
import sys

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.run import server

settings = MachineSettings()
pages = server.child(settings, with_pages=True)
ASK = "from gristmill.flows.machine.settings import MachineSettings; from gristmill.flows.run import server; "
ASK += "print(*server.endpoint(MachineSettings()), server._children)"
with server.show(settings, pages, {}):
    other = subprocess.run([sys.executable, "-c", ASK], stdout=subprocess.PIPE, text=True, check=True)
    print(other.stdout == f"{pages.wait()}/api {pages.login} {{}}\\n", flush=True)
    pages.stop()
    os._exit(0)  # as one that is killed: the note stays
"""


@pytest.mark.slow
def test_a_run_beside_the_pages_uses_their_server_and_none_that_has_ended(tmp_path, monkeypatch):
    done = script(tmp_path, SHOWN)
    assert done.stdout == "True\n", done.stderr
    monkeypatch.setenv("GRISTMILL_HOME", str(tmp_path))
    assert (tmp_path / "prefect" / "pages.json").stat().st_mode & 0o777 == 0o600
    assert server.shown(MachineSettings()) is None  # its process has ended, though the note is there
    done = script(tmp_path, ASKED)
    assert "[]" in done.stdout, done.stderr


TWO = """
import os

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.run import server

homes = [MachineSettings(home=f"{os.getcwd()}/{name}") for name in "ab"]
first, second = (server.endpoint(home)[0] for home in homes)
print(first != second, server.endpoint(homes[0])[0] == first, *(server.has_pages(home) for home in homes))
print(*(os.path.exists(f"{name}/prefect/prefect.db") for name in "ab"))
"""


@pytest.mark.slow
def test_flows_of_two_homes_are_recorded_each_in_its_own(tmp_path):
    assert script(tmp_path, TWO).stdout == "True True False False\nTrue True\n"


def test_a_note_of_another_release_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setenv("GRISTMILL_HOME", str(tmp_path))
    (tmp_path / "prefect").mkdir()
    (tmp_path / "prefect" / "pages.json").write_text('{"process": "a-1-b", "address": "http://127.0.0.1:1", "port": 1}')
    assert server.shown(MachineSettings()) is None


KILLED = """
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.run import server

settings = MachineSettings()
first, _ = server.endpoint(settings)
print(repr(server.why_none(settings)))
(own,) = server._children.values()
own.process.kill()
own.process.wait()
print(server.why_none(settings))
second, _ = server.endpoint(settings)
print(first != second, repr(server.why_none(settings)))
"""


@pytest.mark.slow
def test_a_server_that_is_killed_is_a_sentence_and_the_next_flow_has_another(tmp_path):
    done = script(tmp_path, KILLED)
    ended = "the Prefect server of this run has ended (signal 9): run the same command again"
    assert done.stdout.splitlines() == ["''", ended, "True ''"], done.stderr


BEGUN = """
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.run import server

try:
    server.endpoint(MachineSettings())
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


@pytest.mark.extended
def test_a_server_that_cannot_start_is_a_sentence_at_once(tmp_path):
    """Its settings name a database of a kind that there is not."""
    done = script(tmp_path, BEGUN, PREFECT_SERVER_DATABASE_CONNECTION_URL="nosuch://nowhere/db")
    log = tmp_path / "prefect" / "server.log"
    assert done.stdout == f"Prefect's server cannot start (exit code 1): see {log}\n", done.stderr
    assert "nosuch" in log.read_text()
