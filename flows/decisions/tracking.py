"""MLflow's record of a decision: a parent run with the verdicts, a child run for each training of the proxy.

Runs are grouped in MLflow's tables and charts by the tags `arm`, `pair`, `learning_rate` and `decision`.
"""

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import orjson
from mlflow.entities import DatasetInput, Metric, Param

from gristmill.flows.comparison.runs import RunRequest
from gristmill.flows.decisions import plots
from gristmill.flows.decisions.report import DecisionReport, TrainedRun
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe, dump
from gristmill.flows.reports import figures
from gristmill.flows.tracking.experiment import BATCH, TrackedExperiment, dataset_input, end_status, flat, tag_name
from gristmill.tasks.engine.make import StageResult

DECISION_TAG = "decision"
REQUEST_TAG = "gristmill.request"
STAGE_TAG = "gristmill.proxy"
PARENT_TAG = "mlflow.parentRunId"
_COMPLETE_TAG = "gristmill.artifacts"


class DecisionRun:
    """The MLflow run of a decision, in the experiment of its base.

    Used as a block around the decision, it makes the run, or finds that of an earlier try, and sets its end status, so
    that none stays RUNNING. The same decision has one parent run and one child for each training.
    """

    def __init__(
        self, settings: MachineSettings, base: str, decision: str, params: Mapping[str, Any], datasets: "Datasets"
    ) -> None:
        self.experiment = TrackedExperiment(settings, base)
        self.client = self.experiment.client
        self.base, self.decision, self.params, self.datasets = base, decision, params, datasets
        self._local = settings.local_folder
        self._children: dict[str, tuple[str, bool]] = {}

    def __enter__(self) -> "DecisionRun":
        self.experiment.end_stale_runs()
        runs = self.experiment.tagged(DECISION_TAG, self.decision)
        parents = [run for run in runs if PARENT_TAG not in run.data.tags]
        self._children = {
            run.data.tags[REQUEST_TAG]: (run.info.run_id, run.info.status == "FINISHED")
            for run in runs
            if PARENT_TAG in run.data.tags
        }
        if parents:
            self.id = parents[0].info.run_id
            self.experiment.begin(self.id)
        else:
            self.id = self.experiment.create(
                f"{self.base}: decision {self.decision[:8]}", {DECISION_TAG: self.decision}
            )
            self._log(self.id, self.params, {})
            self.client.log_inputs(self.id, self.datasets.of_all())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.set_terminated(self.id, end_status(kind))

    def log_runs(self, trained: Iterable[TrainedRun], losses: Mapping[str, Sequence[tuple[int, float]]]) -> None:
        """Log finished runs as children, each once. `losses`: (step, training loss) by the key of a run's stage."""
        for run in trained:
            given = run.request
            name = request_name(given)
            child, finished = self._children.get(name, ("", False))
            if finished:
                continue
            tags = {
                DECISION_TAG: self.decision,
                PARENT_TAG: self.id,
                REQUEST_TAG: name,
                STAGE_TAG: run.key,
                "arm": given.arm,
                "pair": str(given.pair),
                "learning_rate": f"{given.learning_rate:g}",
                "purpose": "A/A" if given.salt else "comparison",
            }
            child = child or self.experiment.create(name, tags)
            params = {
                "arm": given.arm,
                "pair": given.pair,
                "learning_rate": given.learning_rate,
                "tokens": given.tokens,
                "salt": given.salt,
            }
            self.client.log_inputs(child, self.datasets.of_arm(given.arm))
            values = {"bits_per_byte": run.bits_per_byte} | {f"bits_per_byte/{k}": v for k, v in run.by_set.items()}
            values |= {f"accuracy/{task}": value for task, value in run.tasks.items()}
            self._log(child, params, values, losses.get(run.key, ()))
            self.client.set_terminated(child, "FINISHED")
            self._children[name] = (child, True)

    def finish(self, report: DecisionReport, recipes: Mapping[str, Recipe]) -> str:
        """Log verdicts, table and plots to the parent, if that was not done to its end; returns its id."""
        if _COMPLETE_TAG in self.client.get_run(self.id).data.tags:
            return self.id
        values: dict[str, float] = {}
        for row in report.rows():
            name = tag_name(row["candidate"])
            self.client.set_tag(self.id, f"verdict.{name}", row["verdict"])
            numbers = {"effect": row["effect"], "effect_low": row["low"], "effect_high": row["high"]}
            values |= {f"{what}/{name}": value for what, value in numbers.items() if value is not None}
            for task in report.tasks.get(row["candidate"], ()):
                numbers = {"accuracy": task.accuracy, "accuracy_difference": task.difference}
                numbers |= {"accuracy_difference_low": task.low, "accuracy_difference_high": task.high}
                values |= {f"{what}/{task.name}/{name}": value for what, value in numbers.items()}
        self._log(self.id, {}, values)
        with tempfile.TemporaryDirectory(dir=self._local, prefix=".mlflow-") as folder:
            write_artifacts(Path(folder), report, recipes)
            self.client.log_artifacts(self.id, folder)
        self.client.set_tag(self.id, "mlflow.note.content", description(report))
        # MLflow's page of a run shows its name at the top and the description at the end
        self.client.update_run(self.id, name=report.headline)
        # last: a run that has it is complete
        self.client.set_tag(self.id, _COMPLETE_TAG, "complete")
        return self.id

    def _log(
        self,
        run: str,
        params: Mapping[str, Any],
        values: Mapping[str, float],
        losses: Sequence[tuple[int, float]] = (),
    ) -> None:
        # points of one time: MLflow keeps one of two that are equal, so what was logged before a crash is there once
        points = [Metric(name, value, 0, 0) for name, value in values.items()]
        points += [Metric("train/loss", loss, 0, step) for step, loss in losses]
        given = [Param(name, str(value)[:6000]) for name, value in flat(dict(params)).items()]
        self.client.log_batch(run, params=given)
        for start in range(0, len(points), BATCH):
            self.client.log_batch(run, metrics=points[start : start + BATCH])


class Datasets:
    """What runs are trained and judged on, by the keys of its stages."""

    def __init__(self, evaluation: StageResult, arms: Mapping[str, StageResult]) -> None:
        self._evaluation, self._arms = evaluation, arms

    def of_arm(self, arm: str) -> list[DatasetInput]:
        return [dataset_input(self._arms[arm], "training"), dataset_input(self._evaluation, "evaluation")]

    def of_all(self) -> list[DatasetInput]:
        arms = {stage.key: stage for stage in self._arms.values()}
        return [
            *(dataset_input(stage, "training") for stage in arms.values()),
            dataset_input(self._evaluation, "evaluation"),
        ]


def request_name(given: RunRequest) -> str:
    """The name of a child run."""
    parts = [given.arm, f"pair {given.pair}", f"lr {given.learning_rate:g}", f"{given.tokens:,} tokens"]
    return ", ".join([*parts, f"A/A {given.salt}"] if given.salt else parts)


def description(report: DecisionReport) -> str:
    """The verdicts, then the table, as Markdown."""
    lines = [f"**{sentence}.**\n" for sentence in report.sentences]
    lines += ["| candidate | effect | interval | documents | CPU hours |", "| --- | ---: | ---: | ---: | ---: |"]
    base = report.arms[report.base]
    lines.append(f"| {report.base} (base) | | | {base.documents:,} | {_hours(base.cpu_seconds)} |")
    for row in report.rows():
        effect = interval = ""
        if row["effect"] is not None:
            effect, interval = f"{row['effect']:+.4f}", f"{row['low']:+.4f} to {row['high']:+.4f}"
        hours = _hours(report.arms[row["candidate"]].cpu_seconds)
        lines.append(
            f"| {row['candidate'].replace('|', '/')} | {effect} | {interval} | {row['documents']:,} | {hours} |"
        )
    if report.tasks:
        lines += ["", "| candidate | task | accuracy | of the base | difference | interval |"]
        lines.append("| --- | --- | ---: | ---: | ---: | ---: |")
        for name, tasks in report.tasks.items():
            for task in tasks:
                shares = f"{task.accuracy:.1%} | {task.base:.1%} | {task.difference:+.1%}"
                lines.append(
                    f"| {name.replace('|', '/')} | {task.name} | {shares} | {task.low:+.1%} to {task.high:+.1%} |"
                )
    if report.attribution:
        lines += ["", "| step | worth | interval | documents it costs |", "| --- | ---: | ---: | ---: |"]
        for step in report.attribution:
            worth = interval = ""
            if step.worth is not None:
                worth, interval = f"{step.worth:+.4f}", f"{step.low:+.4f} to {step.high:+.4f}"
            lines.append(f"| {step.step} | {worth} | {interval} | {step.documents:,} |")
    return "\n".join(
        [*lines, "", f"Effects: bits per byte of {report.base} minus the candidate's; above 0 the candidate is better."]
    )


def write_artifacts(folder: Path, report: DecisionReport, recipes: Mapping[str, Recipe]) -> None:
    """Write what a decision has to show: `decision.json`, `decision.html`, plots as PNG, `recipes/<arm>.yaml`, and
    `verdicts.json`, a table in MLflow's form."""
    indented = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_SERIALIZE_NUMPY
    (folder / "decision.json").write_bytes(orjson.dumps(report.as_json(), option=indented))
    rows = list(report.rows())
    columns = list(rows[0])
    table = {"columns": columns, "data": [[row[column] for column in columns] for row in rows]}
    (folder / "verdicts.json").write_bytes(orjson.dumps(table))
    (folder / "decision.html").write_text(plots.page(report), encoding="utf-8")
    drawn: dict[str, tuple[Callable[..., None], int, int]] = {
        "effects.png": (plots.effects(report), len(rows), 1),
        "learning_rates.png": (
            plots.by_learning_rate(report), sum(len(v.by_learning_rate) for v in report.verdicts), 1,
        ),
        "sets.png": (plots.by_set(report), sum(map(len, report.sets.values())), 1),
    }  # fmt: skip
    if report.attribution:
        drawn["attribution.png"] = (plots.attribution(report), len(report.attribution), 3)
    for name, (draw, count, across) in drawn.items():
        (folder / name).write_bytes(figures.png(draw, plots.height(count), across))
    (folder / "recipes").mkdir()
    for name, recipe in recipes.items():
        (folder / "recipes" / f"{tag_name(name)}.yaml").write_text(dump(recipe), encoding="utf-8")


def _hours(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds / 3600:.4f}"
