"""The service as processes on loopback, asked as Prefect's pages ask: forms, a schedule, cancel and retry, webhooks."""

import json
import threading
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue

import psutil
import pytest
import yaml

from storage import files
from tests import services as servers

pytestmark = [pytest.mark.service, pytest.mark.timeout(3600)]
OPEN = ["PENDING", "RUNNING", "CANCELLING"]
ENDED = ["COMPLETED", "FAILED", "CRASHED", "CANCELLED"]


@pytest.fixture(scope="module")
def services(tmp_path_factory):
    if lacking := servers.missing():
        pytest.skip(f"this machine lacks {lacking}")
    with servers.serve(tmp_path_factory.mktemp("services")) as running:
        yield running


@pytest.fixture(autouse=True)
def store(services, monkeypatch):
    """The home in S3, as this process sees it."""
    for name, value in services.environment.items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)


def ask(services, flow: str, recipe) -> str:
    """A run of a deployment with a recipe; its id."""
    deployment = services.prefect("GET", f"/deployments/name/{flow}/by-hand")["id"]
    given = {"parameters": {"recipe": recipe}}
    return services.prefect("POST", f"/deployments/{deployment}/create_flow_run", given)["id"]


def state(services, run: str) -> dict:
    return services.prefect("GET", f"/flow_runs/{run}")["state"]


def ended(services, run: str, seconds: float = 900) -> dict:
    services.until(f"end of {run}", lambda: state(services, run)["type"] in ENDED, seconds=seconds)
    return state(services, run)


def all_open(services) -> list[str]:
    """Names of the flow runs and task runs that are open."""
    given = {"state": {"type": {"any_": OPEN}}}
    flows = services.prefect("POST", "/flow_runs/filter", {"flow_runs": given})
    tasks = services.prefect("POST", "/task_runs/filter", {"task_runs": given})
    return [run["name"] for run in (*flows, *tasks)]


def processes(run: str) -> list[str]:
    """Those that were started for a flow run."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        try:
            if process.environ().get("PREFECT__FLOW_RUN_ID") == run:
                found.append(" ".join(process.info["cmdline"]))
        except psutil.Error:
            continue
    return found


def done(services) -> dict[str, dict]:
    """What each finished job has recorded, by stage and job."""
    root = f"{services.environment['GRISTMILL_HOME']}/stages"
    return {
        f"{stage}/{name}": files.modified(files.join(root, stage, "done", name))
        for stage in files.names(root)
        for name in files.names(files.join(root, stage, "done"))
    }


def test_a_wrong_value_is_refused_before_there_is_a_run(services, recipe):
    wrong = json.loads(json.dumps(recipe))
    wrong["training"]["steps"] = 0
    for given in (wrong, {"recipe": "c5"}, {"recipe": "c4", "limit": 0}, 3):
        with pytest.raises(urllib.error.HTTPError) as error:
            ask(services, "pipeline", given)
        assert error.value.code == 409
        assert "recipe" in json.load(error.value)["detail"]
    assert services.prefect("POST", "/flow_runs/count", {"deployments": {"name": {"any_": ["by-hand"]}}}) == 0


def test_an_unauthenticated_call_is_refused(services):
    calls = {
        services.environment["PREFECT_API_URL"] + "/admin/version": 401,
        services.environment["GRISTMILL_MLFLOW_URI"] + "/api/2.0/mlflow/experiments/search?max_results=1": 401,
    }
    for url, code in calls.items():
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(url, timeout=30)
        assert error.value.code == code


def test_doctor_finds_the_service_sound(services):
    done = services.gristmill("doctor", "--json")
    lines = {line["subject"]: line for line in json.loads(done.stdout)}
    assert done.returncode == 0, done.stdout + done.stderr
    for subject in ("prefect", "mlflow", "dask", "home"):
        assert lines[subject]["state"] == "ok", lines[subject]


def test_a_scheduled_run_starts_by_itself_and_trains_and_is_tracked(services, recipe):
    deployment = services.prefect("GET", "/deployments/name/pipeline/nightly")["id"]
    soon = (datetime.now(UTC) + timedelta(seconds=20)).isoformat()
    given = {
        "active": True,
        "schedule": {"interval": 86_400, "anchor_date": soon},
        "parameters": {"recipe": {"yaml": yaml.safe_dump(recipe)}},
        "slug": "soon",
    }
    services.prefect("POST", f"/deployments/{deployment}/schedules", [given])

    def run() -> str | None:
        asked = {
            "flow_runs": {"deployment_id": {"any_": [deployment]}, "state": {"type": {"any_": ["RUNNING", *ENDED]}}}
        }
        found = services.prefect("POST", "/flow_runs/filter", asked)
        return found[0]["id"] if found else None

    started = services.until("scheduled run", run)
    last = ended(services, started)
    assert last["type"] == "COMPLETED", (last, services.log("worker")[-3000:])
    home = services.environment["GRISTMILL_HOME"]
    stages = {label.rpartition("-")[0] for label in files.names(f"{home}/stages")}
    assert {"documents", "near_duplicates", "tokens", "model"} <= stages
    experiment = services.mlflow("GET", f"/experiments/get-by-name?experiment_name={recipe['name']}")["experiment"]
    runs = services.mlflow("POST", "/runs/search", {"experiment_ids": [experiment["experiment_id"]]})["runs"]
    assert [one["info"]["status"] for one in runs] == ["FINISHED"]
    assert runs[0]["info"]["artifact_uri"].startswith("mlflow-artifacts:/")
    assert files.names("s3://mlflow/artifacts") != []
    assert all_open(services) == []


@pytest.mark.parametrize("stage", ["documents", "near_duplicates", "model"])
def test_cancel_ends_all_and_retry_goes_on(services, recipe, stage):
    """Each has a seed or a limit of its own, so that the stage is to be made."""
    own = json.loads(json.dumps(recipe)) | {"name": f"cancel-{stage.replace('_', '-')}"}
    if stage == "documents":
        own["limit"] = 60
    elif stage == "near_duplicates":
        own["steps"][6]["seed"] = 11
    else:
        own["training"] |= {"steps": 600, "seed": 11, "eval_every": 300, "checkpoint_every": 300}
    run = ask(services, "pipeline" if stage == "model" else "corpus", {"yaml": yaml.safe_dump(own)})
    home = services.environment["GRISTMILL_HOME"]
    before = {label for label in files.names(f"{home}/stages")}

    def begun() -> bool:
        new = [label for label in files.names(f"{home}/stages") if label not in before and label.startswith(stage)]
        if stage == "model":
            return f"{own['name']}-model" in (log := services.log("worker")) and " step " in log.rsplit("model-", 1)[-1]
        return any(files.names(f"{home}/stages/{label}/done") for label in new)

    services.until(f"job of {stage}", begun, seconds=900)
    asked = {"state": {"type": "CANCELLING", "name": "Cancelling"}}
    services.prefect("POST", f"/flow_runs/{run}/set_state", asked)
    assert ended(services, run, 300)["type"] == "CANCELLED"
    services.until("end of its processes", lambda: processes(run) == [], seconds=60)
    services.until("end of its records", lambda: all_open(services) == [], seconds=60)
    leases = [label for label in files.names(f"{home}/stages") if files.names(f"{home}/stages/{label}/lease")]
    assert leases == []
    finished = done(services)
    retry = {"state": {"type": "SCHEDULED", "name": "AwaitingRetry"}}
    assert services.prefect("POST", f"/flow_runs/{run}/set_state", retry)["status"] == "ACCEPT"
    services.until("retry", lambda: state(services, run)["type"] in ("RUNNING", *ENDED))
    assert ended(services, run)["type"] == "COMPLETED"
    after = done(services)
    assert finished and {job: after[job] for job in finished if job in after} == {
        job: written for job, written in finished.items() if job in after
    }
    if stage == "model":
        assert "resuming from" in services.log("worker").rsplit(f"{own['name']}-model", 1)[0]


def test_a_failure_is_told_to_the_webhook(services, recipe):
    told: SimpleQueue[dict] = SimpleQueue()

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        written = services.gristmill("automations", "--webhook", f"http://127.0.0.1:{server.server_port}/told")
        assert written.returncode == 0, written.stderr
        missing = recipe | {"sources": [{"name": "web", "warc": ["s3://gristmill/nowhere/*.warc.gz"]}], "name": "fails"}
        missing = {**missing, "mixture": None, "steps": recipe["steps"][:2]}
        run = ask(services, "corpus", {"yaml": yaml.safe_dump(missing)})
        assert ended(services, run)["type"] == "FAILED"
        message = told.get(timeout=120)
        server.shutdown()
    assert message["id"] == run and message["state"] == "Failed" and "nowhere" in message["message"]
