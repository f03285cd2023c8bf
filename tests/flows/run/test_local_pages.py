"""Local servers as child processes, and MLflow's pages behind a gate: who may read and change what."""

import json
import os
import socket
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import mlflow
import psutil
import pytest

from gristmill.flows.machine.gate import link
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.run import mlflow_pages
from gristmill.flows.run.compared import shared_view
from gristmill.flows.run.local_server import LocalServer
from gristmill.flows.run.tracking import TrackedExperiment
from tests.flows.browse.chromium import PROGRAM, chromium, elsewhere
from tests.foreign_account import attacked, listening
from tests.local_pages import ask, basic

pytestmark = pytest.mark.extended

ROOT = Path(__file__).resolve().parents[3]
EXPERIMENTS = "/ajax-api/2.0/mlflow/experiments"


@dataclass
class Pages:
    server: LocalServer
    address: str
    settings: MachineSettings
    run: str

    def ask(self, path: str, body: dict | None = None, login: bool = True, **headers: str) -> tuple[int, bytes]:
        """Status and content; a body is posted."""
        return ask(self.address + path, body, **(basic(self.server.login) if login else {}), **headers)

    def names(self) -> set[str]:
        """The experiments of the database."""
        return {each.name for each in TrackedExperiment(self.settings, "web").client.search_experiments()}


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> Iterator[Pages]:
    settings = MachineSettings(home=str(tmp_path_factory.mktemp("home")))
    experiment = TrackedExperiment(settings, "web")
    run = experiment.create("base", {})
    experiment.client.log_text(run, "steps: []", "recipe.yaml")
    server = mlflow_pages.start(settings)
    yield Pages(server, server.wait(), settings, run)
    server.stop()
    assert server.process.returncode == 0


def test_pages_records_and_artifacts_are_served_to_the_login(pages):
    status, content = pages.ask("/")
    assert status == 200 and b"<title>MLflow</title>" in content
    status, content = pages.ask(f"{EXPERIMENTS}/get-by-name?experiment_name=web")
    assert status == 200 and json.loads(content)["experiment"]["name"] == "web"
    assert pages.ask(f"/get-artifact?run_uuid={pages.run}&path=recipe.yaml") == (200, b"steps: []")


def test_mlflows_own_client_reads_and_writes_with_the_login(pages, monkeypatch):
    user, _, password = pages.server.login.partition(":")
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", user)
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", password)
    client = mlflow.MlflowClient(pages.address)
    client.set_tag(pages.run, "seen", "yes")
    assert client.get_run(pages.run).data.tags["seen"] == "yes"


FOREIGN = {
    "origin": {"Origin": "http://harm.example"},
    "no origin": {"Origin": "null"},
    "another port": {"Origin": "http://127.0.0.1:1"},
    "host": {"Host": "harm.example"},
    "site": {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"},
}


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_page_reads_and_changes_nothing(pages, headers):
    for login in (True, False):
        for path in ("/", "/health", f"{EXPERIMENTS}/search?max_results=5", "/static-files/manifest.json"):
            assert pages.ask(path, login=login, **headers) == (403, b"")
        assert pages.ask(f"{EXPERIMENTS}/create", {"name": "planted"}, login, **headers) == (403, b"")
    assert pages.names() == {"Default", "web"}


def test_without_login_nothing_is_read_or_changed(pages):
    for path in ("/", "/health", "/version", f"{EXPERIMENTS}/search?max_results=5", "/static-files/manifest.json"):
        status, content = pages.ask(path, login=False)
        assert status == 401 and b"gristmill ui" in content
    assert pages.ask(f"{EXPERIMENTS}/create", {"name": "planted"}, login=False)[0] == 401
    assert pages.names() == {"Default", "web"}


def test_another_account_reads_and_changes_nothing(pages, tmp_path):
    ports = listening(psutil.Process(pages.server.process.pid))
    assert len(ports) == 1 and next(iter(ports.values())).startswith("127.0.0.1 ")
    assert f"http://127.0.0.1:{next(iter(ports))}" == pages.address
    assert attacked(set(ports), tmp_path / "planted") == []
    assert not (tmp_path / "planted").exists()


def test_parts_of_mlflow_that_run_or_ask_something_are_not_served(pages):
    for path in ("3.0/mlflow/assistant/config", "3.0/mlflow/assistant/message", "3.0/jobs/1", "2.0/mlflow/webhooks",
                 "2.0/mlflow/gateway-proxy", "2.0/mlflow/runs/create-promptlab-run", "3.0/mlflow/scorer/invoke",
                 "3.0/mlflow/demo/generate", "3.0/mlflow/gateway/endpoints/list"):  # fmt: skip
        for root in ("/ajax-api/", "/api/", "//ajax-api//"):
            assert pages.ask(root + path) == (404, b"")
            assert pages.ask(root + path, {}) == (404, b"")
    assert pages.ask("/gateway/x/mlflow/invocations", {}) == (404, b"")
    assert pages.ask("/v1/traces", {}) == (404, b"")
    telemetry = json.loads(pages.ask("/ajax-api/3.0/mlflow/ui-telemetry")[1])
    assert telemetry["disable_ui_telemetry"] is True


def test_the_token_is_in_no_argument_and_no_log(pages):
    token = pages.server.login.partition(":")[2]
    assert (
        pages.ask(link("/", pages.server.login), login=False, Cookie=f"x={token}")[0] == 401
    )  # urllib keeps no cookie
    pages.ask(f"{EXPERIMENTS}/nothing?token={token}x", login=False)
    processes = [psutil.Process(pages.server.process.pid), *psutil.Process(pages.server.process.pid).children(True)]
    assert len(processes) == 1, "MLflow has started a process"
    assert token not in " ".join(processes[0].cmdline())
    assert token not in pages.server.log.read_text()
    assert stat.S_IMODE(pages.server.log.stat().st_mode) == 0o600
    assert os.getsid(processes[0].pid) == processes[0].pid


def test_artifacts_of_a_home_that_was_moved_are_its_own(pages, tmp_path):
    moved = tmp_path / "moved"
    subprocess.run(["cp", "-r", pages.settings.home, moved], check=True)
    next(moved.glob("mlflow-artifacts/*/artifacts/recipe.yaml")).write_text("moved")
    server = mlflow_pages.start(MachineSettings(home=str(moved)))
    there = Pages(server, server.wait(), MachineSettings(home=str(moved)), pages.run)
    assert there.ask(f"/get-artifact?run_uuid={pages.run}&path=recipe.yaml") == (200, b"moved")
    server.stop()


def test_what_cannot_be_served_is_one_sentence(tmp_path):
    settings = MachineSettings(home=str(tmp_path), mlflow_uri="http://user:secret@tracking.example:5000")
    server = mlflow_pages.start(settings)
    with pytest.raises(RuntimeError) as error:
        server.wait()
    assert str(error.value).endswith("tracking.example:5000: open that server's pages instead")
    assert "secret" not in str(error.value)
    (tmp_path / "mlflow.db").write_bytes(os.urandom(300_000))
    server = mlflow_pages.start(MachineSettings(home=str(tmp_path)))
    with pytest.raises(RuntimeError, match="mlflow.db is damaged"):
        server.wait()
    assert server.how_ended() == "exit code 1"


def test_a_module_that_fails_names_the_log(tmp_path):
    server = LocalServer("the server", "no_such_module", tmp_path / "new" / "server.log", environment=os.environ)
    with pytest.raises(RuntimeError, match=r"^the server cannot start \(exit code 1\): see .*server.log"):
        server.wait()
    assert "No module named" in server.log.read_text()
    assert stat.S_IMODE(server.log.parent.stat().st_mode) == 0o700
    server.stop()


def test_a_log_that_was_there_is_closed_to_others_and_its_folder_is_left(tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "server.log").write_text("earlier\n")
    (tmp_path / "server.log").chmod(0o644)
    LocalServer("the server", "no_such_module", tmp_path / "server.log", environment=os.environ).stop()
    assert stat.S_IMODE((tmp_path / "server.log").stat().st_mode) == 0o600
    assert (tmp_path / "server.log").read_text().startswith("earlier\n")
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


SERVE = """
import sys
from starlette.responses import PlainTextResponse
from gristmill.flows.run.local_server import serve

serve(lambda: PlainTextResponse("served"), int(sys.argv[1]))
"""


def child(*arguments: object, login: bytes) -> tuple[subprocess.CompletedProcess, str]:
    """A child that is given this line and then the end of its input; its first line."""
    command = [sys.executable, "-c", SERVE, *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, input=login, capture_output=True, timeout=300, env=environment)
    return done, done.stdout.decode()


@pytest.mark.parametrize("login", [b"", b"\n", b"gristmill:half of a tok"])
def test_without_a_whole_login_nothing_is_served(login):
    """The parent has died before it wrote one."""
    done, line = child(0, login=login)
    assert line == "" and done.returncode == 0


def test_a_port_that_is_taken_is_one_sentence():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with subprocess.Popen(
            [sys.executable, "-c", SERVE, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        ) as process:
            process.stdin.write("gristmill:token\n")
            process.stdin.flush()
            assert process.stdout.readline() == (
                f"error: port {port} of 127.0.0.1 cannot be used (Address already in use)\n"
            )


PARENT = """
import sys, time
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.run import mlflow_pages

server = mlflow_pages.start(MachineSettings(home=sys.argv[1]))
print(server.wait(), server.process.pid, flush=True)
time.sleep(600)
"""


def test_pages_end_with_their_parent_when_it_is_killed(tmp_path):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    address, number = parent.stdout.readline().split()
    ended = psutil.Process(int(number))
    parent.kill()
    parent.communicate()
    ended.wait(timeout=120)
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address, timeout=60)


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium")
def test_in_chromium_the_link_opens_the_shared_table_and_other_pages_get_nothing(pages):
    experiment = TrackedExperiment(pages.settings, "web")
    experiment.client.log_metric(pages.run, "heldout-1a2b3c/bits_per_byte", 2.5)
    path = shared_view(experiment.client, experiment.id())
    page = link(pages.address, pages.server.login).partition("/?")[0]
    table = "[...document.querySelectorAll('[role=columnheader]')].map((each) => each.innerText).join()"
    with elsewhere() as others, chromium(others) as tab:
        tab.screen(1800)
        tab.open(link(pages.address + path, pages.server.login))
        tab.wait(f"({table}).includes('heldout-1a2b3c/bits_per_byte')")
        assert tab.value("location.href").startswith(f"{page}{path}")
        assert "token=" not in tab.value("location.href") and not tab.value("document.cookie")
        assert not [each for each in tab.asked if not each.startswith((page, "data:", "blob:"))]

        # with the cookie, a page of another port and one of another host can neither read nor change
        create = f"{page}{EXPERIMENTS}/create"
        body = json.dumps({"name": "planted"})
        for origin in (f"http://127.0.0.1:{others.server_address[1]}", "http://page.example"):
            tab.open(f"{origin}/page")
            for mode in ("cors", "no-cors"):
                ask = f"credentials: 'include', mode: '{mode}'"
                for what in (f"fetch('{page}/version', {{{ask}}})",
                             f"fetch('{create}', {{{ask}, method: 'POST', body: {json.dumps(body)}}})"):  # fmt: skip
                    told = tab.value(f"{what}.then((answer) => answer.text(), () => 'refused')")
                    assert told in ("refused", ""), (origin, mode, told)
        assert pages.names() == {"Default", "web"}

        # a person follows a link of another page, without login and with it
        tab.open("http://page.example/page")
        tab.value(f"location.href = '{page}/version'")
        tab.wait("document.body.innerText.includes('gristmill ui')")
        tab.click("a")
        tab.wait("/^[0-9.]+$/.test(document.body.innerText.trim())")
        tab.open("http://page.example/page")
        tab.value(f"location.href = '{link(pages.address + '/version', pages.server.login)}'")
        tab.wait("/^[0-9.]+$/.test(document.body.innerText.trim())")
        assert tab.value("location.href") == f"{page}/version"
