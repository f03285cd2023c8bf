"""MLflow's record of a scaling law and of forecasts.

A law is a parent run with its tables and plots, and a child for each run of the grid.

A forecast is registered before a run is trained and checked after it. It is a run of its own in the recipe's
experiment, SCHEDULED until it is checked. The tag `forecast` is the key of the stage that will hold the forecasted run,
so there is one forecast of it, and the first one counts. Its datasets are the runs that the law was fitted to, by their
keys; its start is the time of registration.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, Run, ViewType

from gristmill.flows.experiments.scaling.report import GridRun, ScalingReport, scaling_page, scaling_tables
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.run.tracking import ParentRun, TrackedExperiment
from gristmill.flows.stages.model import local_folder
from gristmill.flows.stats.law import Forecast, ForecastCheck, Interval, check
from gristmill.storage import files
from gristmill.tasks.engine.make import find
from gristmill.tasks.engine.spec import StageSpec

SCALING_TAG = "scaling"


def scaling_run(
    settings: MachineSettings, recipe: str, identity: str, params: Mapping[str, Any], datasets: list[DatasetInput]
) -> ParentRun:
    """The MLflow run of a scaling law, by the identity of its grid, in the experiment of its recipe."""
    return ParentRun(settings, recipe, (SCALING_TAG, identity), f"scaling-{identity[:8]}", params, datasets)


def log_runs(run: ParentRun, trained: tuple[GridRun, ...]) -> None:
    """Log finished runs of the grid as children, each once."""
    for one in trained:
        name = f"{one.parameters:,} parameters, {one.tokens:,} tokens, pair {one.pair}"
        params = {
            "parameters": one.parameters,
            "tokens": one.tokens,
            "learning_rate": one.learning_rate,
            "pair": one.pair,
        }
        run.log_child(name, one.key, params, {"bits_per_byte": one.loss, "flops": one.flops})


def finish(run: ParentRun, report: ScalingReport) -> str:
    """Log the law, its tables and its plots to the parent; returns its id. What was asked for this time replaces what
    an earlier command logged."""
    values = {f"law/{name}": interval.value for name, interval in report.law_intervals.items()}
    values |= {"law/deviation": report.fit.deviation, "law/alpha_non_embedding": report.alpha_non_embedding}
    if report.forecasts:
        values["forecasts/inside"] = sum(one.check.inside for one in report.forecasts) / len(report.forecasts)
    run.log(run.id, {}, values)
    return run.complete(partial(write_artifacts, report=report), description(report))


def description(report: ScalingReport) -> str:
    """The law, what leaving the future out says of it, optima and forecasts, as Markdown."""
    parts = [f"**{report.sentence}.**", "\n".join(f"- {remark}" for remark in report.remarks)]
    for sentence, table in scaling_tables(report):
        parts += [f"**{sentence}.**" * bool(sentence), table.markdown()]
    return "\n\n".join(part for part in parts if part)


def write_artifacts(folder: Path, report: ScalingReport) -> None:
    """Write `scaling.json`, the tables `leave_future_out.json` and `forecasts.json` in MLflow's form, and the
    page, `scaling.html`."""
    indented = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS
    (folder / "scaling.json").write_bytes(orjson.dumps(report.as_json(), option=indented))
    for name, rows in (
        ("leave_future_out", list(map(asdict, report.future))),
        ("forecasts", list(report.forecast_rows())),
    ):
        if rows:
            table = {"columns": list(rows[0]), "data": [list(row.values()) for row in rows]}
            (folder / f"{name}.json").write_bytes(orjson.dumps(table))
    (folder / "scaling.html").write_text(scaling_page(report), encoding="utf-8")


FORECAST_TAG = "forecast"
_MAX_INPUTS = 1000  # datasets that a server takes in one request


@dataclass(frozen=True)
class Claim:
    """A registered forecast. `registered`: when, in milliseconds since 1970, by MLflow; `earlier`: before this
    command."""

    mlflow_run: str
    forecast: Forecast
    registered: int
    earlier: bool


class Forecasts:
    """The forecasts in the experiment of a recipe."""

    def __init__(self, settings: MachineSettings, recipe: str) -> None:
        self._settings = settings
        self._experiment = TrackedExperiment(settings, recipe)
        self._client = self._experiment.client

    def register(self, run: StageSpec, forecast: Forecast, params: Mapping[str, Any]) -> Claim:
        """Register a forecast of the run that a stage will hold; `params`: of that run, for people.

        A forecast of it that was registered before is returned in its place. Raises ValueError for a run that is
        finished, or that has begun to train.
        """
        if (earlier := self._find(run.key)) is not None:
            return earlier
        folder = run.folder(self._settings.home)
        begun = files.exists(files.join(local_folder(self._settings, folder), "run.json"))
        if begun or find(self._settings.home, run) is not None:
            raise ValueError(
                f"the run of {forecast.parameters:,} parameters on {forecast.tokens:,} tokens is "
                f"{'being trained' if begun else 'trained'} already ({folder}), so it can no longer be "
                "forecast: forecast another run"
            )
        name = f"forecast-{run.key[:8]}"
        # found by its key from the last line on: one that is not whole is none
        run_id = self._experiment.create(name, {})
        claim, interval = _claim(forecast), forecast.loss
        parameters = [Param(name, str(value)) for name, value in {**claim, **params}.items()]
        self._client.log_batch(run_id, params=parameters)
        for start in range(0, len(forecast.runs), _MAX_INPUTS):
            self._client.log_inputs(run_id, [_input(key) for key in forecast.runs[start : start + _MAX_INPUTS]])
        points = {"forecast": interval.value, "forecast_low": interval.low, "forecast_high": interval.high}
        self._client.log_batch(run_id, metrics=[Metric(name, value, 0, 0) for name, value in points.items()])
        self._client.update_run(run_id, status="SCHEDULED")
        self._client.set_tag(run_id, FORECAST_TAG, run.key)
        return self._read(self._client.get_run(run_id), earlier=False)

    def check(self, claim: Claim, loss: float) -> ForecastCheck:
        """Compare the loss of the finished run with its forecast, and log how it went."""
        result = check(claim.forecast.loss, loss)
        points = {
            "bits_per_byte": result.loss,
            "inside": float(result.inside),
            "error": result.error,
            "outside": result.outside,
        }
        run = claim.mlflow_run
        self._client.log_batch(run, metrics=[Metric(name, value, 0, 0) for name, value in points.items()])
        self._client.set_tag(run, "mlflow.note.content", sentence(claim.forecast, result))
        self._client.set_terminated(run, "FINISHED")
        return result

    def _find(self, key: str) -> Claim | None:
        if (experiment := self._experiment.find()) is None:
            return None
        tagged = f"tags.`{FORECAST_TAG}` = '{key}'"
        oldest = ["attributes.start_time ASC"]
        runs = self._client.search_runs([experiment.experiment_id], tagged, ViewType.ACTIVE_ONLY, 1, oldest)
        return self._read(runs[0], earlier=True) if runs else None

    def _read(self, run: Run, earlier: bool) -> Claim:
        params = run.data.params
        interval = Interval(*(float(params[f"forecast.{name}"]) for name in ("value", "low", "high", "level")))
        inputs = run.inputs.dataset_inputs if run.inputs else []
        keys = sorted(item.dataset.digest for item in inputs)
        forecast = Forecast(
            int(params["parameters"]), int(params["tokens"]), float(params["reach"]), interval, tuple(keys)
        )
        return Claim(run.info.run_id, forecast, run.info.start_time, earlier)


def sentence(forecast: Forecast, result: ForecastCheck) -> str:
    """A forecast and what came, as one sentence."""
    claim = forecast.loss
    how = "inside" if result.inside else f"outside by {result.outside:.2%}"
    return (
        f"{forecast.parameters:,} parameters on {forecast.tokens:,} tokens: forecast {claim.value:.4f} bits per byte "
        f"({claim.level:.0%} interval {claim.low:.4f} to {claim.high:.4f}), measured {result.loss:.4f}, {how}"
    )


def _claim(forecast: Forecast) -> dict[str, Any]:
    """The params of a forecast, from which it is read again: floats with all of their digits."""
    interval = forecast.loss
    claimed = {"value": interval.value, "low": interval.low, "high": interval.high, "level": interval.level}
    return {f"forecast.{name}": repr(float(value)) for name, value in claimed.items()} | {
        "parameters": forecast.parameters,
        "tokens": forecast.tokens,
        "reach": repr(float(forecast.reach)),
        "fit.runs": len(forecast.runs),
    }


def _input(key: str) -> DatasetInput:
    source = orjson.dumps({"uri": f"stages/proxy-{key}"}).decode()
    dataset = Dataset(name="proxy", digest=key, source_type="gristmill", source=source)
    return DatasetInput(dataset, [InputTag("mlflow.data.context", "fit")])
