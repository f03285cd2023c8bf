"""A decision in a real MLflow database: one parent, one child for each run, whatever ended the tries before."""

import os
import signal
import subprocess
import sys
from contextlib import nullcontext

import mlflow
import pytest

from gristmill.flows.experiments.decisions import tracking
from gristmill.flows.experiments.decisions.tracking import Datasets
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.run.tracking import PARENT_TAG, ParentRun, tag_name
from gristmill.tasks.engine.make import StageResult
from tests.flows.decisions import CONDITIONS, report

RECIPE = load({"name": "base", "sources": [{"name": "web", "jsonl": ["a"]}], "steps": [{"step": "extract"}]})
NAMES = ("base", "minhash.threshold=0.9")


def stage(name: str, key: str) -> StageResult:
    return StageResult(
        name, key, f"/home/stages/{name}-{key}", {"counts": {"steps": []}, "result": {}, "contents": key}, reused=True
    )


@pytest.fixture(scope="module")
def settings(tmp_path_factory) -> MachineSettings:
    return MachineSettings(home=str(tmp_path_factory.mktemp("home")))


@pytest.fixture(scope="module")
def decided():
    return report({"minhash.threshold=0.9": 0.1}, scored=lambda run: {"quiz": 0.25 + 0.5 * (run.arm == "base")})


DATASETS = Datasets(stage("evaluation_documents", "e0"), {name: stage("mixture", f"m-{name}") for name in NAMES})


def tracked(settings, decided, identity: str = "") -> ParentRun:
    params = {"tokens": 200, "proxy": {"name": "small"}}
    return tracking.decision_run(settings, "base", identity or decided.id, params, DATASETS, nullcontext)


def log_runs(run: ParentRun, trained, losses) -> None:
    tracking.log_runs(run, trained, losses, DATASETS)


def runs_of(settings, identity: str) -> tuple[list, list]:
    """Parents and children."""
    client = mlflow.MlflowClient(settings.tracking_uri)
    experiment = client.get_experiment_by_name("base")
    found = client.search_runs([experiment.experiment_id], f"tags.decision = '{identity}'", max_results=1000)
    children = [run for run in found if PARENT_TAG in run.data.tags]
    return [run for run in found if run not in children], children


def finish(settings, decided) -> None:
    with tracked(settings, decided) as run:
        log_runs(run, decided.runs, {decided.runs[-1].key: [(1, 8.0), (2, 7.5)]})
        tracking.finish(run, decided, dict.fromkeys(NAMES, RECIPE))


@pytest.mark.slow
def test_an_end_by_an_error_a_kill_and_a_signal_then_one_parent_and_one_child_a_run(settings, decided):
    with pytest.raises(ValueError, match="diverged"), tracked(settings, decided) as run:
        log_runs(run, decided.runs[:2], {})
        raise ValueError("diverged")
    assert [run.info.status for run in runs_of(settings, decided.id)[0]] == ["FAILED"]

    # killed with one more child, which it had just begun
    program = (
        "import os, signal\nfrom gristmill.flows.machine.settings import MachineSettings\n"
        "from tests.flows.decisions.test_decision_tracking import log_runs, report, tracked\n"
        "decided = report({'minhash.threshold=0.9': 0.1})\n"
        f"run = tracked(MachineSettings(home={settings.home!r}), decided)\n"
        "run.__enter__()\n"
        "run.client.set_terminated = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "log_runs(run, decided.runs[:3], {})\n"
    )
    killed = subprocess.run([sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": os.getcwd()})
    assert killed.returncode == -signal.SIGKILL
    parents, children = runs_of(settings, decided.id)
    assert [run.info.status for run in parents] == ["RUNNING"] and len(children) == 3

    with pytest.raises(KeyboardInterrupt), tracked(settings, decided) as run:
        _, children = runs_of(settings, decided.id)
        assert sorted(run.info.status for run in children) == ["FINISHED", "FINISHED", "KILLED"]
        raise KeyboardInterrupt
    assert [run.info.status for run in runs_of(settings, decided.id)[0]] == ["KILLED"]

    for _ in range(2):
        finish(settings, decided)
        [parent], children = runs_of(settings, decided.id)
        assert {run.info.status for run in (parent, *children)} == {"FINISHED"}
        assert len(children) == len(decided.runs)
        assert {run.data.tags[PARENT_TAG] for run in children} == {parent.info.run_id}


@pytest.mark.extended
def test_the_runs_show_arms_pairs_rates_and_verdicts(settings, decided):
    finish(settings, decided)
    [parent], children = runs_of(settings, decided.id)
    keyed = {run.data.tags["gristmill.proxy"]: run for run in children}
    for given in decided.runs:
        shown = keyed[given.key]
        assert shown.data.tags["arm"] == given.request.arm and shown.data.tags["pair"] == str(given.request.pair)
        assert float(shown.data.tags["learning_rate"]) == float(shown.data.params["learning_rate"])
        assert shown.data.metrics["bits_per_byte"] == given.bits_per_byte
        assert shown.data.metrics["accuracy/quiz"] == given.tasks["quiz"]
        assert {name: shown.data.metrics[f"bits_per_byte/{name}"] for name in given.by_set} == given.by_set
        digests = {one.dataset.name: one.dataset.digest for one in shown.inputs.dataset_inputs}
        assert digests == {"mixture": f"m-{given.request.arm}", "evaluation_documents": "e0"}
    client = mlflow.MlflowClient(settings.tracking_uri)
    history = client.get_metric_history(keyed[decided.runs[-1].key].info.run_id, "train/loss")
    assert [(point.step, point.value) for point in history] == [(1, 8.0), (2, 7.5)]

    [sentence], [verdict] = decided.sentences, decided.verdicts
    name = tag_name("minhash.threshold=0.9")
    shown = f"{verdict.effect:+.4f} ({verdict.low:+.4f} to {verdict.high:+.4f})"
    assert parent.info.run_name == f"base: minhash.threshold=0.9 is better, {shown}, {CONDITIONS}"
    assert parent.data.tags[f"verdict.{name}"] == sentence and sentence in parent.data.tags["mlflow.note.content"]
    assert parent.data.metrics[f"effect/{name}"] == verdict.effect
    assert parent.data.metrics[f"accuracy_difference/quiz/{name}"] == -0.5
    assert parent.data.params["proxy.name"] == "small"
    paths = {artifact.path for artifact in client.list_artifacts(parent.info.run_id)}
    assert paths == {"decision.json", "decision.html", "verdicts.json", "recipes"}
    table = mlflow.artifacts.load_dict(f"{parent.info.artifact_uri}/verdicts.json")
    assert table["data"][0][table["columns"].index("verdict")] == sentence


@pytest.mark.extended
def test_another_decision_has_runs_of_its_own(settings, decided):
    with tracked(settings, decided, "f" * 16) as run:
        log_runs(run, decided.runs[:1], {})
    parents, children = runs_of(settings, "f" * 16)
    assert (len(parents), len(children)) == (1, 1)
    assert len(runs_of(settings, decided.id)[1]) == len(decided.runs)
