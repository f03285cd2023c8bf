"""What the commands `train classifier` and `train head` leave in MLflow."""

import json
import random

import mlflow
import pytest
from typer.testing import CliRunner

from gristmill.flows.cli import app
from gristmill.flows.machine.settings import MachineSettings
from gristmill.storage import files
from tests import embedders

WORDS = {"good": embedders.WORDS[:6], "bad/poor": embedders.WORDS[6:12]}


def command(*words: str) -> str:
    done = CliRunner().invoke(app, ["train", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.slow
def test_trainings_of_commands_are_in_mlflow_with_their_curves(tmp_path, monkeypatch):
    monkeypatch.setenv("GRISTMILL_HOME", str(tmp_path / "home"))
    draw = random.Random(4)
    rows = [
        {"text": " ".join(draw.choices(WORDS[kind], k=5)), "kind": kind, "grade": i % 4}
        for i, kind in enumerate(draw.choices(list(WORDS), k=120))
    ]
    labels = tmp_path / "labels.jsonl"
    labels.write_text("".join(json.dumps(row) + "\n" for row in rows))
    small = ["--set", "dimensions=8", "--set", "buckets=1000", "--set", "epochs=20"]
    kinds = ["--jsonl", str(labels), "--label-column", "kind"]
    out = {name: str(tmp_path / f"{name}.bin") for name in ("two", "topics", "head")}
    command("classifier", out["two"], *kinds, "--good", "good", *small)
    command("classifier", out["topics"], *kinds, "--topics", *small)
    client = mlflow.MlflowClient(MachineSettings().tracking_uri)

    def run_of(experiment: str, name: str):
        found = client.search_runs([client.get_experiment_by_name(experiment).experiment_id])
        [run] = [run for run in found if run.info.run_name == f"{name}.bin"]
        assert run.info.status == "FINISHED" and run.data.tags["gristmill.file"] == files.checksum(out[name])
        return run

    def artifact(run, name: str) -> bytes:
        path = mlflow.artifacts.download_artifacts(
            run_id=run.info.run_id, artifact_path=name, tracking_uri=MachineSettings().tracking_uri
        )
        return files.read_bytes(path)

    run = run_of("classifiers", "two")
    described = json.loads((tmp_path / "two.bin.json").read_bytes())
    assert run.data.metrics["roc_auc"] == described["roc_auc"] > 0.9
    assert run.data.params["epochs"] == "20" and run.data.params["labels"] == str([str(labels)])
    assert artifact(run, "classifier.svg") == (tmp_path / "two.bin.svg").read_bytes()
    assert json.loads(artifact(run, "classifier.json")).items() <= described.items()
    run = run_of("classifiers", "topics")
    by_label = json.loads(artifact(run, "classifier.json"))["by_label"]
    f1 = {name: value for name, value in run.data.metrics.items() if name.startswith("f1/")}
    assert sorted(f1.values()) == sorted(each["f1"] for each in by_label.values()) and "f1/good" in f1

    pytest.importorskip("onnxruntime", reason="onnxruntime is in the extra `embedding`")
    model = embedders.write(tmp_path / "model")
    said = command("head", out["head"], "--model", model, *kinds, "--good", "good")
    run = run_of("heads", "head")
    assert f"MLflow run: {run.info.run_id}" in said
    assert run.data.metrics["roc_auc"] > 0.9 and run.data.params["kind"] == "logistic"
    drawn = artifact(run, "head.svg")
    assert b"precision by recall; share of good documents by score" in drawn
    assert drawn == (tmp_path / "head.bin.svg").read_bytes()
