"""One small run in fp32, bf16 and fp16, with and without scaling of the loss, compared in MLflow."""

import math
import shutil

import pytest

from gristmill.storage import checked_json
from gristmill.training.config import TrackingConfig
from gristmill.training.run import loop

RUNS = {"fp32": "fp32", "bf16": "bf16", "fp16": "fp16", "fp16 without scaling": "fp16"}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_precisions_compared_in_mlflow(make_run, corpus, tmp_path, monkeypatch):
    """Means over 16,384 targets make gradients so small that fp16 loses them, unless the loss is scaled."""
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    experiment = client.create_experiment("precision", artifact_location=str(tmp_path / "artifacts"))
    shutil.copytree(corpus.parent, tmp_path / "data")
    mixture = checked_json.read(str(corpus))
    for source in mixture["sources"]:
        source["epochs"] = 1000
    checked_json.write(str(tmp_path / "data" / corpus.name), mixture)
    changes = {
        "steps": 40,
        "batch": 128,
        "micro_batch": 128,
        "eval_every": 40,
        "checkpoint_every": 40,
        "sample_tokens": 0,
    }
    for name, precision in RUNS.items():
        run_id = client.create_run(experiment, run_name=name).info.run_id
        run = make_run(
            tmp_path / name,
            model={"seq_len": 128},
            training={**changes, "precision": precision, "loss_scaling": not name.endswith("without scaling")},
            tracking=TrackingConfig(run_id=run_id),
            data=tmp_path / "data" / corpus.name,
        )
        loop.train(run)
        client.set_terminated(run_id)
    found = {run.info.run_name: run.data.metrics for run in client.search_runs([experiment])}
    for name in RUNS:
        metrics = found[name]
        print(
            f"{name:21} held-out {metrics['heldout/loss']:.4f}  train {metrics['train/loss']:.4f}  "
            f"gradient {metrics['train/grad_norm']:.4f}  scale {metrics.get('train/loss_scale', 1):.0f}  "
            f"skipped {metrics.get('train/skipped_steps', 0):.0f}"
        )
    assert found.keys() == RUNS.keys() and all(math.isfinite(run["heldout/loss"]) for run in found.values())
    exact = found["fp32"]["heldout/loss"]
    # 40 steps end where the loss still falls fast: what rounding does to it is not small
    assert found["bf16"]["heldout/loss"] == pytest.approx(exact, abs=0.15)
    assert found["fp16"]["heldout/loss"] == pytest.approx(exact, abs=0.15)
    assert found["fp16 without scaling"]["heldout/loss"] > exact + 0.25
