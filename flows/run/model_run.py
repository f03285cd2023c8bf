"""MLflow: one run for each trained model, with the recipe, what it was evaluated on, and its stages as datasets."""

import logging
import math
import shutil
import tempfile
from dataclasses import asdict
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import mlflow
import orjson
import wrapt
from mlflow.entities import LoggedModelOutput, Metric, Param, ViewType
from mlflow.entities import Run as TrackedRun
from mlflow.models import Model, ModelSignature
from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema

import gristmill
from gristmill.flows.curation import BuiltStage, lineage
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe, dump
from gristmill.flows.reports import funnel
from gristmill.flows.reports.run import Run
from gristmill.flows.reports.run.agreement import annotators_of_run
from gristmill.flows.reports.run.bill import bill
from gristmill.flows.reports.run_page import plots
from gristmill.flows.reports.run_page.plots import cross_fitted, curves_file, trained_classifier
from gristmill.flows.run.compared import (
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
from gristmill.flows.run.tracking import BATCH, TrackedExperiment, dataset_input
from gristmill.flows.stages.heldout import Data
from gristmill.flows.stages.tokens import tokenizer_of
from gristmill.storage import files
from gristmill.tasks.engine.make import StageResult
from gristmill.training.hub.weight_files import CONFIG, WEIGHTS
from gristmill.training.run.tracking import METRICS, TIMING

if TYPE_CHECKING:
    from gristmill.flows.stages import model as model_stage
else:
    model_stage = wrapt.lazy_import("gristmill.flows.stages.model")


# The packages that loading a model imports.
_LIBRARIES = ("mlflow", "numpy", "pydantic", "safetensors", "sentencepiece", "torch")
_EVALUATED = ("heldout", "survivors", "evaluation", "unigram")  # metrics that the model in MLflow has, too
_SIGNATURE = ModelSignature(
    inputs=Schema([ColSpec(DataType.string)]),
    outputs=Schema([ColSpec(DataType.string)]),
    params=ParamSchema(
        [
            ParamSpec("max_tokens", DataType.long, 100),
            ParamSpec("temperature", DataType.double, 0.8),
            ParamSpec("top_k", DataType.long, 50),
            ParamSpec("seed", DataType.long, 0),
        ]
    ),
)


def log_artifacts(client: mlflow.MlflowClient, run: str, report: Run) -> None:
    """Log the artifacts of a finished model to its run; `report` is one with training.

    `funnel.csv`, `funnel.json` (a table), `funnel.svg`, `losses.svg`, `sample.txt`, `bill.json`, and of a classifier
    that the corpus has trained the curves, `classifier.svg`, and its measures, `classifier.json`; of classifiers that
    steps name what `train classifier` wrote beside them, `<step>-classifier.json` and `.svg`; of the heads that scored
    documents how good they are, `heads.json`; the measures of a model learned from annotations, `distill.json`; the
    agreement of annotators, `agreement.json`. The model is one of the experiment's, made by the run. Held: on disk, the
    exported model twice while it is copied.
    """
    with tempfile.TemporaryDirectory(dir=report.settings.local_folder, prefix=".mlflow-") as folder:
        shown = Path(folder) / "shown"
        shown.mkdir()
        report.funnel.to_csv(shown / "funnel.csv", index=False)
        (shown / "funnel.svg").write_bytes(plots.funnel(report).encode())
        (shown / "losses.svg").write_bytes(plots.losses(report).encode())
        if (model := trained_classifier(report.corpus)) is not None:
            (shown / "classifier.svg").write_bytes(curves_file(*cross_fitted(model)))
            files.write_json(str(shown / "classifier.json"), model.result["model"])
        for stage in report.corpus.stages:
            if stage.name == "embedding":
                files.write_json(str(shown / "heads.json"), stage.result["heads"])
            if stage.name == "distill_model":
                files.write_json(str(shown / "distill.json"), stage.result["model"])
        if agreements := annotators_of_run(report.recipe, report.settings):
            files.write_json(str(shown / "agreement.json"), [asdict(one) for one in agreements])
        for step in report.recipe.steps:
            if (classifier := report.settings.placed(step).fasttext_classifier) is not None:
                copy_description(step.step, classifier, shown)
        files.write_json(str(shown / "bill.json"), asdict(bill(report)))
        if report.result["sample"]:
            (shown / "sample.txt").write_text(report.result["sample"], encoding="utf-8")
        client.log_artifacts(run, str(shown))
        _log_funnel_table(client, run, report)
        _log_model(client, run, report, Path(folder))


def copy_description(step: str, model: str, shown: Path) -> None:
    """Copy the measures and curves that `train classifier` wrote beside the model of a step, if they exist."""
    for kind in ("json", "svg"):
        if files.exists(f"{model}.{kind}"):
            files.copy(f"{model}.{kind}", str(shown / f"{step}-classifier.{kind}"))


def description(report: Run) -> str:
    """The results and the funnel as Markdown."""
    table = funnel.table(report.steps, report.characters_per_token, report.tokens)
    return f"{'; '.join(report.summary)}.\n\n{table.markdown()}"


def _log_funnel_table(client: mlflow.MlflowClient, run: str, report: Run) -> None:
    # log_table adds to a table that is there, as after a run that was killed here
    logged = {artifact.path for artifact in client.list_artifacts(run)}
    if "funnel.json" not in logged:
        client.log_table(run, report.funnel, "funnel.json")


def _log_model(client: mlflow.MlflowClient, run: str, report: Run, folder: Path) -> None:
    """Save the model with the code that loads it, and log it as the output of the run."""
    assert report.trained is not None and report.data is not None, "a model was trained"
    exported, saved = folder / "exported", folder / "model"
    for name in (CONFIG, WEIGHTS):
        files.copy(report.trained.model.file(name).local(), str(exported / name))
    recorded = tokenizer_of(report.data.tokenizer)
    tokenizer = folder / recorded.path.rsplit("/", 1)[1]
    files.copy(recorded.local(), str(tokenizer))

    experiment = client.get_run(run).info.experiment_id
    params = {name: str(report.result[name]) for name in ("parameters", "steps", "tokens")}
    logged_model = client.create_logged_model(
        experiment,
        f"{report.recipe.name}-{report.trained.model.key[:8]}",
        source_run_id=run,
        params=params,
        model_type="text-generation",
    )
    try:
        _save(
            saved,
            exported,
            tokenizer,
            Model(artifact_path=logged_model.artifact_location, run_id=run, model_id=logged_model.model_id),
        )
        client.log_model_artifacts(logged_model.model_id, str(saved))
    except BaseException:
        client.finalize_logged_model(logged_model.model_id, "FAILED")
        raise
    client.finalize_logged_model(logged_model.model_id, "READY")
    client.log_outputs(run, [LoggedModelOutput(logged_model.model_id, step=report.result["steps"])])
    # as the run has them, point for point: MLflow keeps one of two that are equal
    shown = tracked_names(report.data, report.recipe.training)
    names = sorted(shown(name) for name in report.result if name.partition("/")[0] in _EVALUATED)
    last = [client.get_metric_history(run, name)[-1] for name in names]
    points = [
        Metric(one.key, one.value, one.timestamp, one.step, model_id=logged_model.model_id, run_id=run) for one in last
    ]
    client.log_batch(run, metrics=points)


def _save(path: Path, exported: Path, tokenizer: Path, described: Model) -> None:
    served = find_spec("gristmill.training.hub.mlflow_model")
    assert served is not None and served.origin is not None, "it is a module of ours"
    libraries = (*_LIBRARIES, "tokenizers") if tokenizer.suffix == ".json" else _LIBRARIES
    # its lines are about conda and pickled models, of which there are none
    quiet = logging.getLogger("mlflow.pyfunc")
    level = quiet.level
    quiet.setLevel(logging.ERROR)
    try:
        with tempfile.TemporaryDirectory() as folder:
            mlflow.pyfunc.save_model(
                path=str(path),
                python_model=served.origin,
                code_paths=[str(_serving_code(Path(folder)))],
                artifacts={"model": str(exported), "tokenizer": str(tokenizer)},
                signature=_SIGNATURE,
                pip_requirements=[f"{name}=={version(name).partition('+')[0]}" for name in libraries],
                mlflow_model=described,
            )
    finally:
        quiet.setLevel(level)


def _serving_code(folder: Path) -> Path:
    """Copy the parts of the package `gristmill` that serving a model needs into a folder; return the folder."""
    package = Path(gristmill.__file__).parent
    copy = folder / "gristmill"
    for room in ("samples", "storage", "training"):
        shutil.copytree(package / room, copy / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(package / "__init__.py", copy)
    return copy


KEY_TAG = "gristmill.key"
TRUNK_TAG = "gristmill.trunk"
_ARTIFACTS_TAG = "gristmill.artifacts"


class ModelRun:
    """The MLflow run of a model in the experiment of the recipe. Its name has the differences from the base.

    As a context manager around a training it creates the run, or finds that of an earlier try, and sets its end status,
    so that no run stays RUNNING.
    """

    def __init__(
        self,
        settings: MachineSettings,
        recipe: Recipe,
        data: Data,
        built: tuple[BuiltStage, ...],
        key: str,
        folder: str,
    ) -> None:
        self.experiment = TrackedExperiment(settings, recipe.name)
        self.client = self.experiment.client
        self.settings, self.recipe, self.data, self.built = settings, recipe, data, built
        self.key, self.folder = key, folder

    def find(self) -> str:
        """The id of the complete run of this model; empty if there is none."""
        experiment = self.experiment.find()
        if experiment is None:
            return ""
        tagged = f"tags.`{KEY_TAG}` = '{self.key}'"
        runs = self.client.search_runs([experiment.experiment_id], tagged, ViewType.ACTIVE_ONLY, max_results=1)
        return runs[0].info.run_id if runs else ""

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
        """Complete the run of the finished model, and return its id.

        Missing parts are logged: if this server has no run, one with the points of the model's files, and artifacts
        that an earlier try did not finish.
        """
        if (run_id := self.find()) and _ARTIFACTS_TAG in self.client.get_run(run_id).data.tags:
            return run_id
        with self as run:
            self._log_points(run, model)

            trained = model_stage.Trained(model, model.result["result"], run)
            built = (*self.built, BuiltStage("training", model))
            report = Run(self.recipe, self.settings, self.data.corpus, built, self.data, trained)
            log_artifacts(self.client, run, report)
            # after those of the training, because MLflow shows metrics in the order in which it first received them
            sums = _funnel(self.data) | bill(report).metrics()
            for agreement in annotators_of_run(self.recipe, self.settings):
                sums |= agreement.metrics()
            metrics = [Metric(name, value, 0, 0) for name, value in sums.items()]
            self.client.log_batch(run, metrics=metrics)
            experiment = self.experiment.id()
            others = [other for other in compared_runs(self.client, experiment) if other.info.run_id != run]
            note = "\n\n".join([*evaluated_on(self.data, others, self.recipe.training), description(report)])
            self.client.set_tag(run, "mlflow.note.content", note)
            # last: a run that has it is complete
            self.client.set_tag(run, _ARTIFACTS_TAG, "complete")
            describe_experiment(self.client, experiment)
        return run

    def _log_points(self, run: str, model: StageResult) -> None:
        """Log the points of the model's files that the run lacks."""
        newest = {
            metric: max(point.step for point in self.client.get_metric_history(run, metric))
            for metric in self.client.get_run(run).data.metrics
        }
        shown = tracked_names(self.data, self.recipe.training)
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
        first, first_recipe = (oldest[0], self._recipe_of(oldest[0])) if oldest else (None, None)
        base = base_of(self.recipe, first_recipe)
        run = self.experiment.create(run_name(self.recipe, base), provenance())
        try:
            self.client.log_text(run, dump(self.recipe), RECIPE)
            own = params(self.recipe, base, {} if first is None else first.data.params)
            self._log_params(run, own)
            if first is not None and first_recipe is not None:
                self._log_params(first.info.run_id, missing_params(first, first_recipe, own))
            self.client.log_inputs(
                run,
                [
                    dataset_input(stage, "training" if stage is self.data.mixture else "lineage")
                    for stage in lineage(self.built)
                ],
            )
            # as seen from the home, which may be moved
            self.client.set_tag(run, "gristmill.model", f"stages/model-{self.key}")
            self.client.set_tag(run, COMPARABLE, comparable(self.data, self.recipe.training))
            for name, value in self._trunk_tags().items():
                self.client.set_tag(run, name, value)
            # last: a run that is found by its key is complete
            self.client.set_tag(run, KEY_TAG, self.key)
        except BaseException as error:
            self.experiment.end(run, error)
            raise
        return run

    def _trunk_tags(self) -> dict[str, str]:
        """Tags of a branch: the trunk's model, its run if this server has it, and the step."""
        branch = self.data.branch
        if branch is None:
            return {}
        experiments = [each.experiment_id for each in self.client.search_experiments()]
        runs = self.client.search_runs(experiments, f"tags.`{KEY_TAG}` = '{branch.key}'", max_results=1)
        tags = {TRUNK_TAG: f"stages/model-{branch.key}", f"{TRUNK_TAG}_step": str(branch.step)}
        return tags | ({f"{TRUNK_TAG}_run": runs[0].info.run_id} if runs else {})

    def _log_params(self, run: str, values: dict[str, str]) -> None:
        self.client.log_batch(run, params=[Param(name, value) for name, value in values.items()])

    def _recipe_of(self, run: TrackedRun) -> dict[str, Any] | None:
        with tempfile.TemporaryDirectory(dir=self.settings.local_folder, prefix=".mlflow-") as folder:
            return recipe_of(self.client, run, Path(folder))


def _funnel(data: Data) -> dict[str, float]:
    """Metrics that compare corpora: the documents that each step kept, and the tokens of each source.

    MLflow's tables are in alphabetical order, so held-out metrics come first.
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
