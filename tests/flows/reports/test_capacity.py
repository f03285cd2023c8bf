"""The capacity of a crawl follows from what the files of a run say."""

import json

import pytest

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.reports.capacity import capacity
from gristmill.flows.reports.finished import finished


def test_a_crawl_of_ten_times_the_documents_takes_ten_times_as_much(undisturbed, recipe):
    path = undisturbed.write(recipe)
    report = finished(str(path), MachineSettings(home=str(undisturbed.home("undisturbed"))))
    pages = report.steps[0].documents_in
    found = capacity(report, 10 * pages, core_hour=36.0, terabyte_month=1e6)
    fixed = {"perplexity_model", "quality_model", "tokenizer"}
    hours = size = 0.0
    for name, folder in undisturbed.stages("undisturbed").items():
        stage = name.rpartition("-")[0]
        if stage == "model":
            continue
        factor = 1 if stage in fixed else 10
        hours += factor * json.loads((folder / "cost.json").read_text())["cpu_seconds"] / 3600
        parts = json.loads((folder / "manifest.json").read_text())["parts"]
        size += factor * parts["bytes"]
    assert found.measured == pages and found.unmeasured == ()
    assert found.core_hours == pytest.approx(hours) and found.bytes == pytest.approx(size, abs=20)
    assert found.computing == pytest.approx(36 * hours) and found.storing == pytest.approx(size / 1e6)
    assert found.stages[0].documents_in == 10 * pages
    assert found.tokens == 10 * report.tokens
