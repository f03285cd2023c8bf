"""The log of a run as lines of JSON: each has its run, and where it is of a stage, the stage and the shard."""

import json
import logging
import re
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.flows.machine import run_log
from gristmill.storage.remote.streams import ahead
from gristmill.tasks.engine import log_fields
from gristmill.tasks.engine.log_fields import JsonLines


def record(message: str) -> logging.LogRecord:
    return logging.LogRecord("tasks.some", logging.WARNING, __file__, 1, message, (), None)


@given(st.text(), st.dictionaries(st.sampled_from(["run", "stage", "shard"]), st.text() | st.integers()))
def test_a_record_is_one_line_whatever_it_says(message, fields):
    with log_fields.bound(**fields):
        line = JsonLines().format(record(message))
    assert "\n" not in line and "\r" not in line
    found = json.loads(line)
    assert found | fields == found
    assert (found["message"], found["level"], found["logger"]) == (message, "WARNING", "tasks.some")


def test_an_error_keeps_its_traceback():
    try:
        raise ValueError("no such shard")
    except ValueError as error:
        failed = logging.LogRecord(
            "a", logging.ERROR, __file__, 1, "failed", (), (ValueError, error, error.__traceback__)
        )
    found = json.loads(JsonLines().format(failed))
    assert found["error"].startswith("Traceback") and found["error"].endswith("ValueError: no such shard")


def test_fields_hold_for_their_block_and_in_the_threads_that_fetch_ahead():
    def fetch(stop: threading.Event) -> dict:
        return log_fields.current()

    with log_fields.bound(run="a", shard=1):
        with log_fields.bound(shard=2):
            assert list(ahead(iter([fetch, fetch]))) == [{"run": "a", "shard": 2}] * 2
        assert log_fields.current() == {"run": "a", "shard": 1}
    assert log_fields.current() == {}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_runs_log(runs, recipe):
    """Each line of a corpus that two Dask workers make."""
    corpus = {"name": "logged", "sources": recipe["sources"][:1], "steps": recipe["steps"][:2], "seed": 3, "limit": 40}
    runs.run("logged", ("corpus", corpus), log_format="json")
    lines = [json.loads(line) for line in runs.log("logged").splitlines() if not line.startswith("=== ")]
    assert {"time", "level", "logger", "message", "run"} <= set.intersection(*(set(line) for line in lines))
    assert len({line["run"] for line in lines}) == 1
    staged = {line["stage"] for line in lines if "stage" in line}
    assert staged == set(runs.stages("logged"))
    ends = [line for line in lines if re.search(r": made in ", line["message"])]
    assert {line["stage"].split("-")[0] for line in ends} == {line["message"].split(":")[0] for line in ends} != set()
    assert {line["recipe"] for line in lines if "stage" in line} == {"logged"}


def test_what_a_library_repeats_is_said_once_in_our_words(caplog):
    asking = logging.getLogger("asking.again")
    for _ in range(2):
        run_log.say_once("asking.again", "Retrying", "the server does not answer")
    with caplog.at_level(logging.DEBUG):
        for number in range(3):
            asking.warning("Retrying %d", number)
        asking.warning("another line")
        asking.debug("one for its authors")
    assert [record.getMessage() for record in caplog.records] == ["the server does not answer", "another line"]
