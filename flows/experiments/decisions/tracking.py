"""MLflow's record of a decision: a parent run with the verdicts, a child run for each training of the proxy.

Runs are grouped in MLflow's tables and charts by the tags `arm`, `pair`, `learning_rate` and `decision`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from mlflow.entities import DatasetInput

from gristmill.flows.experiments.decisions import page as decision_page
from gristmill.flows.experiments.decisions.report import DecisionReport, TrainedRun
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe, dump
from gristmill.flows.reports.dependents.retractions import TAG, tag_of
from gristmill.flows.run.tracking import ParentRun, dataset_input, tag_name
from gristmill.flows.stats.runs import RunRequest
from gristmill.tasks.engine.make import StageResult

DECISION_TAG = "decision"


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


def decision_run(
    settings: MachineSettings,
    base: str,
    decision: str,
    params: Mapping[str, Any],
    datasets: Datasets,
    exclusive: Callable[[], AbstractContextManager[Any]],
) -> ParentRun:
    """The MLflow run of a decision, by its id, in the experiment of its base. `exclusive`: as for `ParentRun`."""
    tag = DECISION_TAG, decision
    return ParentRun(settings, base, tag, f"{base}: decision {decision[:8]}", params, datasets.of_all(), exclusive)


def log_runs(
    run: ParentRun,
    trained: Iterable[TrainedRun],
    losses: Mapping[str, Sequence[tuple[int, float]]],
    datasets: Datasets,
) -> None:
    """Log finished runs as children, each once. `losses`: (step, training loss) by the key of a run's stage."""
    for one in trained:
        request = one.request
        tags = {
            "arm": request.arm,
            "pair": str(request.pair),
            "learning_rate": f"{request.learning_rate:g}",
            "purpose": "A/A" if request.salt else "comparison",
        }
        values = {"bits_per_byte": one.bits_per_byte} | {f"bits_per_byte/{k}": v for k, v in one.by_set.items()}
        values |= {f"accuracy/{task}": value for task, value in one.tasks.items()}
        name = request_name(request)
        run.log_child(name, one.key, vars(request), values, losses.get(one.key, ()), tags, datasets.of_arm(request.arm))


def finish(run: ParentRun, report: DecisionReport, recipes: Mapping[str, Recipe]) -> str:
    """Log verdicts, table and plots to the parent, if that was not done to its end; returns its id."""
    if report.stale:
        run.client.set_tag(run.id, TAG, tag_of(report.stale))
    if run.is_complete():
        return run.id
    values: dict[str, float] = {}
    for row in report.rows():
        name = tag_name(row["candidate"])
        run.client.set_tag(run.id, f"verdict.{name}", row["verdict"])
        numbers = {"effect": row["effect"], "effect_low": row["low"], "effect_high": row["high"]}
        values |= {f"{what}/{name}": value for what, value in numbers.items() if value is not None}
        for task in report.tasks.get(row["candidate"], ()):
            numbers = {"accuracy": task.accuracy, "accuracy_difference": task.difference}
            numbers |= {"accuracy_difference_low": task.low, "accuracy_difference_high": task.high}
            values |= {f"{what}/{task.name}/{name}": value for what, value in numbers.items()}
    if (held := report.decision.conditions) is not None:
        params = {"judge": held.judge, "parameters": held.parameters, "tokens": held.tokens}
        for name, value in params.items():
            run.client.set_tag(run.id, name, str(value))
    run.log(run.id, {}, values)
    # MLflow's page of a run shows its name at the top and the description at the end
    return run.complete(partial(write_artifacts, report=report, recipes=recipes), description(report), report.headline)


def request_name(request: RunRequest) -> str:
    """The name of a child run."""
    parts = [request.arm, f"pair {request.pair}", f"lr {request.learning_rate:g}", f"{request.tokens:,} tokens"]
    return ", ".join([*parts, f"A/A {request.salt}"] if request.salt else parts)


def description(report: DecisionReport) -> str:
    """The verdicts, then the tables, as Markdown."""
    shown = [table.markdown() for table in decision_page.tables(report)]
    lines = [f"{report.title}.", *(f"**{sentence}.**" for sentence in report.sentences), *shown]
    effects = f"Effects: bits per byte of {report.base} minus the candidate's. Above 0, the candidate is better."
    return "\n\n".join([*lines, *([report.tasks_note] if report.tasks_note else []), effects])


def write_artifacts(folder: Path, report: DecisionReport, recipes: Mapping[str, Recipe]) -> None:
    """Write what a decision has to show: `decision.json`, `decision.html`, `recipes/<arm>.yaml`, and `verdicts.json`, a
    table in MLflow's form."""
    indented = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_SERIALIZE_NUMPY
    (folder / "decision.json").write_bytes(orjson.dumps(report.as_json(), option=indented))
    rows = list(report.rows())
    columns = list(rows[0])
    table = {"columns": columns, "data": [[row[column] for column in columns] for row in rows]}
    (folder / "verdicts.json").write_bytes(orjson.dumps(table))
    (folder / "decision.html").write_text(decision_page.page(report), encoding="utf-8")
    (folder / "recipes").mkdir()
    for name, recipe in recipes.items():
        (folder / "recipes" / f"{tag_name(name)}.yaml").write_text(dump(recipe), encoding="utf-8")
