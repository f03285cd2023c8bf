"""Cancel in extraction, in deduplication and in training, then retry, by what Prefect's buttons ask for."""

import pytest

from gristmill.storage import files
from tests.service_runs import Home, all_ended, cancel, ended, flow_run, named, processes, retry

pytestmark = [pytest.mark.service, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("stage", ["documents", "near_duplicates", "model"])
def test_cancel_ends_all_and_retry_goes_on(services, sharded, undisturbed, stage):
    name = f"cancelled-{stage}"
    home = Home(services, name)
    run = home.ask("pipeline" if stage == "model" else "corpus", named(sharded, name))
    services.until(f"jobs of {stage}", lambda: begun(home, stage))
    cancel(services, run)
    assert ended(services, run, 300) == "CANCELLED"
    assert not home.finished(stage), "it was cancelled too late"
    services.until("end of its processes", lambda: not processes(run), seconds=60)
    all_ended(services)
    assert not home.leases()
    # until then it may end a retry (docs/guides/schedule.md)
    report = f"Cancelled flow run '{flow_run(services, run)['name']}'"
    services.until("report of the worker", lambda: report in services.log("worker"), seconds=60)

    before = home.written()
    retry(services, run)
    assert ended(services, run) == "COMPLETED", services.log("worker")[-4000:]
    assert flow_run(services, run)["run_count"] == 2
    after = home.written()
    assert before and {marker: after[marker] for marker in before} == before, "a finished job was done again"
    assert undisturbed.items() >= home.contents().items()
    assert not home.leases()
    if stage == "model":
        assert "resuming from" in "".join(path.read_text() for path in local_files(home, "training.log"))
        experiment = services.mlflow("GET", f"/experiments/get-by-name?experiment_name={name}")["experiment"]
        runs = services.mlflow("POST", "/runs/search", {"experiment_ids": [experiment["experiment_id"]]})["runs"]
        assert [one["info"]["status"] for one in runs] == ["FINISHED"]
    all_ended(services)


def begun(home: Home, stage: str) -> bool:
    """Some jobs of the stage are done, or a checkpoint of its training is behind it."""
    if stage != "model":
        return home.markers(stage) > 2
    return any(files.read_bytes(str(path)).count(b"\n") > 110 for path in local_files(home, "metrics.jsonl"))


def local_files(home: Home, name: str) -> list:
    return list((home.services.folder / f"local-{home.name}").rglob(f"stages/model-*/{name}"))
