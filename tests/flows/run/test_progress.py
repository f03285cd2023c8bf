"""What a stage says of itself: when it starts, while it runs, when it ends."""

import builtins
import contextlib
import contextvars
import importlib
import io
import logging
import os
import pty
import re
import subprocess
import sys
import termios
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.logging import RichHandler

from gristmill.flows.run import progress
from gristmill.flows.run.progress import PhaseRates, ProgressReporter, duration, ended
from gristmill.tasks.engine import log_fields
from gristmill.tasks.engine.executors import Threads, executor
from gristmill.tasks.engine.jobs import JobResult
from gristmill.tasks.engine.log_fields import JobProgress
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


@settings(max_examples=50)
@given(st.data())
def test_time_left_is_that_of_the_bytes_where_they_are_known(data):
    """All jobs read a thousand bytes a second, one after the other, some were found done; what they tell is right, or a
    little more than their size."""
    now = 0.0
    sizes = data.draw(st.lists(st.integers(1, 10**6), min_size=1, max_size=9))
    rates = PhaseRates("extract", len(sizes), lambda: now, sizes.__getitem__, sum(sizes))
    found = data.draw(st.integers(0, len(sizes) - 1))
    for number in range(found):
        rates.add(job(5, 0, found=True), number)
    assert rates.seconds_left is None and rates.jobs == found
    read = sum(sizes[:found])
    for number in range(found, len(sizes)):
        now += sizes[number] / 2000
        rates.take(number, JobProgress(3, sizes[number] // 2))
        half = read + sizes[number] // 2
        assert rates.read_so_far == half and number <= rates.jobs < number + 1
        if half > sum(sizes[:found]):
            left = (sum(sizes) - half) / ((half - sum(sizes[:found])) / now)
            assert rates.seconds_left == pytest.approx(left)
        assert rates.documents_so_far == 7 * (number - found) + 3
        rates.take(number, JobProgress(6, sizes[number] + 999))
        assert rates.read_so_far == read + sizes[number] and rates.jobs < number + 1
        now += sizes[number] / 2000
        rates.add(job(7, 0), number)
        read += sizes[number]
        assert rates.read_so_far == read and rates.jobs == number + 1
        assert rates.seconds_left == pytest.approx((sum(sizes) - read) / 1000, abs=1e-6)
    assert str(rates).startswith(f"{sum(sizes) / 1e6:,.0f} of {sum(sizes) / 1e6:,.0f} MB read, ")


def test_the_last_seconds_are_not_counted():
    """One job of two workers' last ones: by the rate it has .2 s left, and it takes what it takes."""
    now = 0.0
    rates = PhaseRates("work", 11, lambda: now)
    for _ in range(10):
        now += 0.2
        rates.add(job(0, 0))
    assert str(rates) == "seconds left"


LOGGED = """
import logging, sys, time
import gristmill.flows.run.flow  # which sets up the lines of the log
from prefect.logging.configuration import setup_logging
from gristmill.flows.run.progress import progress_bar

setup_logging()
log = logging.getLogger("prefect.flow_runs")
with progress_bar() as bar:
    task = bar.add_task("words count", total=4)
    for number in range(4):
        time.sleep(0.3)
        log.warning("words: line %d", number)
        bar.update(task, advance=1)
log.warning("words: the end")
"""


@pytest.mark.extended
def test_bars_and_lines_of_the_log_have_rows_of_their_own(tmp_path):
    """In a terminal of 80 columns: each line of the log begins its row, whatever the bar has drawn there."""
    shown = screen([sys.executable, "-c", LOGGED], {"GRISTMILL_HOME": str(tmp_path)})
    lines = [line for line in shown if "words: " in line]
    assert [line[9:] for line in lines] == [f"WARNING words: line {number}" for number in range(4)] + [
        "WARNING words: the end"
    ]


def screen(command: list[str], settings: dict[str, str]) -> list[str]:
    """The rows that a program leaves in a terminal of 80 columns, as a terminal interprets what it writes."""
    leader, follower = pty.openpty()
    termios.tcsetwinsize(follower, (40, 80))
    with subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=follower, env=os.environ | settings | {"TERM": "xterm"}
    ) as program:
        os.close(follower)
        written = b""
        with contextlib.suppress(OSError):  # the terminal is closed
            while more := os.read(leader, 65536):
                written += more
    os.close(leader)
    assert program.returncode == 0, written.decode()
    rows, at = [""], 0
    for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+", written.decode()):
        if part == "\n":
            at += 1
            rows += [""] * (at == len(rows))
        elif part == "\x1b[2K":
            rows[at] = ""
        elif moved := re.fullmatch(r"\x1b\[(\d*)A", part):
            at -= int(moved[1] or 1)
        elif not part.startswith(("\x1b", "\r")):
            rows[at] += part
    return rows


def test_durations():
    assert [duration(s) for s in (2.44, 9.96, 59.6, 65, 12000)] == ["2.4 s", "10.0 s", "1:00", "1:05", "3:20:00"]


def work(folder, number):
    return {"rows_in": 10} if number == 0 or time.sleep(2.5) is None else {}


def body(phases, record, places):
    """Count words."""
    phases.map("count", work, {0: {}, 1: {}})
    return {}


@pytest.mark.extended
def test_a_stage_says_when_it_starts_and_what_it_is_at_without_a_terminal(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(progress, "FIRST_SECONDS", 1.0)
    log, recorded, servers = logging.getLogger("tests.progress"), [], set()
    caplog.set_level(logging.INFO, "tests.progress")
    log.addFilter(lambda line: servers.add(SERVER.get()) is None)  # Prefect looks its server up in the context
    SERVER.set("the flow's")
    spec = StageSpec(name="words", version=1, body=body, record=Name(corpus="x"), inputs={})
    workers = Threads(1, None)
    with progress.ProgressReporter(spec, Listening(), log, recorded.append) as shown:
        shown.message("waiting")
    assert caplog.messages == ["waiting"] and recorded == []
    caplog.clear()
    made = find_or_make(str(tmp_path), spec, workers, lambda: ProgressReporter(spec, Listening(), log, recorded.append))
    first, *lines = caplog.messages
    assert first == "words: count words (count: 2 jobs)"
    assert lines and all(line.startswith("words count: 1/2 jobs, ") and line.endswith("seconds left") for line in lines)
    assert "documents/s" in lines[0]
    assert servers == {"the flow's"}
    assert recorded[0] == 0.0 and recorded[-1] == 100.0
    assert ended(made, 2.5) == f"words: made in 2.5 s: {made.folder}"


def slow(folder, number):
    report = log_fields.ProgressReport()
    for documents in range(1, 6):
        report.send(documents, documents << 20)
        time.sleep(0.5)
    return {"rows_in": 6}


def slow_body(phases, record, places):
    """Read a file."""
    phases.map("read", slow, {0: {}}, size=lambda number: 6 << 20)
    return {}


@pytest.mark.extended
def test_a_job_that_runs_moves_the_bar_and_the_lines(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0.5)
    log, recorded = logging.getLogger("tests.progress"), []
    caplog.set_level(logging.INFO, "tests.progress")
    with executor("serial") as workers:
        spec = StageSpec(name="words", version=1, body=slow_body, record=Name(corpus="x"), inputs={})
        find_or_make(str(tmp_path), spec, workers, lambda: ProgressReporter(spec, workers, log, recorded.append))
    first, *lines = caplog.messages
    assert first == "words: read a file (read: 1 job)"
    shown = re.compile(r"words read: 0/1 jobs, \d\.\d s so far, [1-5] of 6 MB read, ")
    assert lines and all(shown.match(line) for line in lines)
    assert re.search(r", [1-5] documents, ", lines[-1])


class Listening(Threads):
    """Workers that have nothing to say."""

    def __init__(self) -> None:
        import queue

        super().__init__(1, queue.SimpleQueue())


DISPLAY = """
shown = []

def display(*things, **settings):
    shown.extend(things)
"""
WIDGETS = """
class Output:
    opened, closed = [], []

    def __enter__(self):
        self.opened.append(self)

    def __exit__(self, *error):
        pass

    def clear_output(self, wait=False):
        pass

    def close(self):
        self.closed.append(self)
"""


class ZMQInteractiveShell:
    """By this name a kernel of Jupyter is known."""


@pytest.mark.parametrize("has_widgets", [True, False])
def test_a_notebook_has_bars_where_it_has_widgets(tmp_path, monkeypatch, has_widgets):
    """With modules of the names that rich asks for; Jupyter itself is no dependency of the tests."""
    (tmp_path / "IPython").mkdir()
    (tmp_path / "IPython/__init__.py").touch()
    (tmp_path / "IPython/display.py").write_text(DISPLAY)
    if has_widgets:
        (tmp_path / "ipywidgets.py").write_text(WIDGETS)
    for name in ("IPython", "IPython.display", "ipywidgets"):  # other tests may have imported the real ones
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    handler = RichHandler(console=Console(file=io.StringIO(), force_jupyter=False))
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    before = handler.console
    with progress.progress_bar() as bar:
        assert bar.disable != has_widgets and handler.console is before
        bar.update(bar.add_task("stage", total=2), advance=1)
        bar.refresh()
    assert handler.console is before
    if has_widgets:
        ipywidgets = importlib.import_module("ipywidgets")
        display = importlib.import_module("IPython.display")
        [widget] = ipywidgets.Output.closed
        assert widget in display.shown and widget in ipywidgets.Output.opened
    for name in ("IPython", "IPython.display", "ipywidgets"):
        sys.modules.pop(name, None)
