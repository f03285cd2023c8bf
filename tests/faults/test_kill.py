"""Kill the flow in the middle, or change the number of workers: the same bytes come out."""

import os
import signal
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from gristmill.storage import files
from gristmill.tasks.engine.make import COST

EARLIER = ["candidates", "documents", "near_duplicates", "rules", "signatures"]  # than `edited`


def token_checksums(runs, home: str) -> dict[str, str]:
    folders = [f for name, f in runs.stages(home).items() if name.startswith(("tokens", "tokenizer", "mixture"))]
    assert len(folders) >= 3, runs.log(home)
    paths = [path for f in folders for path in sorted(f.glob("*")) if path.is_file() and path.name != COST]
    return {f"{path.parent.name}/{path.name}": files.checksum(str(path)) for path in paths}


def wait_for(process, home, pattern: str) -> None:
    """Until a file of the pattern is in the home; watches without a pause, since phases take milliseconds."""
    while process.poll() is None:
        if next(home.glob(pattern), None):
            return
        time.sleep(0.0005)
    raise AssertionError(f"the flow ended before there was {pattern}")


@pytest.mark.parametrize(
    ("stage", "before", "sign"),
    [
        pytest.param("documents", [], "done/extract-*.json", marks=pytest.mark.slow),
        pytest.param("edited", EARLIER, "done/measure-*.json", marks=pytest.mark.slow),
    ],
)
def test_kill_9_in_a_stage_and_again(undisturbed, runs, recipe, stage, before, sign):
    killed = f"killed_in_{stage}"
    home = runs.home(killed)
    process = runs.start(killed, ("tokens", recipe))
    wait_for(process, home, f"stages/{stage}-*/{sign}")
    children = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert children, "a flow has a Prefect server and Dask workers"
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive, "a kill -9 of the flow must leave no process after"
    until = time.monotonic() + 60
    while left := list(Path(tempfile.gettempdir()).glob(f"gristmill-*-{process.pid}-*")):
        assert time.monotonic() < until, left
        time.sleep(0.1)
    finished = [name.rsplit("-", 1)[0] for name in runs.stages(killed)]
    assert sorted(finished) == before, f"it was not killed in the stage {stage}"
    runs.run(killed, ("tokens", recipe))
    assert token_checksums(runs, killed) == token_checksums(undisturbed, "undisturbed")


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "3"])
def test_another_number_of_workers_gives_the_same_bytes(undisturbed, runs, recipe, workers):
    home = f"workers_{workers}"
    runs.run(home, ("tokens", recipe), workers=workers)
    assert token_checksums(runs, home) == token_checksums(undisturbed, "undisturbed")


@pytest.mark.slow
def test_two_recipes_at_once_make_what_they_share_once(undisturbed, runs, recipe):
    """The second one trains for fewer steps: its model and its mixture are its own, all before them is the same."""
    other = recipe | {"name": "other", "training": recipe["training"] | {"steps": 6}}
    processes = [runs.start("shared", ("pipeline", recipe)), runs.start("shared", ("pipeline", other))]
    assert [process.wait() for process in processes] == [0, 0], runs.log("shared")
    stages, log = runs.stages("shared"), runs.log("shared")
    assert len(stages) == len(undisturbed.stages("undisturbed")) + 2
    made = [line.partition(": made ")[0].rpartition(" ")[2] for line in log.splitlines() if ": made in " in line]
    assert sorted(made) == sorted(name.rsplit("-", 1)[0] for name in stages)
    assert token_checksums(undisturbed, "undisturbed").items() <= token_checksums(runs, "shared").items()
    assert "waiting for the run that makes" in log
    assert not list(runs.home("shared").glob("stages/*/lease"))
