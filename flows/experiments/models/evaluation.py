"""What a trained model is worth: bits per byte of the held-out text of each source, and scores on tasks.

A model is named as a user calls it: a recipe, a folder, or a checkpoint.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import wrapt

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe, argument_of, load
from gristmill.flows.reports.finished import finished
from gristmill.flows.reports.run import Run
from gristmill.flows.reports.tables import Table
from gristmill.flows.run import model_training
from gristmill.flows.stages.model import local_files, local_mixture
from gristmill.storage import files
from gristmill.storage.tokenizer_files import read_tokenizer
from gristmill.tasks.engine.make import NotFinishedError
from gristmill.training.evaluate.heldout import heldout_loss, heldout_windows
from gristmill.training.evaluate.sample import sample_text
from gristmill.training.evaluate.task_scores import scored, task_scores
from gristmill.training.evaluate.tasks import read_tasks
from gristmill.training.hub.weight_files import CONFIG, WEIGHTS
from gristmill.training.hub.weights import RESULT, RUN, SavedModel, open_model
from gristmill.training.world import processes

if TYPE_CHECKING:
    from mlflow import entities

    from gristmill.flows.run import model_run
else:
    model_run = wrapt.lazy_import("gristmill.flows.run.model_run")
    entities = wrapt.lazy_import("mlflow.entities")

TOP_K = 50  # tokens that `generate_text` chooses among


@dataclass(frozen=True)
class TrainedModel:
    """`name`: for a person; `folder`: where its report is written, perhaps an address; `report`: what was made of the
    recipe, None for a folder."""

    name: str
    folder: str
    saved: SavedModel
    report: Run | None = None

    @property
    def recipe(self) -> Recipe | None:
        return self.report.recipe if self.report else None


def trained_model(target: str | Recipe, settings: MachineSettings | None = None) -> TrainedModel:
    """The model of a recipe whose training is finished, named as for `load`, or the one in a local folder
    (`gristmill.training.hub.weights`).

    Raises NotFinishedError with the fix, and what `open_model` and `load` raise.
    """
    if isinstance(target, str) and Path(target).is_dir():
        saved = open_model(Path(target))
        return TrainedModel(saved.folder.name, str(saved.out), saved)
    settings = settings or MachineSettings()
    recipe = load(target)
    recipe.training_mixture()
    report = None
    with suppress(NotFinishedError):
        report = finished(target, settings)
    if report is None or report.data is None or report.trained is None:
        command = f"gristmill run {argument_of(target)}"
        raise NotFinishedError(f"the training of {recipe.name} is not finished: run `{command}`")
    folder = local_files(settings, report.trained.model, (RUN, RESULT, CONFIG, WEIGHTS))
    saved = open_model(folder, local_mixture(settings, report.data.mixture.folder))
    return TrainedModel(recipe.name, report.trained.model.folder, saved, report)


@dataclass(frozen=True)
class Evaluation:
    """`heldout`: metrics as training names them, empty for a model without its data; `tasks`: figures by task, see
    `gristmill.training.evaluate.task_scores`; `unknown`: a sentence for each file that is no task; `path`: the report
    that was written; `mlflow_run`: where the tasks' figures were logged, or empty."""

    model: str
    heldout: dict[str, float]
    tasks: dict[str, dict[str, Any]]
    unknown: list[str]
    path: str
    mlflow_run: str = ""

    @property
    def tables(self) -> Iterator[Table]:
        """Bits per byte of held-out text; accuracies of tasks in percent, with their standard errors."""
        if self.heldout:
            rows = []
            for name, value in self.heldout.items():
                if name.endswith("bits_per_byte"):
                    kind, _, source = name.removesuffix("/bits_per_byte").partition("/")
                    own = {"heldout": source or "all", "survivors": f"{source or 'all'}, kept by the recipe"}
                    rows.append((own.get(kind, source), value))
            yield Table(("held-out text", "#bits per byte|.4f"), rows, self.model)
        if self.tasks:
            columns = ("task", "#examples", "#acc %", "#acc_norm %", "#acc_bytes %", "#chance %", "#perplexity|,.2f")
            shares = ("acc", "acc_norm", "acc_bytes", "chance")
            shown = [
                (name, each["examples"], *(_percent(each, share) for share in shares), each.get("perplexity"),
                 each["bits_per_byte"])
                for name, each in self.tasks.items()
            ]  # fmt: skip
            yield Table((*columns, "#bits per byte|.3f"), shown, self.model)

    def remarks(self) -> Iterator[str]:
        """What was cut and not scored, and where the report is."""
        for name, figures in self.tasks.items():
            if figures["cut"]:
                yield (f"{name}: the context of {figures['cut']:,} pairs was truncated on the left to fit the model")
        yield from (f"not scored: {sentence}" for sentence in self.unknown)
        yield f"report: {self.path}"
        if self.mlflow_run:
            yield f"logged to the MLflow run {self.mlflow_run}"


def _percent(figures: dict[str, Any], name: str) -> str:
    value, error = figures.get(name), figures.get(f"{name}_stderr")
    return "" if value is None else f"{100 * value:.2f}" + ("" if error is None else f" ± {100 * error:.2f}")


def evaluate(
    target: str,
    tasks: Path | None,
    settings: MachineSettings | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Evaluation:
    """Evaluate the model that `trained_model` finds, on a GPU if there is one. A report of an earlier evaluation is
    replaced. The figures of a recipe's model are logged to its MLflow run.

    Raises ValueError where there is nothing to evaluate on, and what `trained_model` and `read_tasks` raise.
    """
    settings = settings or MachineSettings()
    task_list, unknown = read_tasks(tasks) if tasks else ([], [])
    target_model = trained_model(target, settings)
    saved = target_model.saved
    if not task_list and saved.data is None:
        raise ValueError(f"{target} is an exported folder, which has no held-out text: add tasks with --tasks FOLDER")
    tokenizer = read_tokenizer(saved.tokenizer.read(), saved.tokenizer.path)
    heldout, scores = {}, {}
    with processes(timeout_seconds=600) as world:
        model = saved.load().to(world.device)
        if saved.run is not None and saved.data is not None:
            training = saved.run.training
            windows = heldout_windows(saved.data, saved.run.model.seq_len, training.eval_tokens, training)
            heldout = heldout_loss(model, windows, saved.run.training.micro_batch, world)
        if task_list:
            scores = task_scores(model, task_list, tokenizer, world, progress)
    path = files.join(target_model.folder, saved.report)
    files.write_json(path, {"model": target_model.name, "heldout": heldout, "tasks": scores, "unknown": unknown})
    return Evaluation(target_model.name, heldout, scores, unknown, path, _log(target_model, scores, settings))


def _log(target_model: TrainedModel, scores: dict[str, dict[str, Any]], settings: MachineSettings) -> str:
    """Log the figures of tasks to the recipe's MLflow run; returns its id, or an empty string where there is none."""
    report = target_model.report
    if report is None or report.trained is None or report.data is None or not scores:
        return ""

    model = report.trained.model
    run = model_run.ModelRun(settings, report.recipe, report.data, report.built, model.key, model.folder)
    run_id = model_training.noted_run(settings, report.recipe.name, model.key) or run.find()
    if run_id:
        now, step = time.time_ns() // 1_000_000, report.result["steps"]
        points = [entities.Metric(name, value, now, step) for name, value in scored(scores).items()]
        for start in range(0, len(points), 1000):
            run.client.log_batch(run_id, metrics=points[start : start + 1000])
    return run_id


def generate_text(target: str, prompt: str, tokens: int, temperature: float, seed: int) -> str:
    """The continuation of a prompt by a trained model, without the prompt. Raises what `trained_model` raises."""
    saved = trained_model(target).saved
    tokenizer = Path(saved.tokenizer.local())
    return sample_text(saved.load(), tokenizer, tokens, prompt=prompt, temperature=temperature, top_k=TOP_K, seed=seed)
