"""MLflow: one run for each trained model, with the recipe as params and the stages behind it as datasets."""

import math
import os
from pathlib import Path
from types import TracebackType
from typing import Any

import mlflow
import orjson
from mlflow.entities import Dataset, DatasetInput, Experiment, InputTag, Metric, Param, ViewType

from flows.databases import ensure_mlflow, private_folder
from flows.machine import MachineSettings
from flows.mlflow_moved import move_artifacts
from flows.recipe import Recipe
from flows.reports.run import Report
from flows.stages.data import Data
from storage.owner import has_ended, this_process
from storage.remote.url_secrets import without_user
from tasks.engine.make import StageResult
from training.tracking import METRICS, TIMING

KEY_TAG = "gristmill.key"
_ARTIFACTS_TAG = "gristmill.artifacts"
PROCESS_TAG = "gristmill.process"
_BATCH = 1000


class ModelRun:
    """The MLflow run of a model, named by recipe and short key in the experiment of the recipe.

    Used as a block around a training, it makes the run, or finds the one of an earlier try, and sets its end
    status, so that none stays RUNNING.
    """

    def __init__(self, settings: MachineSettings, recipe: Recipe, data: Data, key: str, folder: str) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
        uri = settings.tracking_uri
        self.embedded = uri.startswith("sqlite:///")
        if self.embedded:
            ensure_mlflow(Path(uri.removeprefix("sqlite:///")))
        if uri.startswith("http"):
            # MLflow's errors show its address, and Prefect keeps errors
            uri, user, password = without_user(uri)
            if user:
                os.environ |= {"MLFLOW_TRACKING_USERNAME": user, "MLFLOW_TRACKING_PASSWORD": password}
        self.client = mlflow.MlflowClient(uri)
        self.settings, self.recipe, self.data, self.key, self.folder = settings, recipe, data, key, folder

    def find(self) -> str:
        """Id of the run that has this model, complete with its params; or an empty string."""
        experiment = self._known_experiment()
        if experiment is None:
            return ""
        tagged = f"tags.`{KEY_TAG}` = '{self.key}'"
        found = self.client.search_runs([experiment.experiment_id], tagged, ViewType.ACTIVE_ONLY, max_results=1)
        return found[0].info.run_id if found else ""

    def __enter__(self) -> str:
        self._end_stale_runs()
        self.id = self.find()
        if self.id:
            self.client.set_tag(self.id, PROCESS_TAG, this_process())
            self.client.update_run(self.id, status="RUNNING")
        else:
            self.id = self._create()
        return self.id

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.set_terminated(self.id, _end_status(kind))

    def finish(self, model: StageResult) -> str:
        """The id of the finished model's run, which then has all that is to be seen of the model.

        What is missing is logged: a run with the points of the model's own files where this server has none, artifacts
        where they were not logged to their end.
        """
        if (found := self.find()) and _ARTIFACTS_TAG in self.client.get_run(found).data.tags:
            return found
        with self as run:
            if not found:
                self._log_points(run, model)
            # here, since these modules are of a model that is made, and take seconds
            from flows.mlflow_artifacts import description, log_artifacts
            from flows.stages.model import Trained

            trained = Trained(model, model.result["result"], run)
            report = Report(self.recipe, self.settings, self.data.corpus, self.data, trained)
            log_artifacts(self.client, run, report)
            # behind those of the training: MLflow shows metrics in the order in which it first got them
            metrics = [Metric(name, value, 0, 0) for name, value in _funnel(self.data).items()]
            self.client.log_batch(run, metrics=metrics)
            self.client.set_tag(run, "mlflow.note.content", description(report))
            # last: a run that has it is complete
            self.client.set_tag(run, _ARTIFACTS_TAG, "complete")
        return run

    def _log_points(self, run: str, model: StageResult) -> None:
        for name in (METRICS, TIMING):
            lines = model.file(name).read().splitlines()
            points = [
                Metric(metric, value, 0, line["step"])
                for line in map(orjson.loads, lines)
                for metric, value in line.items()
                if metric != "step"
            ]
            for start in range(0, len(points), _BATCH):
                self.client.log_batch(run, metrics=points[start : start + _BATCH])

    def _create(self) -> str:
        name, tags = f"{self.recipe.name}-{self.key[:8]}", {PROCESS_TAG: this_process()}
        run = self.client.create_run(self._experiment(), tags=tags, run_name=name).info.run_id
        try:
            params = _flat(self.recipe.model_dump(mode="json"))
            self.client.log_batch(run, params=[Param(name, str(value)[:6000]) for name, value in params.items()])
            self.client.log_inputs(run, [_input(stage, stage is self.data.mixture) for stage in self.data.stages])
            # as seen from the home, which may be moved
            self.client.set_tag(run, "gristmill.model", f"stages/model-{self.key}")
            # last: a run that is found by its key is complete
            self.client.set_tag(run, KEY_TAG, self.key)
        except BaseException as error:
            self.client.set_terminated(run, _end_status(type(error)))
            raise
        return run

    def _end_stale_runs(self) -> None:
        """Record as KILLED the runs of this recipe whose process has ended without a word."""
        experiment = self.client.get_experiment_by_name(self.recipe.name)
        if experiment is None:
            return
        for run in self.client.search_runs([experiment.experiment_id], "attributes.status = 'RUNNING'"):
            if (process := run.data.tags.get(PROCESS_TAG)) and has_ended(process):
                self.client.set_terminated(run.info.run_id, "KILLED")

    def _experiment(self) -> str:
        experiment = self._known_experiment()
        if experiment is not None:
            return experiment.experiment_id
        # a server knows where its artifacts go; without one they stay in the home
        place = str(private_folder(self._artifacts)) if self.embedded else None
        return self.client.create_experiment(self.recipe.name, artifact_location=place)

    def _known_experiment(self) -> Experiment | None:
        experiment = self.client.get_experiment_by_name(self.recipe.name)
        if self.embedded and experiment is not None and experiment.artifact_location != self._artifacts:
            database = Path(self.settings.tracking_uri.removeprefix("sqlite:///"))
            move_artifacts(database, experiment.artifact_location, self._artifacts)
        return experiment

    @property
    def _artifacts(self) -> str:
        return f"{self.settings.local_folder}/mlflow-artifacts"


def _end_status(error: type[BaseException] | None) -> str:
    """MLflow's status of a run that ended so; what is no Exception came from a signal."""
    if error is None:
        return "FINISHED"
    return "FAILED" if issubclass(error, Exception) else "KILLED"


def _input(stage: StageResult, trained_on: bool) -> DatasetInput:
    steps = stage.step_counts
    return DatasetInput(
        Dataset(
            name=stage.name,
            digest=stage.key,
            source_type="gristmill",
            source=orjson.dumps({"uri": f"stages/{stage.name}-{stage.key}"}).decode(),
            profile=orjson.dumps({"documents": steps[-1]["rows_out"]} if steps else {}).decode(),
        ),
        [InputTag("mlflow.data.context", "training" if trained_on else "lineage")],
    )


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    """Nested settings as `mixture.weights.web`; steps under their own names; short lists of values as they are."""
    if isinstance(value, dict):
        return {k: v for key, inner in value.items() for k, v in _flat(inner, f"{name}.{key}".strip(".")).items()}
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        named = {item.get("step") or item.get("name") or str(i): item for i, item in enumerate(value)}
        return _flat(named, name)
    return {name: value}


def _funnel(data: Data) -> dict[str, float]:
    """Documents out of every step and tokens of every source, as metrics by which corpora can be compared.

    Tables of runs are ordered by the alphabet: held-out metrics come before these.
    """
    metrics: dict[str, float] = {}
    for stage in data.corpus.stages:
        for step in stage.step_counts:
            metrics[f"steps/{step['step']}/documents"] = float(step["rows_out"])
    for name, source in data.mixture.result["sources"].items():
        metrics[f"sources/{name}/tokens"] = float(source["tokens"])
        metrics[f"sources/{name}/epochs"] = float(source["epochs"])
    return {name: value for name, value in metrics.items() if math.isfinite(value)}
