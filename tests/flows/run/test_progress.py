"""What a stage says of itself: when it starts, while it runs, when it ends."""

import contextvars
import logging
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.flows.run import progress
from gristmill.flows.run.progress import PhaseRates, ProgressReporter, duration, ended
from gristmill.tasks.engine.executors import Threads
from gristmill.tasks.engine.jobs import JobResult
from gristmill.tasks.engine.make import find_or_make
from gristmill.tasks.engine.spec import StageSpec
from tests.corpora import Name

SERVER = contextvars.ContextVar("SERVER", default="another")


def job(documents: int, written: int, found: bool = False) -> JobResult:
    return JobResult({"rows_in": documents}, {"part": {"bytes": written}}, found)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.booleans()), min_size=1, max_size=20), st.integers(0, 20))
def test_time_left_is_that_of_the_jobs_that_were_made(jobs, waiting):
    """Jobs that take three seconds each; those that were found take none."""
    now = 0.0
    rates = PhaseRates("work", len(jobs) + waiting, lambda: now)
    for documents, found in jobs:
        now += 0 if found else 3
        rates.add(job(documents, 2 * documents, found))
    made = [documents for documents, found in jobs if not found]
    assert rates.seconds_left == (pytest.approx(3 * waiting) if made else None)
    if sum(made):
        assert f"{sum(made) / now:,.0f} documents/s, {2 * sum(made) / now / 1e6:,.1f} MB/s written" in str(rates)
    assert ("left" in str(rates)) == bool(made and waiting)


def test_durations():
    assert [duration(s) for s in (2.44, 9.96, 59.6, 65, 12000)] == ["2.4 s", "10.0 s", "1:00", "1:05", "3:20:00"]


def work(folder, number):
    return {"rows_in": 10} if number == 0 or time.sleep(2.5) is None else {}


def body(phases, record, places):
    """Count words."""
    phases.map("count", work, {0: {}, 1: {}})
    return {}


def test_a_stage_says_when_it_starts_and_what_it_is_at_without_a_terminal(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(progress, "FIRST_SECONDS", 1.0)
    log, recorded, servers = logging.getLogger("tests.progress"), [], set()
    caplog.set_level(logging.INFO, "tests.progress")
    log.addFilter(lambda line: servers.add(SERVER.get()) is None)  # Prefect looks its server up in the context
    SERVER.set("the flow's")
    spec, workers = StageSpec("words", body, Name(corpus="x"), {}), Threads(1, None)
    with progress.ProgressReporter(spec, Listening(), log, recorded.append) as shown:
        shown.message("waiting")
    assert caplog.messages == ["waiting"] and recorded == []
    caplog.clear()
    made = find_or_make(str(tmp_path), spec, workers, lambda: ProgressReporter(spec, Listening(), log, recorded.append))
    first, *lines = caplog.messages
    assert first == "words: count words (count: 2 jobs)"
    assert lines and all(line.startswith("words count: 1/2 jobs, ") and line.endswith(" left") for line in lines)
    assert "documents/s" in lines[0]
    assert servers == {"the flow's"}
    assert recorded[0] == 0.0 and recorded[-1] == 100.0
    assert ended(made, 2.5) == f"words: made in 2.5 s: {made.folder}"


class Listening(Threads):
    """Workers that have nothing to say."""

    def __init__(self) -> None:
        import queue

        super().__init__(1, queue.SimpleQueue())
