"""MLflow: one run for each trained model, with the recipe, what it was evaluated on, and its stages as datasets."""

import math
import tempfile
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import orjson
import wrapt
from mlflow.entities import Metric, Param, Run, ViewType

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe, dump
from gristmill.flows.reports.bill import bill
from gristmill.flows.reports.run import Report
from gristmill.flows.stages.evaluation.heldout import Data
from gristmill.flows.tracking.compared import (
    COMPARABLE,
    RECIPE,
    base_of,
    comparable,
    compared_runs,
    describe_experiment,
    evaluated_on,
    missing_params,
    params,
    provenance,
    recipe_of,
    run_name,
    tracked_names,
)
from gristmill.flows.tracking.experiment import BATCH, TrackedExperiment, dataset_input
from gristmill.tasks.engine.make import StageResult
from gristmill.training.run.tracking import METRICS, TIMING

if TYPE_CHECKING:
    from gristmill.flows.stages import model as model_stage
    from gristmill.flows.tracking import artifacts
else:
    model_stage = wrapt.lazy_import("gristmill.flows.stages.model")
    artifacts = wrapt.lazy_import("gristmill.flows.tracking.artifacts")

KEY_TAG = "gristmill.key"
_ARTIFACTS_TAG = "gristmill.artifacts"


class ModelRun:
    """The MLflow run of a model in the experiment of the recipe, named by what differs from the base.

    Used as a block around a training, it makes the run, or finds the one of an earlier try, and sets its end
    status, so that none stays RUNNING.
    """

    def __init__(self, settings: MachineSettings, recipe: Recipe, data: Data, key: str, folder: str) -> None:
        self.experiment = TrackedExperiment(settings, recipe.name)
        self.client = self.experiment.client
        self.settings, self.recipe, self.data, self.key, self.folder = settings, recipe, data, key, folder

    def find(self) -> str:
        """Id of the run that has this model, complete with its params; or an empty string."""
        experiment = self.experiment.find()
        if experiment is None:
            return ""
        tagged = f"tags.`{KEY_TAG}` = '{self.key}'"
        found = self.client.search_runs([experiment.experiment_id], tagged, ViewType.ACTIVE_ONLY, max_results=1)
        return found[0].info.run_id if found else ""

    def __enter__(self) -> str:
        self.experiment.end_stale_runs()
        self.id = self.find()
        if self.id:
            self.experiment.begin(self.id)
        else:
            self.id = self._create()
        return self.id

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.experiment.end(self.id, error)

    def finish(self, model: StageResult) -> str:
        """The id of the finished model's run, which then has all that is to be seen of the model.

        What is missing is logged: a run with the points of the model's own files where this server has none, artifacts
        where they were not logged to their end.
        """
        if (found := self.find()) and _ARTIFACTS_TAG in self.client.get_run(found).data.tags:
            return found
        with self as run:
            self._log_points(run, model)

            trained = model_stage.Trained(model, model.result["result"], run)
            report = Report(self.recipe, self.settings, self.data.corpus, self.data, trained)
            artifacts.log_artifacts(self.client, run, report)
            # behind those of the training: MLflow shows metrics in the order in which it first got them
            sums = _funnel(self.data) | bill(report).metrics()
            metrics = [Metric(name, value, 0, 0) for name, value in sums.items()]
            self.client.log_batch(run, metrics=metrics)
            experiment = self.experiment.id()
            others = [other for other in compared_runs(self.client, experiment) if other.info.run_id != run]
            note = "\n\n".join([*evaluated_on(self.data, others), artifacts.description(report)])
            self.client.set_tag(run, "mlflow.note.content", note)
            # last: a run that has it is complete
            self.client.set_tag(run, _ARTIFACTS_TAG, "complete")
            describe_experiment(self.client, experiment)
        return run

    def _log_points(self, run: str, model: StageResult) -> None:
        """Log the points of the model's own files that the run lacks, all of a new one."""
        newest = {
            metric: max(point.step for point in self.client.get_metric_history(run, metric))
            for metric in self.client.get_run(run).data.metrics
        }
        shown = tracked_names(self.data)
        for name in (METRICS, TIMING):
            lines = model.file(name).read().splitlines()
            points = [
                Metric(shown(metric), value, 0, line["step"])
                for line in map(orjson.loads, lines)
                for metric, value in line.items()
                if metric != "step" and line["step"] > newest.get(shown(metric), -1)
            ]
            for start in range(0, len(points), BATCH):
                self.client.log_batch(run, metrics=points[start : start + BATCH])

    def _create(self) -> str:
        experiment = self.experiment.id()
        oldest = self.client.search_runs(
            [experiment], f"tags.`{KEY_TAG}` LIKE '%'", ViewType.ACTIVE_ONLY, 1, ["attributes.start_time ASC"]
        )
        first, given = (oldest[0], self._recipe_of(oldest[0])) if oldest else (None, None)
        base = base_of(self.recipe, given)
        run = self.experiment.create(run_name(self.recipe, base), provenance())
        try:
            self.client.log_text(run, dump(self.recipe), RECIPE)
            own = params(self.recipe, base, {} if first is None else first.data.params)
            self._log_params(run, own)
            if first is not None and given is not None:
                self._log_params(first.info.run_id, missing_params(first, given, own))
            self.client.log_inputs(
                run,
                [
                    dataset_input(stage, "training" if stage is self.data.mixture else "lineage")
                    for stage in self.data.stages
                ],
            )
            # as seen from the home, which may be moved
            self.client.set_tag(run, "gristmill.model", f"stages/model-{self.key}")
            self.client.set_tag(run, COMPARABLE, comparable(self.data))
            # last: a run that is found by its key is complete
            self.client.set_tag(run, KEY_TAG, self.key)
        except BaseException as error:
            self.experiment.end(run, error)
            raise
        return run

    def _log_params(self, run: str, values: dict[str, str]) -> None:
        self.client.log_batch(run, params=[Param(name, value) for name, value in values.items()])

    def _recipe_of(self, run: Run) -> dict[str, Any] | None:
        with tempfile.TemporaryDirectory(dir=self.settings.local_folder, prefix=".mlflow-") as folder:
            return recipe_of(self.client, run, Path(folder))


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
        for packing in ("padding", "cut"):
            if packing in source:
                metrics[f"sources/{name}/{packing}"] = float(source[packing])
    return {name: value for name, value in metrics.items() if math.isfinite(value)}
