"""A decision that is killed or cancelled amid its runs, or made twice at once: no run is trained twice, and the verdict
is the same."""

import contextlib
import copy
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import mlflow
import psutil
import pytest
import yaml

from gristmill.storage import checked_json
from tests import dask_workers, slurm_server

pytestmark = pytest.mark.slow

PROXY = {
    "name": "tiny",
    "vocab_size": 400,
    "sample_bytes": 60_000,
    "model": {"dim": 32, "layers": 1, "heads": 2, "seq_len": 64},
    "tokens": 4_000,
    "training": {"batch": 4, "micro_batch": 4, "warmup_steps": 2},
    "learning_rates": [0.003, 0.01],
    "looks": [4],
    "evaluation_documents": 8,
}
SCRIPT = """
import sys
import gristmill
report = gristmill.ablate(sys.argv[1], raw=True, proxy=sys.argv[2], bank_pairs=2, judge=["extracted"])
print(*report.sentences, sep="\\n")
"""


@pytest.fixture(scope="module")
def given(runs, crawl) -> tuple[str, str]:
    """Paths of a recipe and a proxy."""
    recipe = {
        "name": "killed",
        "sources": [{"name": "web", "warc": [f"{crawl.folder}/web-*.warc.gz"]}],
        "steps": [{"step": "extract"}, {"step": "gopher_quality", "min_alpha_words": 0.5}, {"step": "minhash"}],
    }
    proxy = runs.folder / "proxy.yaml"
    proxy.write_text(yaml.safe_dump(PROXY))
    return str(runs.write(recipe)), str(proxy)


def start(runs, home: str, given: tuple[str, str], more: Mapping[str, str] | None = None, **settings: str):
    """`settings`: of the machine; `more`: variables of the process."""
    log = open(runs.folder / f"{home}.log", "a")
    command = [sys.executable, "-c", SCRIPT, *given]
    environment = runs.environment(home, **{"executor": "threads"} | settings) | dict(more or {})
    return subprocess.Popen(command, env=environment, cwd=runs.folder, stdout=log, stderr=log)


def decision(home: Path) -> dict:
    """What the home has written of its decision, without what the machine's load changes."""
    [path] = home.glob("decisions/*.json")
    found = copy.deepcopy(checked_json.read(str(path)))
    for arm in found["arms"].values():
        del arm["cpu_seconds"]
    return found


def trained(home: Path) -> dict[str, int]:
    """Finished runs, and when they ended."""
    return {path.parent.name: path.stat().st_mtime_ns for path in home.glob("stages/proxy-*/manifest.json")}


def written(home: Path) -> dict[str, bytes]:
    """What the manifests of the runs answer for."""
    names = ("document_losses.parquet", "metrics.jsonl", "model.safetensors", "manifest.json")
    paths = [path for name in names for path in home.glob(f"stages/proxy-*/{name}")]
    return {f"{path.parent.name}/{path.name}": path.read_bytes() for path in paths}


def begun(home: Path) -> dict[str, int]:
    """How often each run has begun to train."""
    return {
        path.parent.name: sum(line.startswith("step  1/") for line in path.read_text().splitlines())
        for path in home.glob("stages/proxy-*/training.log")
    }


@pytest.fixture(scope="module")
def whole(runs, given) -> dict:
    process = start(runs, "decision", given)
    assert process.wait() == 0, runs.log("decision")
    return decision(runs.home("decision"))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["killed", "cancelled"])
def test_ended_in_the_middle_and_again(runs, given, whole, number):
    name = f"decision_{number.name}"
    home = runs.home(name)
    process = start(runs, name, given)
    while len(trained(home)) < 5:
        assert process.poll() is None, runs.log(name)
        time.sleep(0.01)
    children = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, number)
    process.wait()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive, "no process stays after"
    before = trained(home)
    assert not list(home.glob("decisions/*.json")) and 5 <= len(before) < len(trained(runs.home("decision")))

    process = start(runs, name, given)
    assert process.wait() == 0, runs.log(name)
    after = trained(home)
    assert {label: after[label] for label in before} == before, "what was finished is not touched"
    assert set(after) == set(trained(runs.home("decision"))), "and no other run is made"
    assert decision(home) == whole

    assert start(runs, name, given).wait() == 0
    assert trained(home) == after and decision(home) == whole
    client = mlflow.MlflowClient(f"sqlite:///{home}/mlflow.db")
    found = client.search_runs([client.get_experiment_by_name("killed").experiment_id], max_results=1000)
    parents = [run for run in found if "mlflow.parentRunId" not in run.data.tags]
    assert [run.info.status for run in parents] == ["FINISHED"]
    assert {run.info.status for run in found} == {"FINISHED"} and len(found) == 1 + len(after)
    assert [verdict["sentence"] for verdict in whole["verdicts"]] == runs.log(name).splitlines()[-1:]


def test_two_at_once_make_one_decision(runs, given, whole):
    home = runs.home("twice")
    both = [start(runs, "twice", given) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0], runs.log("twice")
    assert decision(home) == whole
    assert runs.log("twice").splitlines().count(whole["verdicts"][0]["sentence"]) == 2
    assert set(begun(home).values()) == {1}, "no run is trained by both"
    assert written(home) == written(runs.home("decision"))
    client = mlflow.MlflowClient(f"sqlite:///{home}/mlflow.db")
    found = client.search_runs([client.get_experiment_by_name("killed").experiment_id], max_results=1000)
    assert len(found) == 1 + len(trained(home)) and {run.info.status for run in found} == {"FINISHED"}


def test_workers_make_the_same_decision_though_two_of_three_die(runs, given, whole, tmp_path):
    """Each is killed when it trains a run. The third takes over both."""
    home = runs.home("workers")
    with dask_workers.cluster(tmp_path / "cluster", 3) as cluster:
        process = start(runs, "workers", given, executor="dask", dask_address=cluster.address)
        for victim in ("w0", "w1"):
            while not trains(cluster, victim):
                assert process.poll() is None, runs.log("workers")
                time.sleep(0.02)
            cluster.workers[victim].kill()
        assert process.wait() == 0, runs.log("workers")
    assert decision(home) == whole
    assert written(home) == written(runs.home("decision"))


def trains(cluster: dask_workers.Cluster, worker: str) -> bool:
    """Whether a worker has a process whose output is the log of a run."""
    return any(map(is_training, cluster.runs(worker)))


def is_training(process: psutil.Process) -> bool:
    try:
        return os.readlink(f"/proc/{process.pid}/fd/1").endswith("training.log")
    except OSError:  # it has just ended
        return False


# Each task of the array is a session of processes on this machine; the last two arguments are script and folder.
SBATCH = """#!/bin/sh
for argument; do
    case $argument in --array=0-*) last=${argument#--array=0-} ;; esac
    script=$folder folder=$argument
done
for task in $(seq 0 "$last"); do
    SLURM_ARRAY_JOB_ID=20 SLURM_ARRAY_TASK_ID=$task SLURM_CPUS_PER_TASK=1 \\
        setsid bash "$script" "$folder" > "$folder/workers/$task.log" 2>&1 &
done
echo 20
"""


def test_tasks_of_slurm_make_the_same_decision_though_one_of_them_dies(runs, given, whole, tmp_path):
    """With stand-ins for its commands. A task is killed with all of its processes when it trains a run."""
    for name, script in (("sbatch", SBATCH), ("squeue", "#!/bin/sh\n"), ("scancel", "#!/bin/sh\n")):
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    assert shutil.which("setsid"), "util-linux has it"
    more = {"PATH": f"{tmp_path}:{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}
    settings = {"workers": "3", "slurm_folder": str(tmp_path / "meeting"), "slurm_interface": "lo"}
    script = str(slurm_server.worker_script(tmp_path))
    process = start(runs, "slurm", given, more, executor="slurm", cluster=script, **settings)

    def of_task(task: int) -> list[psutil.Process]:
        found = []
        for each in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                environment = each.environ()
                if environment.get("PATH") == more["PATH"] and environment.get("SLURM_ARRAY_TASK_ID") == str(task):
                    found.append(each)
        return found

    while not any(map(is_training, of_task(1))):
        assert process.poll() is None, runs.log("slurm")
        time.sleep(0.1)
    for each in of_task(1):
        with contextlib.suppress(psutil.Error):
            each.kill()
    assert process.wait() == 0, runs.log("slurm")
    home = runs.home("slurm")
    assert decision(home) == whole
    assert written(home) == written(runs.home("decision"))
    while of_task(0) or of_task(2):  # no worker stays
        time.sleep(0.2)
