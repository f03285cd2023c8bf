"""Forecasts against what came."""

import pytest

from gristmill.flows.stats.law import Interval, check, fit, forecast
from tests.flows.scaling.grids import LAWS, simulated


@pytest.mark.parametrize(
    ("loss", "inside", "outside"),
    [(1.0, True, 0), (1.1, True, 0), (0.9, True, 0), (1.21, False, 0.1), (0.81, False, 0.1)],
)
def test_a_loss_is_inside_or_outside_by_so_much(loss, inside, outside):
    found = check(Interval(1.0, 0.9, 1.1, 0.9), loss)
    assert (found.inside, found.loss) == (inside, loss)
    assert found.outside == pytest.approx(outside)
    assert found.error == pytest.approx(1 / loss - 1)


def test_a_forecast_is_the_fits_prediction_and_names_its_runs():
    fitted = fit(simulated(LAWS[0], 0.01, 0))
    made = forecast(fitted, ("b", "a"), 800_000, 2_500_000, 10.0, 0.9)
    assert made.loss == fitted.prediction(800_000, 2_500_000)
    assert made.runs == ("a", "b")
    assert made.loss.low < made.loss.value < made.loss.high
    assert fitted.prediction(800_000, 2_500_000, 0.5).low > made.loss.low
