"""A plan of a recipe whose run is finished: its vocabulary, tokens and gradient noise are those of the run."""

import gristmill
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.reports.finished import finished
from gristmill.storage import checked_json, files


def test_a_plan_of_a_finished_run(undisturbed, recipe):
    settings = MachineSettings(home=str(undisturbed.home("undisturbed")))
    made = gristmill.plan(recipe, "h100", 1, settings=settings)
    report = finished(recipe, settings)
    mixture = checked_json.read(files.join(report.data.mixture.folder, "mixture.json"))
    assert made.vocab_size == mixture["vocab_size"]
    assert made.parameters == report.result["parameters"]
    assert made.bill.corpus is not None
    noise = [line["train/noise_scale"] for line in report.metrics if "train/noise_scale" in line]
    assert (made.ramp is None) == (not noise)
    assert not any("no finished run" in remark for remark in made.remarks)
