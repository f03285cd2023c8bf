"""The service as processes on loopback, asked as Prefect's pages ask: forms, logins, ports, a schedule, the webhook."""

import copy
import json
import threading
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue

import pytest
from distributed import Client

from gristmill.storage import files
from gristmill.tasks.engine.clusters import Tls
from tests.service_runs import BY_HAND, ENDED, Home, all_ended, ended, flow_run, listening, named

pytestmark = [pytest.mark.service, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("flow", ["pipeline", "corpus", "tokens", "pretrain", "ablate"])
def test_the_form_describes_every_field(services, flow):
    schema = services.prefect("GET", f"/deployments/name/{flow}/{BY_HAND[flow]}")["parameter_openapi_schema"]
    fields = [
        (model, name, field)
        for model, each in schema["definitions"].items()
        for name, field in each.get("properties", {}).items()
    ]
    assert len(fields) > 250
    assert [(model, name) for model, name, field in fields if not field.get("description")] == []


def test_a_wrong_value_is_refused_before_there_is_a_run(services, recipe):
    home = Home(services, "refused")
    wrong = copy.deepcopy(recipe)
    wrong["training"]["steps"] = 0
    for given in (wrong, {"recipe": "c5"}, {"recipe": "c4", "limit": 0}, 3):
        with pytest.raises(urllib.error.HTTPError) as error:
            home.ask("pipeline", given)
        assert error.value.code == 409
        assert "recipe" in json.load(error.value)["detail"]
    deployment = services.prefect("GET", "/deployments/name/pipeline/crawl-to-model")["id"]
    runs = services.prefect("POST", "/flow_runs/filter", {"flow_runs": {"deployment_id": {"any_": [deployment]}}})
    assert not [run for run in runs if run["parameters"]["recipe"] == wrong or "c5" in str(run["parameters"])]


def test_an_unauthenticated_call_is_refused(services):
    api, mlflow = services.environment["PREFECT_API_URL"], services.environment["GRISTMILL_MLFLOW_URI"]
    calls = [
        urllib.request.Request(f"{api}/admin/version"),
        urllib.request.Request(f"{api}/flow_runs/filter", b"{}", {"Content-Type": "application/json"}, method="POST"),
        urllib.request.Request(f"{mlflow}/api/2.0/mlflow/experiments/search?max_results=1"),
    ]
    for call in calls:
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(call, timeout=60)
        assert error.value.code == 401


def test_doctor_finds_the_service_sound(services):
    done = services.gristmill("home", "doctor", "--json")
    lines = {line["subject"]: line for line in json.loads(done.stdout)}
    assert done.returncode == 0, done.stdout + done.stderr
    for subject in ("prefect", "mlflow", "dask", "home"):
        assert lines[subject]["state"] == "ok", lines[subject]


def test_a_scheduled_run_starts_by_itself_and_trains_and_is_tracked(services, recipe):
    """In the home of the worker's own settings. All of its processes listen on loopback alone meanwhile."""
    deployment = services.prefect("GET", "/deployments/name/pipeline/nightly-demo")["id"]
    soon = (datetime.now(UTC) + timedelta(seconds=30)).isoformat()
    given = {
        "active": True,
        "schedule": {"interval": 120, "anchor_date": soon},  # a busy server may miss the first
        "parameters": {"recipe": named(recipe, "scheduled")},
        "slug": "soon",
    }
    before = transitions(services)
    [made] = services.prefect("POST", f"/deployments/{deployment}/schedules", [given])

    def run() -> str | None:
        asked = {
            "flow_runs": {"deployment_id": {"any_": [deployment]}, "state": {"type": {"any_": ["RUNNING", *ENDED]}}}
        }
        found = services.prefect("POST", "/flow_runs/filter", asked)
        return found[0]["id"] if found else None

    started = services.until("scheduled run", run)
    services.prefect("DELETE", f"/deployments/{deployment}/schedules/{made['id']}")
    home, seen = Home(services, "home"), set()

    def over() -> bool:
        seen.update(listening(services))
        return flow_run(services, started)["state"]["type"] in ENDED

    services.until("end of the scheduled run", over, seconds=900)
    assert flow_run(services, started)["state"]["type"] == "COMPLETED", services.log("worker")[-4000:]
    assert flow_run(services, started)["auto_scheduled"]
    assert seen == {"127.0.0.1"}
    stages = {label.rpartition("-")[0] for label in home.stages()}
    assert {"documents", "near_duplicates", "tokens", "model"} <= stages
    assert transitions(services) - before > 2 * len(home.written()) and not home.leases()
    experiment = services.mlflow("GET", "/experiments/get-by-name?experiment_name=scheduled")["experiment"]
    runs = services.mlflow("POST", "/runs/search", {"experiment_ids": [experiment["experiment_id"]]})["runs"]
    assert [one["info"]["status"] for one in runs] == ["FINISHED"]
    assert runs[0]["info"]["artifact_uri"].startswith("mlflow-artifacts:/")
    assert files.names("s3://mlflow/artifacts") != []
    all_ended(services)


def transitions(services) -> int:
    """How often a task on the Dask workers has changed its state."""
    given = services.environment
    tls = Tls(*(given[f"GRISTMILL_DASK_TLS_{name}"] for name in ("CA", "CERT", "KEY")))
    with Client(given["GRISTMILL_DASK_ADDRESS"], security=tls.security(), set_as_default=False) as client:
        return client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.transition_counter)


def test_a_failure_reaches_the_webhook(services, recipe):
    received: SimpleQueue[dict] = SimpleQueue()

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        written = services.gristmill("home", "automations", "--webhook", f"http://127.0.0.1:{server.server_port}/hook")
        assert written.returncode == 0, written.stderr
        missing = recipe | {"sources": [{"name": "web", "warc": ["s3://gristmill/nowhere/*.warc.gz"]}]}
        missing = {**missing, "mixture": None, "steps": recipe["steps"][:2]}
        home = Home(services, "fails")
        run = home.ask("corpus", named(missing, "fails"))
        assert ended(services, run) == "FAILED"
        message = received.get(timeout=300)
        server.shutdown()
    assert message["id"] == run and message["state"] == "Failed" and "nowhere" in message["message"]
