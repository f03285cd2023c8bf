"""Which stages the last runs had: what is damaged of it is named, and the rest is read; and which run is the newest."""

from datetime import datetime, timedelta

import pytest

from gristmill.flows.machine import runs
from gristmill.flows.machine.runs import RunRecorder, all_runs, recipes_by_stage, runs_of


def test_a_damaged_file_is_named_and_passed_over(tmp_path, caplog):
    record(tmp_path, "rules-1", {"name": "web"})
    (tmp_path / "runs/books").mkdir()
    (tmp_path / "runs/books/20260101-000000-000000-0001.json").write_bytes(b"{")
    assert recipes_by_stage(str(tmp_path)) == {"rules-1": ["web"]}
    [message] = caplog.messages
    assert f"{tmp_path}/runs/books/2026" in message and "\n" not in message


def record(home, stage: str, recipe: dict) -> None:
    recorder = RunRecorder(str(home), "web", flow="corpus", recipe=recipe)
    recorder.add(stage)
    recorder.finished()


@pytest.mark.parametrize("back, is_told", [(timedelta(days=400), True), (timedelta(seconds=2), False)])
def test_a_run_is_the_newest_though_the_clock_was_set_back(tmp_path, monkeypatch, caplog, back, is_told):
    class Behind(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) - back

    record(tmp_path, "rules-1", {"name": "web", "limit": 1})
    monkeypatch.setattr(runs, "datetime", Behind)
    record(tmp_path, "rules-2", {"name": "web", "limit": 2})
    assert [message for message in caplog.messages if "clock" in message and "set the clock" in message] == [
        *caplog.messages
    ]
    assert len(caplog.messages) == is_told
    record(tmp_path, "rules-3", {"name": "web", "limit": 3})
    assert [run.stages for run in runs_of(str(tmp_path), "web")] == [("rules-3",), ("rules-2",), ("rules-1",)]
    assert [run.stages for run in all_runs(str(tmp_path))] == [("rules-1",), ("rules-2",), ("rules-3",)]
    assert recipes_by_stage(str(tmp_path)) == {"rules-3": ["web"]}
