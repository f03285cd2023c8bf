"""`gristmill train import`: what another trainer did with a recipe's tokens, beside the recipe's own runs in MLflow.

    <local folder>/imported/<name>-<key>    the model as `gristmill export model` writes one, document_losses.parquet

The model is evaluated here, on the held-out text that the recipe's own models are evaluated on, so that the figures are
of one program. The same import again changes nothing.
"""

import csv
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import wrapt
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, ViewType

from gristmill.flows.curation import BuiltStage, lineage
from gristmill.flows.experiments.options import ImportRequest
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe, dump
from gristmill.flows.reports.finished import finished
from gristmill.flows.run.compared import (
    COMPARABLE,
    RECIPE,
    comparable,
    describe_experiment,
    provenance,
    tracked_names,
)
from gristmill.flows.run.model_run import KEY_TAG
from gristmill.flows.run.tracking import BATCH, TrackedExperiment, dataset_input, tag_name
from gristmill.flows.stages.heldout import Data
from gristmill.flows.stages.model import local_mixture
from gristmill.storage import files
from gristmill.storage.damage import opening
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.tasks.engine.make import NotFinishedError
from gristmill.training.config import DOCUMENT_LOSSES
from gristmill.training.model_config import ModelConfig

if TYPE_CHECKING:
    from gristmill.training.hub import model_folder, weight_files
else:
    model_folder = wrapt.lazy_import("gristmill.training.hub.model_folder")
    weight_files = wrapt.lazy_import("gristmill.training.hub.weight_files")


# What trainers call the step and the loss in nats a token: nanoGPT and its kind, OLMo-core, torchtitan
# (components/metrics.py), Megatron-LM, Lightning, exports of W&B.
STEPS = ("step", "iteration", "iter", "global_step", "trainer/global_step", "_step", "Step")
LOSSES = ("train/loss", "loss", "train_loss", "train/CE loss", "loss_metrics/global_avg_loss", "lm loss", "lm-loss")
LOSS = "train/loss"


def read_points(path: Path, step: str | None = None, loss: str | None = None) -> Iterator[tuple[int, dict[str, float]]]:
    """(step, value by metric) of each line that has a number, in the file's order.

    `step`, `loss`: the columns of these; None: the first of STEPS and LOSSES that a line has. The loss becomes
    `train/loss`. Every other column of numbers keeps its name. Values that are no finite numbers are left out, as an
    empty cell is: trainers write some columns at some steps.

    Raises FileNotFoundError, IsADirectoryError, and ValueError for a file that is no text or has no lines, for a line
    that is none or has no step, and where no line has a loss.
    """
    count, losses = 0, 0
    for number, line in enumerate(_lines(path), 1):
        steps = [name for name in ([step] if step else STEPS) if _number(line.get(name)) is not None]
        if not steps:
            columns = f"no column {step}" if step else f"none of the columns {', '.join(STEPS)}"
            raise ValueError(
                f"{path}, line {number}: it has {columns} with a number; set the column of the step with "
                f"--step, one of {_some(line)}"
            )
        step_number = _number(line[steps[0]])
        assert step_number is not None, "set above"
        if step_number < 0 or step_number != int(step_number) or step_number >= 2**63:
            raise ValueError(f"{path}, line {number}: {steps[0]} is {step_number:g}, which is not a step; fix the line")
        of_loss = next((name for name in ([loss] if loss else LOSSES) if _number(line.get(name)) is not None), None)
        values = {
            LOSS if name == of_loss else name: value
            for name, cell in line.items()
            if name != steps[0] and (value := _number(cell)) is not None and (name == of_loss or name != LOSS)
        }
        count, losses = count + 1, losses + (LOSS in values)
        if values:
            yield int(step_number), values
    if not count:
        raise ValueError(f"{path} has no lines; give the trainer's metrics as JSON Lines, or as CSV with a header")
    if not losses:
        named = f"a number in the column {loss}" if loss else f"one of the columns {', '.join(LOSSES)}"
        raise ValueError(f"{path}: no line has {named}; set the column of the loss, in nats per token, with --loss")


def _lines(path: Path) -> Iterator[Mapping[str, Any]]:
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: give the file of the trainer's metrics in it")
    with path.open("rb") as file:
        first = file.read(1)
    if first != b"{":
        with opening(f"{path}", "CSV in UTF-8", "give the trainer's metrics as JSON Lines, or as CSV with a header"):
            with path.open(encoding="utf-8-sig", newline="") as file:
                yield from csv.DictReader(file)
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                values = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                raise ValueError(f"{path}, line {number}: not JSON ({error}); fix or remove the line") from None
            if not isinstance(values, dict):
                raise ValueError(f"{path}, line {number}: not a JSON object; give an object with a step and a loss")
            yield values


def _number(cell: Any) -> float | None:
    """A finite number, as JSON or as text; None for anything else."""
    if isinstance(cell, bool) or not isinstance(cell, int | float | str):
        return None
    try:
        value = float(cell)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def _some(line: Mapping[str, Any]) -> str:
    names = [str(name) for name in line][:12]
    return ", ".join(names) + (", ..." if len(line) > len(names) else "")


EVALUATION = "evaluation.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class ImportedRun:
    """`run`: the id in MLflow; `folder`: the model, or empty; `points`: how many there are; `heldout`: what the model
    gives on held-out text, by metric; `there`: it had been imported."""

    run: str
    folder: str
    points: int
    heldout: dict[str, float]
    there: bool = False


def import_run(
    recipe: Recipe, request: ImportRequest, settings: MachineSettings, say: Callable[[str], None] = lambda line: None
) -> ImportedRun:
    """Import a training on the tokens of a recipe, which are finished.

    Raises NotFinishedError where they are not, and what `read_points` and `shape_of` raise; nothing is written then.
    """
    if not _NAME.fullmatch(request.name):
        raise ValueError(
            f"--name {request.name}: it becomes part of a folder's name; use letters, digits, `.`, `_` and "
            "`-`, and begin with a letter or digit"
        )
    report = finished(recipe, settings)
    if (data := report.data) is None:
        raise NotFinishedError(
            f"the tokens of {recipe.name} are not finished: run `gristmill run {recipe.name} --tokens-only` first"
        )
    points = sum(1 for _ in read_points(request.losses, request.step, request.loss))
    folder, heldout, shape = "", dict[str, float](), None
    if request.model is not None:
        folder, heldout, shape = _model(request, request.model, recipe, data, settings, say)
    key = files.digest(orjson.dumps([_identity(request), data.mixture.key, Path(folder).name]))[:16]
    run, there = _tracked(settings, recipe, data, report.built, request, key, folder, heldout, shape)
    return ImportedRun(run, folder, points, heldout, there)


def _identity(request: ImportRequest) -> list[str]:
    return [request.name, request.trainer, files.checksum(str(request.losses)), request.step or "", request.loss or ""]


def _model(
    request: ImportRequest,
    source: Path,
    recipe: Recipe,
    data: Data,
    settings: MachineSettings,
    say: Callable[[str], None],
) -> tuple[str, dict[str, float], ModelConfig]:
    """The folder of the model, its metrics on held-out text, its shape."""
    manifest = load_training_manifest(local_mixture(settings, data.mixture.folder))
    shape = model_folder.shape_of(source, manifest)
    digests = [files.checksum(str(path)) for path in weight_files.weight_files(source)]
    key = files.digest(orjson.dumps([request.name, digests, data.mixture.key, recipe.training.eval_tokens]))[:16]
    folder = Path(settings.local_folder) / "imported" / f"{request.name}-{key}"
    if not (folder / EVALUATION).is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        say(f"copying the weights of {source} to {folder}")
        model_folder.write_imported_folder(source, shape, manifest, folder)
        say("evaluating the model on the recipe's held-out text")
        scores = model_folder.evaluated(folder, manifest, recipe.training.eval_tokens, folder / DOCUMENT_LOSSES)
        files.write_json(str(folder / EVALUATION), {"heldout": scores})
    return str(folder), files.read_json(str(folder / EVALUATION))["heldout"], shape


def _tracked(
    settings: MachineSettings,
    recipe: Recipe,
    data: Data,
    built: tuple[BuiltStage, ...],
    request: ImportRequest,
    key: str,
    folder: str,
    heldout: dict[str, float],
    shape: ModelConfig | None,
) -> tuple[str, bool]:
    """The run of an import in MLflow, and whether it was there."""
    experiment = TrackedExperiment(settings, recipe.name)
    client, place = experiment.client, experiment.id()
    tagged = f"tags.`{KEY_TAG}` = '{key}'"
    if runs := client.search_runs([place], tagged, ViewType.ACTIVE_ONLY, max_results=1):
        return runs[0].info.run_id, True
    run = experiment.create(f"{recipe.name} · {request.name} by {request.trainer}", provenance())
    try:
        params = {"trainer": request.trainer, "mixture": data.mixture.key}
        params |= {f"model.{name}": str(value) for name, value in (shape.model_dump() if shape else {}).items()}
        client.log_batch(run, params=[Param(name, value) for name, value in params.items()])
        client.log_text(run, dump(recipe), RECIPE)
        kinds = [(stage, "training" if stage is data.mixture else "lineage") for stage in lineage(built)]
        client.log_inputs(run, [dataset_input(stage, kind) for stage, kind in kinds])
        last = _log_points(client, run, request, tracked_names(data))
        measured = [Metric(tracked_names(data)(name), value, 0, last) for name, value in heldout.items()]
        client.log_batch(run, metrics=measured)
        if folder:
            client.log_artifact(run, str(Path(folder) / DOCUMENT_LOSSES))
            client.set_tag(run, "gristmill.model", f"imported/{Path(folder).name}")
            client.set_tag(run, COMPARABLE, comparable(data))
        # last: a run that is found by its key is complete
        client.set_tag(run, KEY_TAG, key)
    except BaseException as error:
        experiment.end(run, error)
        raise
    experiment.end(run, None)
    describe_experiment(client, place)
    return run, False


def _log_points(client: MlflowClient, run: str, request: ImportRequest, shown: Callable[[str], str]) -> int:
    """Log the trainer's metrics, BATCH points a request, and return the last step. They keep their names, prefixed with
    the trainer's; LOSS gets the name that it has in a recipe's run."""
    last, points = 0, _points(request, shown)
    while some := list(islice(points, BATCH)):
        client.log_batch(run, metrics=some)
        last = max(last, *(point.step for point in some))
    return last


def _points(request: ImportRequest, shown: Callable[[str], str]) -> Iterator[Metric]:
    for step, values in read_points(request.losses, request.step, request.loss):
        for name, value in values.items():
            yield Metric(shown(name) if name == LOSS else _name(request.trainer, name), value, 0, step)


def _name(trainer: str, column: str) -> str:
    """A column as MLflow takes it in the name of a metric."""
    return f"{tag_name(trainer)}/" + "/".join(tag_name(part) for part in column.strip("/").split("/"))
