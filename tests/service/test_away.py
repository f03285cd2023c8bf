"""A server of a run's records is killed and away for two minutes: the run waits, and its records are complete."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.service.test_cancel import begun
from tests.service_runs import Home, all_ended

pytestmark = [pytest.mark.service, pytest.mark.timeout(3600)]

COMMAND = "import sys; from gristmill.flows.cli import main; sys.argv = ['gristmill', 'run', sys.argv[1]]; main()"
AWAY = 120.0  # seconds


@pytest.mark.parametrize(
    ("victim", "stage"),
    [("prefect", "near_duplicates"), ("mlflow", "model"), ("postgres", "documents"), ("postgres", "model")],
)
def test_away_for_two_minutes(services, sharded, undisturbed, tmp_path, victim, stage):
    services.supervise()
    name = f"away-{victim}-{stage}"
    home, recipe, log = Home(services, name), tmp_path / "recipe.yaml", tmp_path / "log"
    recipe.write_text(yaml.safe_dump(sharded | {"name": name}))
    run = subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(recipe)],
        env=services.environment | home.environment,
        cwd=Path(__file__).resolve().parents[2],
        stdout=log.open("w"),
        stderr=subprocess.STDOUT,
    )
    try:
        services.until(f"jobs of {stage}", lambda: begun(home, stage))
        services.kill(victim)
        time.sleep(AWAY)
        assert services.supervise() == [victim]
        assert run.wait(1800) == 0, log.read_text()
    finally:
        run.kill()
    said = [line for line in log.read_text().splitlines() if "| WARNING" in line or "| ERROR" in line]
    assert len(said) <= 1 and "Traceback" not in log.read_text(), said
    assert home.contents() == undisturbed
    all_ended(services)
    asked = {"flow_runs": {"name": {"any_": [f"pipeline-{name}"]}}}
    (recorded,) = services.prefect("POST", "/flow_runs/filter", asked)
    assert recorded["state_type"] == "COMPLETED"
    tasks = services.prefect("POST", "/task_runs/filter", {"task_runs": {"name": {"like_": name}}})
    assert {task["state_type"] for task in tasks} == {"COMPLETED"} and len(tasks) >= len(home.stages())
    experiment = services.mlflow("GET", f"/experiments/get-by-name?experiment_name={name}")["experiment"]
    (tracked,) = services.mlflow("POST", "/runs/search", {"experiment_ids": [experiment["experiment_id"]]})["runs"]
    assert tracked["info"]["status"] == "FINISHED"
    at = f"/metrics/get-history?run_id={tracked['info']['run_id']}&metric_key=train/loss&max_results=25000"
    steps = [point["step"] for point in services.mlflow("GET", at)["metrics"]]
    assert sorted({int(step) for step in steps}) == list(range(1, sharded["training"]["steps"] + 1))
