"""MLflow's record of a scaling law: a parent run with law, tables and plots, a child for each run of the grid."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import orjson
from mlflow.entities import DatasetInput, Metric, Param

from flows.machine import MachineSettings
from flows.mlflow_experiment import BATCH, TrackedExperiment, end_status, flat
from flows.reports import figures
from flows.reports import scaling_plots as plots
from flows.reports.scaling import GridRun, ScalingReport

SCALING_TAG = "scaling"
STAGE_TAG = "gristmill.proxy"
PARENT_TAG = "mlflow.parentRunId"
_COMPLETE_TAG = "gristmill.artifacts"


class ScalingRun:
    """The MLflow run of a scaling law, in the experiment of its recipe.

    Used as a block around the work, it makes the run, or finds that of an earlier try, and sets its end status. The
    same grid has one parent, and one child for each run.
    """

    def __init__(
        self,
        settings: MachineSettings,
        recipe: str,
        identity: str,
        params: Mapping[str, Any],
        datasets: list[DatasetInput],
    ) -> None:
        self.experiment = TrackedExperiment(settings, recipe)
        self.client = self.experiment.client
        self.identity, self._params, self._datasets = identity, params, datasets
        self._local = settings.local_folder
        self._children: dict[str, tuple[str, bool]] = {}

    def __enter__(self) -> "ScalingRun":
        self.experiment.end_stale_runs()
        runs = self.experiment.tagged(SCALING_TAG, self.identity)
        parents = [run for run in runs if PARENT_TAG not in run.data.tags]
        self._children = {
            run.data.tags[STAGE_TAG]: (run.info.run_id, run.info.status == "FINISHED")
            for run in runs
            if PARENT_TAG in run.data.tags
        }
        if parents:
            self.id = parents[0].info.run_id
            self.experiment.begin(self.id)
        else:
            self.id = self.experiment.create(f"scaling-{self.identity[:8]}", {SCALING_TAG: self.identity})
            self._log(self.id, self._params, {})
            self.client.log_inputs(self.id, self._datasets)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.set_terminated(self.id, end_status(kind))

    def log_runs(self, runs: tuple[GridRun, ...]) -> None:
        """Log finished runs as children, each once."""
        for run in runs:
            child, finished = self._children.get(run.key, ("", False))
            if finished:
                continue
            name = f"{run.parameters:,} parameters, {run.tokens:,} tokens, pair {run.pair}"
            tags = {SCALING_TAG: self.identity, PARENT_TAG: self.id, STAGE_TAG: run.key}
            child = child or self.experiment.create(name, tags)
            params = {
                "parameters": run.parameters,
                "tokens": run.tokens,
                "learning_rate": run.learning_rate,
                "pair": run.pair,
            }
            self._log(child, params, {"bits_per_byte": run.loss, "flops": run.flops})
            self.client.set_terminated(child, "FINISHED")
            self._children[run.key] = (child, True)

    def finish(self, report: ScalingReport) -> str:
        """Log the law, its tables and its plots to the parent; returns its id. What was asked for this time replaces
        what an earlier command logged."""
        values = {f"law/{name}": interval.value for name, interval in report.law_intervals.items()}
        values |= {"law/deviation": report.fit.deviation}
        if report.forecasts:
            values["forecasts/inside"] = sum(one.check.inside for one in report.forecasts) / len(report.forecasts)
        self._log(self.id, {}, values)
        with tempfile.TemporaryDirectory(dir=self._local, prefix=".mlflow-") as folder:
            write_artifacts(Path(folder), report)
            self.client.log_artifacts(self.id, folder)
        self.client.set_tag(self.id, "mlflow.note.content", description(report))
        self.client.set_tag(self.id, _COMPLETE_TAG, "complete")
        return self.id

    def _log(self, run: str, params: Mapping[str, Any], values: Mapping[str, float]) -> None:
        given = [Param(name, str(value)[:6000]) for name, value in flat(dict(params)).items()]
        points = [Metric(name, value, 0, 0) for name, value in values.items()]
        self.client.log_batch(run, params=given)
        for start in range(0, len(points), BATCH):
            self.client.log_batch(run, metrics=points[start : start + BATCH])


def description(report: ScalingReport) -> str:
    """The law, what leaving the future out says of it, optima and forecasts, as Markdown."""
    lines = [f"**{report.sentence}.**", ""]
    if report.forecasts:
        lines += [f"**{report.forecast_sentence}.**", ""]
        lines += _header("parameters", "tokens", "compute", "forecast", "90% interval", "came")
        for one in report.forecasts:
            claim, came = one.forecast, one.check
            loss = f"{came.loss:.4f}{'' if came.inside else ' (outside)'}"
            spread = f"{claim.loss.low:.4f} to {claim.loss.high:.4f}"
            size = f"{claim.parameters:,} | {claim.tokens:,} | {claim.reach:.1f} times"
            lines.append(f"| {size} | {claim.loss.value:.4f} | {spread} | {loss} |")
        lines.append("")
    if report.optima:
        lines += _header("operations", "best parameters", "best tokens", "bits per byte")
        for best in report.optima:
            cells = [f"{one.value:,.0f} ({one.low:,.0f} to {one.high:,.0f})" for one in (best.parameters, best.tokens)]
            loss = f"{best.loss.value:.4f} ({best.loss.low:.4f} to {best.loss.high:.4f})"
            lines.append(f"| {best.compute:.2e} | {' | '.join(cells)} | {loss} |")
        lines.append("")
    lines += ["Fitted to the smaller runs, and held against the larger:", ""]
    lines += _header("operations up to", "runs", "predicted", "reach", "mean error", "bias", "inside 90%")
    for row in report.future:
        counts = f"{row.compute:.2e} | {row.fitted} | {row.predicted} | {row.reach:.1f} times"
        lines.append(f"| {counts} | {row.error:.2%} | {row.bias:+.2%} | {row.inside} |")
    return "\n".join(lines)


def _header(*columns: str) -> list[str]:
    return [f"| {' | '.join(columns)} |", f"|{' ---: |' * len(columns)}"]


def write_artifacts(folder: Path, report: ScalingReport) -> None:
    """Write `scaling.json`, the tables `leave_future_out.json` and `forecasts.json` in MLflow's form, and the plots."""
    indented = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS
    (folder / "scaling.json").write_bytes(orjson.dumps(report.as_json(), option=indented))
    for name, rows in (
        ("leave_future_out", list(report.future_rows())),
        ("forecasts", list(report.forecast_rows())),
    ):
        if rows:
            table = {"columns": list(rows[0]), "data": [list(row.values()) for row in rows]}
            (folder / f"{name}.json").write_bytes(orjson.dumps(table))
    drawn = {"compute.png": plots.by_compute(report), "isoflop.png": plots.isoflop(report)}
    if report.future:
        drawn["leave_future_out.png"] = plots.future(report)
    for name, draw in drawn.items():
        (folder / name).write_bytes(figures.png(draw, (4,)))
