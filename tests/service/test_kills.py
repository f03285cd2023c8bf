"""SIGKILL of what the service is made of, each in the middle of a stage: the same bytes, nothing left, nothing twice.

The object store is left out: that of these tests keeps its objects in memory.
"""

import contextlib

import psutil
import pytest

from tests.service.test_cancel import begun
from tests.service_runs import ENDED, Home, all_ended, cancel, ended, flow_process, named, processes, retry, state

pytestmark = [pytest.mark.service, pytest.mark.timeout(3600)]


def over(services, run: str) -> str:
    """The type of its state if it has ended, else empty; what has died is started again meanwhile."""
    services.supervise()
    return now if (now := state(services, run)) in ENDED else ""


@pytest.mark.parametrize(
    ("victim", "stage"),
    [
        ("flow", "documents"),
        ("flow", "model"),
        ("dask-worker-0", "documents"),
        ("dask-scheduler", "near_duplicates"),
        ("postgres", "documents"),
        ("redis", "documents"),
        ("mlflow", "model"),
        ("prefect", "documents"),
    ],
)
def test_killed_in_the_middle_of_a_stage(services, sharded, undisturbed, victim, stage):
    services.supervise()  # what a test that failed has left dead
    name = f"killed-{victim}-{stage}"
    home = Home(services, name)
    run = home.ask("pipeline" if stage == "model" else "corpus", named(sharded, name))
    services.until(f"jobs of {stage}", lambda: begun(home, stage))
    if victim == "flow":
        flow_process(services, run).kill()
    else:
        services.kill(victim)
    before, in_the_middle = home.written(), not home.finished(stage)
    assert in_the_middle, "it was killed too late"
    first = services.until("end of the run", lambda: over(services, run), seconds=1800)
    if first != "COMPLETED":
        services.until("end of its processes", lambda: not services.supervise() and not processes(run), seconds=120)
        retry(services, run)
        # workers of a scheduler that is gone end some time after it
        second = services.until("end of the retry", lambda: over(services, run), seconds=1800)
        assert second == "COMPLETED", services.log("worker")[-4000:]
    print(f"\n{victim} in {stage}: the run was {first}", flush=True)

    after = home.written()
    assert before and {marker: after[marker] for marker in before} == before, "a finished job was done again"
    made = home.contents()
    assert undisturbed.items() >= made.items()
    assert not home.leases()
    assert not processes(run)
    all_ended(services)
    assert state(services, run) == "COMPLETED"
    if stage != "model":
        return
    assert made == undisturbed
    experiment = services.mlflow("GET", f"/experiments/get-by-name?experiment_name={name}")["experiment"]
    runs = services.mlflow("POST", "/runs/search", {"experiment_ids": [experiment["experiment_id"]]})["runs"]
    assert [one["info"]["status"] for one in runs] == ["FINISHED"]


@pytest.mark.parametrize("asked", ["nothing", "cancel"])
def test_a_run_whose_machine_is_gone_is_ended(services, sharded, undisturbed, asked):
    """Flow and worker die at once, and nobody reports it: the automations end the run, and it can be tried again."""
    assert services.gristmill("home", "automations").returncode == 0
    name = f"gone-{asked}"
    home = Home(services, name)
    run = home.ask("corpus", named(sharded, name))
    services.until("jobs of documents", lambda: begun(home, "documents"))
    of_run = processes(run)
    services.kill("worker")
    for process in of_run:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    before = home.written()
    if asked == "cancel":
        cancel(services, run)
    assert ended(services, run, 600) == ("CANCELLED" if asked == "cancel" else "CRASHED")
    services.supervise()
    retry(services, run)
    assert ended(services, run) == "COMPLETED", services.log("worker")[-4000:]
    after = home.written()
    assert before and {marker: after[marker] for marker in before} == before
    assert undisturbed.items() >= home.contents().items()
    assert not home.leases()
    all_ended(services)
