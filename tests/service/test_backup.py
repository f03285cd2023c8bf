"""The databases of real servers: backed up while they serve, lost, and restored (docs/guides/disk-and-backup.md)."""

import subprocess
import urllib.error
from pathlib import Path

import pytest

from tests import services as servers

pytestmark = [pytest.mark.service, pytest.mark.timeout(3600)]
DATABASES = ("prefect", "mlflow", "mlflow_auth")
SERVERS = ("prefect", "mlflow")


@pytest.fixture(scope="module")
def services(tmp_path_factory):
    if lacking := servers.missing():
        pytest.skip(f"this machine lacks {lacking}")
    with servers.serve(tmp_path_factory.mktemp("services"), workers=0, deployments=False) as running:
        yield running


def make_prefect_run(services, name: str) -> str:
    flow = services.prefect("POST", "/flows/", {"name": "backed-up"})["id"]
    return services.prefect("POST", "/flow_runs/", {"flow_id": flow, "name": name})["id"]


def make_mlflow_run(services, experiment: str, loss: float) -> str:
    run = services.mlflow("POST", "/runs/create", {"experiment_id": experiment})["run"]["info"]["run_id"]
    services.mlflow(
        "POST", "/runs/log-metric", {"run_id": run, "key": "loss", "value": loss, "timestamp": 1, "step": 1}
    )
    return run


def test_what_was_backed_up_is_there_after_the_databases_were_lost(services, tmp_path: Path):
    address = services.commands["prefect"][1]["PREFECT_SERVER_DATABASE_CONNECTION_URL"]
    at = address.replace("+asyncpg", "").rpartition("/")[0]
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1]

    def postgres(program: str, *words: str) -> None:
        done = subprocess.run([programs / program, *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    kept = make_prefect_run(services, "kept")
    experiment = services.mlflow("POST", "/experiments/create", {"name": "backed-up"})["experiment_id"]
    model = make_mlflow_run(services, experiment, 2.5)
    for name in DATABASES:
        postgres("pg_dump", "--format=custom", f"--file={tmp_path}/{name}.dump", f"{at}/{name}")
    later = make_prefect_run(services, "later")

    for name in SERVERS:
        services.kill(name)
    for name in DATABASES:
        postgres("dropdb", "--force", f"--maintenance-db={at}/postgres", name)
        postgres("createdb", f"--maintenance-db={at}/postgres", name)
        postgres("pg_restore", "--no-owner", "--exit-on-error", f"--dbname={at}/{name}", f"{tmp_path}/{name}.dump")
    assert set(services.supervise()) == set(SERVERS)
    services.until("Prefect", lambda: services.prefect("GET", "/ready"), "prefect")
    services.until("MLflow", lambda: services.mlflow("GET", f"/experiments/get?experiment_id={experiment}"), "mlflow")

    assert services.prefect("GET", f"/flow_runs/{kept}")["name"] == "kept"
    with pytest.raises(urllib.error.HTTPError, match="404"):  # made after the backup: the restore is what was looked at
        services.prefect("GET", f"/flow_runs/{later}")
    found = services.mlflow("GET", f"/runs/get?run_id={model}")["run"]
    assert [(metric["key"], metric["value"]) for metric in found["data"]["metrics"]] == [("loss", 2.5)]
    # and the servers write again
    make_prefect_run(services, "after")
    make_mlflow_run(services, experiment, 2.4)
