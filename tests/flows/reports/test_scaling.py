"""The report of a scaling law, as files: JSON that any reader takes, and plots."""

import orjson
import pytest
from lxml import html

from gristmill.flows.experiments.scaling.report import CheckedForecast, GridRun, ScalingReport
from gristmill.flows.experiments.scaling.tracking import description, write_artifacts
from gristmill.flows.stats.law import check, fit, forecast
from tests.flows.scaling.grids import LAWS, simulated


@pytest.mark.slow
def test_a_report_is_written_whole(tmp_path):
    runs = simulated(LAWS[0], 0.005, 0)
    grid = tuple(
        GridRun(int(n), int(n) // 2, int(d), float(6 * n * d), 0.01, 0, float(loss), f"{at:016x}")
        for at, (n, d, loss) in enumerate(zip(runs.parameters, runs.tokens, runs.loss, strict=True))
    )
    claim = forecast(fit(runs), tuple(run.key for run in grid), 800_000, 2_500_000, 10.0, 0.9)
    came = CheckedForecast("f" * 16, claim, "run", False, check(claim.loss, float(LAWS[0].loss(8e5, 2.5e6))))
    report = ScalingReport("law", "0" * 16, grid, ("web",), (1e13,), (), (came,))
    write_artifacts(tmp_path, report)
    written = orjson.loads((tmp_path / "scaling.json").read_bytes())
    assert written["law"]["alpha"]["low"] < LAWS[0].alpha < written["law"]["alpha"]["high"]
    assert len(written["leave_future_out"]) == len(report.future) > 0
    assert written["forecasts"][0]["inside"] is came.check.inside
    page = html.fromstring((tmp_path / "scaling.html").read_bytes())
    assert len(page.xpath("//*[local-name()='svg']")) == 3 and report.sentence in page.text_content()
    assert "came" in description(report)
