"""`gristmill ui` as a process: who reads and changes what on its two pages, runs beside it, and how it ends."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.run import server
from tests.foreign_account import attacked, listening
from tests.local_pages import ask, basic

pytestmark = pytest.mark.extended

ROOT = Path(__file__).resolve().parents[3]
COMMAND = "import sys; from gristmill.flows.cli import main; sys.argv = ['gristmill', *sys.argv[1:]]; main()"


def environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "GRISTMILL_"))}
    return kept | {"GRISTMILL_HOME": str(home), "PYTHONPATH": str(ROOT)}


# What somebody has in the environment who runs a server of Prefect's elsewhere, too.
OF_OTHER_SERVERS = {
    "PREFECT_SERVER_API_AUTH_STRING": "admin:secret",
    "PREFECT_UI_API_URL": "https://prefect.example/api",
    "PREFECT_SERVER_UI_SERVE_BASE": "/prefect",
    "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS": "*",
}


class Shown:
    """The command, on a home; `links`: what it printed, by name."""

    def __init__(self, home: Path, *options: str) -> None:
        home.mkdir(exist_ok=True)
        self.home = home
        self.process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, "ui", "--home", str(home), *options],
            env=environment(home) | OF_OTHER_SERVERS,
            cwd=home,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("starting the pages")
        lines = [self.process.stdout.readline().split() for _ in range(2)]
        self.links = {name: link for name, link in lines}
        assert self.process.stdout.readline() == "Press Ctrl-C to stop\n"
        self.children = psutil.Process(self.process.pid).children(recursive=True)

    def address(self, name: str) -> str:
        """By number: only browsers resolve the name of the link."""
        return "http://127.0.0.1:" + self.links[name].partition(".localhost:")[2].partition("/?")[0]

    def login(self, name: str) -> str:
        return "gristmill:" + self.links[name].partition("token=")[2].partition("#")[0]

    def headers(self, name: str) -> dict[str, str]:
        return basic(self.login(name))

    def ask(self, name: str, path: str, body: dict | None = None, **headers: str) -> tuple[int, bytes]:
        """Status and content of a page; a body is posted."""
        return ask(self.address(name) + path, body, **headers)

    def flows(self) -> list[str]:
        with closing(sqlite3.connect(self.home / "prefect" / "prefect.db")) as database:
            return [name for (name,) in database.execute("select name from flow")]

    def are_gone(self) -> bool:
        """Whether its servers have ended, within a minute."""
        _, alive = psutil.wait_procs(self.children, 60)
        return len(self.children) == 2 and not alive


@pytest.fixture(scope="module")
def shown(tmp_path_factory) -> Iterator[Shown]:
    shown = Shown(tmp_path_factory.mktemp("ui") / "home")
    yield shown
    shown.process.terminate()
    assert shown.process.wait(60) == 128 + signal.SIGTERM


CREATE = {
    "Prefect": ("/api/flows/", {"name": "planted"}),
    "MLflow": ("/api/2.0/mlflow/experiments/create", {"name": "a"}),
}
READ = {"Prefect": ("/", "/api/health", "/api/admin/settings", "/ui-settings"), "MLflow": ("/", "/health", "/version")}
FOREIGN = ({"Origin": "http://harm.example"}, {"Origin": "null"}, {"Host": "harm.example"}, {"Host": "[::1]:80"},
           {"Sec-Fetch-Site": "cross-site"})  # fmt: skip


@pytest.mark.parametrize("name", CREATE)
def test_a_foreign_page_reads_and_changes_nothing_even_with_the_login(shown, name):
    for headers in FOREIGN:
        for path in READ[name]:
            assert shown.ask(name, path, **shown.headers(name), **headers) == (403, b""), (path, headers)
        assert shown.ask(name, *CREATE[name], **shown.headers(name), **headers) == (403, b""), headers
    assert shown.flows() == []


@pytest.mark.parametrize("name", CREATE)
def test_without_the_login_of_the_page_nothing_is_read_or_changed(shown, name):
    other = next(each for each in CREATE if each != name)
    for headers in ({}, shown.headers(other)):
        for path in READ[name]:
            status, content = shown.ask(name, path, **headers)
            assert status == 401 and b"gristmill ui" in content, (path, headers)
        assert shown.ask(name, *CREATE[name], **headers)[0] == 401
    assert shown.flows() == []


def test_another_account_reads_and_changes_nothing(shown, tmp_path):
    ports = listening(psutil.Process(shown.process.pid))
    assert len(ports) == 2 and all(command.startswith("127.0.0.1 ") for command in ports.values())
    assert attacked(set(ports), tmp_path / "planted") == []
    assert not (tmp_path / "planted").exists()


def test_no_page_allows_other_origins(shown):
    for name in CREATE:
        for path in READ[name]:
            request = urllib.request.Request(shown.address(name) + path, headers=shown.headers(name))
            with urllib.request.urlopen(request) as answer:
                assert not [each for each in answer.headers if each.lower().startswith("access-control-")]
                assert "default-src 'self'" in answer.headers["Content-Security-Policy"]


def test_events_are_taken_from_the_login_alone(shown):
    address = shown.address("Prefect").replace("http", "ws") + "/api/events/in"
    for headers in (
        {},
        {"Authorization": "Basic Z3Jpc3RtaWxsOng="},
        shown.headers("Prefect") | {"Origin": "http://a.b"},
    ):
        with pytest.raises(InvalidStatus), connect(address, additional_headers=headers):
            pass
    with connect(address, additional_headers=shown.headers("Prefect"), subprotocols=["prefect"]) as socket:
        socket.send(json.dumps({"type": "auth", "token": None}))
        assert json.loads(socket.recv())["type"] == "auth_success"


def test_the_page_asks_its_own_address(shown):
    settings = json.loads(shown.ask("Prefect", "/ui-settings", **shown.headers("Prefect"))[1])
    assert settings["api_url"] == "/api"


def test_a_second_command_prints_the_links_of_the_first(shown):
    command = [sys.executable, "-c", COMMAND, "ui", "--home", str(shown.home)]
    done = subprocess.run(command, env=environment(shown.home), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert set(shown.links.values()) <= set(done.stdout.split())


def test_the_login_is_in_no_argument_environment_or_log(shown):
    tokens = [shown.login(name).partition(":")[2] for name in CREATE]
    for child in shown.children:
        read = " ".join(child.cmdline()) + Path(f"/proc/{child.pid}/environ").read_text()
        assert not [token for token in tokens if token in read]
    logs = [*shown.home.rglob("*.log")]
    assert len(logs) == 2 and not [log for log in logs for token in tokens if token in log.read_text()]
    readable = [path for path in shown.home.rglob("*") if path.is_file() and path.stat().st_mode & 0o077]
    assert not [path for path in readable if any(token.encode() in path.read_bytes() for token in tokens)]


def test_a_home_that_is_not_there_is_an_error(tmp_path):
    command = [sys.executable, "-c", COMMAND, "ui", "--home", str(tmp_path / "hme")]
    done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True)
    assert done.returncode == 1 and f"home not found: {tmp_path / 'hme'}" in done.stderr
    assert not (tmp_path / "hme").exists()


@pytest.mark.slow
def test_a_run_beside_it_is_recorded_by_its_server_and_starts_none(shown, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "Grist to the mill."}\n')
    (tmp_path / "r.yaml").write_text(
        "name: beside\nsources: [{name: a, jsonl: [a.jsonl]}]\nsteps: [{step: normalize}]\n"
    )
    command = [sys.executable, "-c", COMMAND, "corpus", "r.yaml"]
    run = subprocess.Popen(command, env=environment(shown.home), cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    commands = set()
    while run.poll() is None:
        with contextlib.suppress(psutil.Error):
            commands |= {" ".join(child.cmdline()) for child in psutil.Process(run.pid).children()}
    assert run.returncode == 0, run.stderr.read()
    assert not [each for each in commands if "gristmill.flows.run.server" in each]
    asked = shown.ask("Prefect", "/api/flow_runs/filter", {}, **shown.headers("Prefect"))[1]
    assert [(flow["name"], flow["state_type"]) for flow in json.loads(asked)] == [("corpus-beside", "COMPLETED")]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_its_servers_end_with_it_however_it_ends(tmp_path, monkeypatch, number):
    shown = Shown(tmp_path / "home")
    monkeypatch.setenv("GRISTMILL_HOME", str(shown.home))
    assert server.shown(MachineSettings()) is not None
    shown.process.send_signal(number)
    shown.process.wait(60)
    assert shown.are_gone()
    assert server.shown(MachineSettings()) is None
    assert (shown.home / "prefect" / "pages.json").exists() == (number == signal.SIGKILL)


@pytest.mark.slow
def test_a_server_that_dies_ends_it_with_a_sentence(tmp_path):
    shown = Shown(tmp_path / "home")
    next(child for child in shown.children if "gristmill.flows.run.server" in child.cmdline()).kill()
    said, _ = shown.process.communicate(timeout=60)
    assert shown.process.returncode == 1 and shown.are_gone()
    assert said.startswith("gristmill: Prefect's server stopped: signal 9. Read ")
    assert not (shown.home / "prefect" / "pages.json").exists()
