"""The training stage: torchrun under the flow's eyes, one MLflow run that says from what data it came."""

import math
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunStatus, ViewType

from flows.recipe import Recipe
from flows.runner import Built, Made, Phases, build, stage, yields
from flows.settings import MachineSettings
from flows.stages import Data
from flows.workshop import Workshop
from storage import files
from training import launch
from training.config import RunConfig, TrackingConfig

KEY_TAG = "gristmill.key"
RESULT = "result.json"


@dataclass(frozen=True)
class Trained:
    """The trained model's stage, what `result.json` says of it, and its MLflow run."""

    model: Built
    result: dict[str, Any]
    mlflow_run: str


def train(workshop: Workshop, recipe: Recipe, data: Data) -> Trained:
    """Train on the mixture, in processes of their own, resuming from the newest checkpoint if there is one.

    The number of processes is a setting of the machine: it changes rounding, not the samples.
    """
    settings = {
        "model": recipe.model.model_dump(mode="json"),
        "training": recipe.training.model_dump(mode="json"),
    }
    inputs = {"mixture": data.mixture.key, "tokens": data.tokens.key, "tokenizer": data.tokenizer.key}
    made = stage("model", launch.main, settings, inputs)
    folder = made.folder(workshop.settings.home)

    def body(phases: Phases) -> dict:
        out = _local_folder(workshop, folder)
        with _tracked(workshop, recipe, data, made.key, folder) as tracking:
            run = RunConfig(
                model=recipe.model,
                training=recipe.training,
                data=_mixture(workshop, data),
                out=out,
                tracking=tracking,
            )
            files.write_bytes(f"{out}/run.json", run.model_dump_json(indent=2).encode())
            processes = workshop.settings.training_processes or launch.default_processes()
            code = launch.launch(Path(out) / "run.json", processes, Path(out) / "training.log", on_line=phases.say)
            if code:
                raise RuntimeError(_what_happened(code, out))
        if out != folder:
            files.upload(out, folder)
        return {"result": files.read_json(files.join(folder, RESULT))}

    built = build(workshop, Made(made, body))
    return Trained(built, built.manifest["result"], find_run(workshop.settings.tracking_uri, recipe.name, built.key))


def _what_happened(code: int, out: str) -> str:
    last = Path(out, "training.log").read_text(errors="replace").splitlines()[-15:]
    if code == launch.STOPPED:
        return f"training was stopped and has saved a checkpoint in {out}: run the same command to go on"
    return f"training ended with code {code}; the end of {out}/training.log:\n" + "\n".join(last)


def _local_folder(workshop: Workshop, folder: str) -> str:
    """Checkpoints and logs are appended to while they grow, which needs a real file system."""
    return folder if files.is_local(folder) else f"{workshop.settings.local_folder}/{folder.split('://')[-1]}"


def _mixture(workshop: Workshop, data: Data) -> Path:
    """The mixture's file on a local path, with all it names beside it."""
    folder = data.mixture.folder
    if files.is_local(folder):
        return Path(folder) / "mixture.json"
    root = f"{workshop.settings.local_folder}/cache/stages"
    mixture = files.read_json(files.join(folder, "mixture.json"))
    shards = [shard["path"] for part in mixture["sources"] + mixture["heldout"] for shard in part["shards"]]
    for name in [mixture["tokenizer"], *shards]:
        inner = name.removeprefix("../")
        files.copy(files.join(folder.rsplit("/", 1)[0], inner), f"{root}/{inner}")
    target = f"{root}/{folder.rsplit('/', 1)[-1]}/mixture.json"
    files.copy(files.join(folder, "mixture.json"), target)
    return Path(target)


class _tracked:
    """An MLflow run for the length of a training: made, or found again after a crash, and always ended.

    The run's dataset inputs are the stages behind it, with their keys as digests.
    """

    def __init__(self, workshop: Workshop, recipe: Recipe, data: Data, key: str, folder: str):
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        self.uri = workshop.settings.tracking_uri
        if self.uri.startswith("sqlite:///"):
            Path(self.uri.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
        self.client = mlflow.MlflowClient(self.uri)
        self.recipe, self.data, self.key, self.folder = recipe, data, key, folder

    def __enter__(self) -> TrackingConfig:
        self.run = find_run(self.uri, self.recipe.name, self.key)
        if self.run:
            self.client.update_run(self.run, status="RUNNING")
        else:
            self.run = self._create()
        return TrackingConfig(uri=self.uri, run_id=self.run)

    def __exit__(self, kind, error, trace) -> None:
        status = RunStatus.FINISHED if kind is None else RunStatus.FAILED
        self.client.set_terminated(self.run, RunStatus.to_string(status))

    def _create(self) -> str:
        experiment = self.client.get_experiment_by_name(self.recipe.name)
        place = {} if experiment else {"artifact_location": f"{self.folder.rsplit('/stages/', 1)[0]}/mlflow-artifacts"}
        number = experiment.experiment_id if experiment else self.client.create_experiment(self.recipe.name, **place)
        tags = {KEY_TAG: self.key, "gristmill.checkpoints": files.join(self.folder, "checkpoints")}
        run = self.client.create_run(number, run_name=f"{self.recipe.name}-{self.key}", tags=tags).info.run_id
        params = _flat(self.recipe.model_dump(mode="json"))
        self.client.log_batch(run, params=[Param(name, str(value)[:6000]) for name, value in params.items()])
        metrics = [Metric(name, value, 0, 0) for name, value in _funnel(self.data).items()]
        self.client.log_batch(run, metrics=metrics)
        stages = [*self.data.stages]
        self.client.log_inputs(
            run,
            [
                DatasetInput(
                    Dataset(
                        built.name,
                        built.key,
                        "local",
                        f'{{"uri": "{built.folder}"}}',
                        profile=_profile(built),
                    ),
                    [InputTag("mlflow.data.context", "training" if built is self.data.mixture else "lineage")],
                )
                for built in stages
            ],
        )
        return run


def find_run(uri: str, experiment_name: str, key: str) -> str:
    """The MLflow run that trained the model with this key, or an empty string."""
    client = mlflow.MlflowClient(uri)
    experiment = client.get_experiment_by_name(experiment_name)
    if experiment is None:
        return ""
    found = client.search_runs(
        [experiment.experiment_id],
        f"tags.`{KEY_TAG}` = '{key}'",
        run_view_type=ViewType.ACTIVE_ONLY,
        max_results=1,
    )
    return found[0].info.run_id if found else ""


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    """Nested settings as `mixture.weights.web`; steps under their own names; short lists of values as they are."""
    if isinstance(value, dict):
        return {k: v for key, inner in value.items() for k, v in _flat(inner, f"{name}.{key}".strip(".")).items()}
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        named = {item.get("step") or item.get("name") or str(i): item for i, item in enumerate(value)}
        return _flat(named, name)
    return {name: value}


def _funnel(data: Data) -> dict[str, float]:
    """Documents out of every step and tokens of every source, as metrics by which corpora can be compared."""
    metrics: dict[str, float] = {}
    for built in data.corpus.stages:
        for step in yields(built):
            metrics[f"documents/{step['step']}"] = float(step["rows_out"])
    for name, source in data.mixture.manifest["sources"].items():
        metrics[f"tokens/{name}"] = float(source["tokens"])
        metrics[f"epochs/{name}"] = float(source["epochs"])
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


def _profile(built: Built) -> str:
    steps = yields(built)
    return f'{{"documents": {steps[-1]["rows_out"]}}}' if steps else "{}"


def commands(settings: MachineSettings) -> list[str]:
    """What opens the two user interfaces on what this home holds."""
    programs = Path(sys.executable).parent
    prefect_home = os.environ.get("PREFECT_HOME", settings.prefect_home)
    return [
        f"PREFECT_HOME={prefect_home} {programs}/prefect server start",
        f"{programs}/mlflow ui --backend-store-uri {settings.tracking_uri}",
    ]
