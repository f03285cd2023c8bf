"""What a run took, against the figures that a training writes, added up by hand; and counters that begin again."""

import pytest

from gristmill.flows.reports.run.bill import training_bill
from gristmill.training.step import monitor


def lines(**more):
    """Three readings of two steps each, of 100 tokens, at 50, 100 and 200 tokens a second: 4 + 2 + 1 seconds."""
    metrics = [{"step": step, "train/tokens": 100.0 * step} for step in range(1, 7)]
    speeds = [50.0, 50.0, 100.0, 100.0, 200.0, 200.0]
    timing = [
        {"step": step, "train/tokens_per_second": speed, "system/processes": 4.0, "system/cpu_percent": 50.0} | more
        for step, speed in enumerate(speeds, 1)
    ]
    return metrics, timing


def test_time_and_cores_of_a_training():
    found = training_bill(*lines())
    assert found.hours * 3600 == pytest.approx(2 + 2 + 1 + 1 + 0.5 + 0.5)
    assert found.core_hours * 3600 == pytest.approx(7 * 4 * 0.5)
    assert (found.processes, found.gpu_hours, found.kilowatt_hours) == (4, 0, None)


def test_gpus_and_energy():
    found = training_bill(*lines(**{"system/gpu_memory_peak_gib": 1.0, "system/gpu_watts": 500.0}))
    assert found.gpu_hours == pytest.approx(4 * found.hours)
    assert found.kilowatt_hours == pytest.approx(7 * 4 * 500 / 3.6e6)
    both = training_bill(*lines(**{"system/package_watts": 100.0}))
    assert both.kilowatt_hours == pytest.approx(7 * 100 / 3.6e6)


def test_a_training_of_before_has_no_bill():
    metrics, timing = lines()
    for line in timing:
        del line["system/processes"]
    assert training_bill(metrics, timing) is None


def counter(folder, name, microjoules):
    folder.mkdir(exist_ok=True)
    (folder / "name").write_text(f"{name}\n")
    (folder / "energy_uj").write_text(f"{microjoules}\n")
    (folder / "max_energy_range_uj").write_text("1000000000\n")


def test_watts_of_all_packages_also_where_a_counter_begins_again(tmp_path, monkeypatch):
    import torch

    now = iter([0.0, 10.0, 30.0])
    monkeypatch.setattr(monitor.time, "perf_counter", lambda: next(now))
    counter(tmp_path / "intel-rapl:0", "package-0", 5_000_000)
    counter(tmp_path / "intel-rapl:1", "package-1", 999_000_000)
    counter(tmp_path / "intel-rapl:0:0", "core", 7)  # a part of the first, and in it
    found = monitor.Power(torch.device("cpu"), tmp_path)
    counter(tmp_path / "intel-rapl:0", "package-0", 105_000_000)
    counter(tmp_path / "intel-rapl:1", "package-1", 49_000_000)  # 50 J later, from its range on
    assert found() == {"system/package_watts": pytest.approx((100 + 50) / 10)}
    counter(tmp_path / "intel-rapl:0", "package-0", 305_000_000)
    assert found() == {"system/package_watts": pytest.approx(200 / 20)}


def test_without_counters_nothing_is_said(tmp_path):
    import torch

    assert monitor.Power(torch.device("cpu"), tmp_path / "none")() == {}
