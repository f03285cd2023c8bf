"""Forecasts in a real MLflow database: registered before a run, refused after it, checked against what came."""

import pytest
from mlflow import MlflowClient

from gristmill.flows.experiments.scaling.tracking import FORECAST_TAG, Forecasts
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.stats.law import Forecast, Interval
from gristmill.storage import files
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.phases import PhaseRunner
from gristmill.tasks.engine.spec import StageSpec
from tests.corpora import build_in


class Record(Settings):
    number: int


def nothing(phases: PhaseRunner, record: Record, places: None) -> dict:
    return {"number": record.number}


def run(number: int) -> StageSpec:
    return StageSpec(
        name="proxy", version=1, body=nothing, record=Record(number=number), inputs={}, places=lambda: None
    )


@pytest.fixture(scope="module")
def forecasts(tmp_path_factory):
    settings = MachineSettings(home=str(tmp_path_factory.mktemp("home")))
    return Forecasts(settings, "law"), settings


FORECAST = Forecast(320_560, 899_584, 13.3, Interval(2.1, 2.0, 1 / 3 + 1.9, 0.9), ("aa", "bb"))


def recorded(settings: MachineSettings, key: str):
    """The MLflow runs of a forecast."""
    client = MlflowClient(settings.tracking_uri)
    experiment = client.get_experiment_by_name("law").experiment_id
    return [one for one in client.search_runs([experiment]) if one.data.tags.get(FORECAST_TAG) == key]


@pytest.mark.extended
def test_a_forecast_is_there_before_its_run_and_checked_after_it(forecasts):
    known, settings = forecasts
    claim = known.register(run(1), FORECAST, {"learning_rate": 0.01})
    assert claim.forecast == FORECAST  # to the last digit, as MLflow has it
    assert not claim.earlier
    (one,) = recorded(settings, run(1).key)
    assert one.info.status == "SCHEDULED"
    assert {given.dataset.digest for given in one.inputs.dataset_inputs} == {"aa", "bb"}

    build_in(settings.home)(run(1))
    found = known.check(claim, 2.5)
    (one,) = recorded(settings, run(1).key)
    assert one.info.status == "FINISHED"
    assert one.info.start_time == claim.registered
    assert one.data.metrics["inside"] == 0.0
    assert one.data.metrics["outside"] == pytest.approx(2.5 / FORECAST.loss.high - 1)
    assert found.outside == one.data.metrics["outside"]
    assert known.check(claim, 2.05).inside


def test_the_first_forecast_of_a_run_counts(forecasts):
    known, settings = forecasts
    first = known.register(run(2), FORECAST, {})
    build_in(settings.home)(run(2))
    bolder = Forecast(320_560, 899_584, 13.3, Interval(2.1, 2.09, 2.11, 0.9), ("aa",))
    again = known.register(run(2), bolder, {})
    assert again.earlier
    assert again.forecast == first.forecast
    assert again.mlflow_run == first.mlflow_run
    assert len(recorded(settings, run(2).key)) == 1


def test_a_run_that_is_known_is_not_forecast(forecasts):
    known, settings = forecasts
    build_in(settings.home)(run(3))
    with pytest.raises(ValueError, match="is trained already"):
        known.register(run(3), FORECAST, {})
    files.write_bytes(files.join(run(4).folder(settings.home), "run.json"), b"{}")
    with pytest.raises(ValueError, match="is being trained already"):
        known.register(run(4), FORECAST, {})
    assert not recorded(settings, run(3).key) and not recorded(settings, run(4).key)
