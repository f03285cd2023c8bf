"""What an MLflow run has to show of a finished model: recipe, funnel, plots, a sample of text, and the model itself."""

import logging
import shutil
import tempfile
from dataclasses import asdict
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import mlflow
from mlflow.entities import LoggedModelOutput, Metric
from mlflow.models import Model, ModelSignature
from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema

import gristmill
from gristmill.flows.reports.bill import bill
from gristmill.flows.reports.plots import figures
from gristmill.flows.reports.plots.classifier_curves import cross_fitted, curves_png, trained_classifier
from gristmill.flows.reports.run import Report
from gristmill.flows.reports.run_page import plots
from gristmill.flows.stages.tokenizer import tokenizer_of
from gristmill.flows.tracking.compared import tracked_names
from gristmill.storage import files
from gristmill.training.hub.weight_files import CONFIG, WEIGHTS

# What the files of the room `training` that a model is loaded by import.
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


def log_artifacts(client: mlflow.MlflowClient, run: str, report: Report) -> None:
    """Log the artifacts of a finished model to its run; `report` is one with training.

    `funnel.csv`, `funnel.json` (a table), `funnel.png`, `losses.png`, `sample.txt`, `bill.json`, and of a classifier
    that the corpus has trained the curves, `classifier.png`, and its measures, `classifier.json`; of classifiers that
    steps name what `train classifier` wrote beside them, `<step>-classifier.json` and `.svg`; of the heads that scored
    documents how good they are, `heads.json`. The model is one of the experiment's, made by the run. Held: on disk,
    the exported model twice while it is copied.
    """
    with tempfile.TemporaryDirectory(dir=report.settings.local_folder, prefix=".mlflow-") as folder:
        shown = Path(folder) / "shown"
        shown.mkdir()
        report.funnel.to_csv(shown / "funnel.csv", index=False)
        rows = 1 + len(report.steps)
        (shown / "funnel.png").write_bytes(figures.png(plots.funnel(report), (0.3 * rows,)))
        (shown / "losses.png").write_bytes(figures.png(plots.losses(report), (3.5,)))
        if (model := trained_classifier(report.corpus)) is not None:
            (shown / "classifier.png").write_bytes(curves_png(*cross_fitted(model)))
            files.write_json(str(shown / "classifier.json"), model.result["model"])
        for stage in report.corpus.stages:
            if stage.name == "embedding":
                files.write_json(str(shown / "heads.json"), stage.result["heads"])
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
    """Copy what `train classifier` has written beside a model, if it is there, for a step."""
    for kind in ("json", "svg"):
        if files.exists(f"{model}.{kind}"):
            files.copy(f"{model}.{kind}", str(shown / f"{step}-classifier.{kind}"))


def description(report: Report) -> str:
    """What came out and the funnel, as Markdown."""
    lines = [
        f"{'; '.join(report.summary)}.",
        "",
        "| step | documents in | out | kept |",
        "| --- | ---: | ---: | ---: |",
    ]
    for row in report.steps:
        kept = "" if row.kept is None else f"{row.kept:.1%}"
        lines.append(f"| {row.name} | {row.documents_in:,} | {row.documents_out:,} | {kept} |")
    return "\n".join(lines)


def _log_funnel_table(client: mlflow.MlflowClient, run: str, report: Report) -> None:
    # log_table adds to a table that is there, as after a run that was killed here
    logged = {artifact.path for artifact in client.list_artifacts(run)}
    if "funnel.json" not in logged:
        client.log_table(run, report.funnel, "funnel.json")


def _log_model(client: mlflow.MlflowClient, run: str, report: Report, folder: Path) -> None:
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
    made = client.create_logged_model(
        experiment,
        f"{report.recipe.name}-{report.trained.model.key[:8]}",
        source_run_id=run,
        params=params,
        model_type="text-generation",
    )
    try:
        _save(
            saved, exported, tokenizer, Model(artifact_path=made.artifact_location, run_id=run, model_id=made.model_id)
        )
        client.log_model_artifacts(made.model_id, str(saved))
    except BaseException:
        client.finalize_logged_model(made.model_id, "FAILED")
        raise
    client.finalize_logged_model(made.model_id, "READY")
    client.log_outputs(run, [LoggedModelOutput(made.model_id, step=report.result["steps"])])
    # as the run has them, point for point: MLflow keeps one of two that are equal
    shown = tracked_names(report.data)
    names = sorted(shown(name) for name in report.result if name.partition("/")[0] in _EVALUATED)
    last = [client.get_metric_history(run, name)[-1] for name in names]
    points = [Metric(one.key, one.value, one.timestamp, one.step, model_id=made.model_id, run_id=run) for one in last]
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
    """The package `gristmill` with the two rooms that a model is served by, copied into a folder."""
    package = Path(gristmill.__file__).parent
    copy = folder / "gristmill"
    for room in ("storage", "training"):
        shutil.copytree(package / room, copy / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(package / "__init__.py", copy)
    return copy
