"""Progress of a stage: rates and remaining time of its jobs, as a bar in a terminal and as log lines elsewhere."""

import contextlib
import contextvars
import logging
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.theme import Theme

from gristmill.flows.reports.funnel import FunnelRow, funnel_row
from gristmill.storage.printable import printable
from gristmill.tasks.engine import log_fields
from gristmill.tasks.engine.executors import Executor
from gristmill.tasks.engine.jobs import JobResult
from gristmill.tasks.engine.log_fields import JobProgress
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import Silent
from gristmill.tasks.engine.spec import StageSpec


@dataclass
class PhaseRates:
    """Rates and remaining time of a phase. Jobs that an earlier run finished are in the counts, but not in the rates.

    clock: seconds, monotonic. size: bytes that a job reads, by its number, if known; bytes: of all jobs. documents:
    that reached the jobs, if their records have them. written: bytes. `take` adds what running jobs report.
    """

    phase: str
    total: int
    clock: Callable[[], float] = time.monotonic
    size: Callable[[int], int] | None = None
    bytes: int = 0
    done: int = 0
    found: int = 0
    documents: int = 0
    written: int = 0

    def __post_init__(self) -> None:
        self.started = self.clock()
        self._read_done = self._read_found = 0
        self._running: dict[int, JobProgress] = {}

    def take(self, number: int, progress: JobProgress) -> None:
        """Record how far a running job is."""
        self._running[number] = progress

    def add(self, result: JobResult, number: int = 0) -> None:
        """Record a finished job."""
        self._running.pop(number, None)
        self.done += 1
        read = self.size(number) if self.size else 0
        self._read_done += read
        if result.found:
            self.found += 1
            self._read_found += read
            return
        record = result.record
        self.documents += record.get("rows_in", record.get("documents", 0))
        self.written += sum(facts["bytes"] for facts in result.files.values())

    @property
    def jobs(self) -> float:
        """Finished jobs, plus for each running job the share of its bytes that it has read."""
        return self.done + sum(self._part(number, reported) for number, reported in [*self._running.items()])

    def _part(self, number: int, reported: JobProgress) -> float:
        size = self.size(number) if self.size else 0
        return min(reported.read / size, 0.999) if size else 0.0

    @property
    def documents_so_far(self) -> int:
        return self.documents + sum(reported.documents for reported in [*self._running.values()])

    @property
    def read_so_far(self) -> int:
        """Bytes read, at most the size of each job."""
        running = sum(
            min(reported.read, self.size(number)) for number, reported in [*self._running.items()] if self.size
        )
        return self._read_done + running

    @property
    def seconds_left(self) -> float | None:
        """Estimate from the bytes read so far if sizes are known, else from the finished jobs; None before the
        first."""
        seconds = self.clock() - self.started
        if self.bytes:
            read = self.read_so_far
            new_bytes = read - self._read_found
            return (self.bytes - read) * seconds / new_bytes if new_bytes > 0 else None
        new_bytes = self.done - self.found
        return (self.total - self.done) * seconds / new_bytes if new_bytes else None

    def __str__(self) -> str:
        """`310 of 1,024 MB read, 5,120 documents, 120 documents/s, 3.4 MB/s written, 0:12 left`, without unknown parts.
        Below ten seconds the estimate is too rough for a number."""
        seconds = max(self.clock() - self.started, 1e-9)
        documents = self.documents_so_far
        parts = []
        if self.bytes:
            parts.append(f"{self.read_so_far / 1e6:,.0f} of {self.bytes / 1e6:,.0f} MB read")
        if documents:
            parts += [f"{documents:,} documents", f"{documents / seconds:,.0f} documents/s"]
        if self.written:
            parts.append(f"{self.written / seconds / 1e6:,.1f} MB/s written")
        if self.seconds_left is not None and self.done < self.total:
            parts.append(f"{duration(self.seconds_left) if self.seconds_left >= 10 else 'seconds'} left")
        return ", ".join(parts)


def duration(seconds: float) -> str:
    """`2.4 s`, `1:05` or `3:20:00`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, whole = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{whole:02d}" if hours else f"{minutes}:{whole:02d}"


class _LogBar(Progress):
    """A bar below the log. In a terminal, Prefect's handlers write through the bar's console, which keeps the bar last.
    In a notebook the bar is a widget, and the handlers are unchanged."""

    def start(self) -> None:
        super().start()
        handlers = () if self.disable or self.console.is_jupyter else logging.getLogger().handlers
        self._consoles = {handler: handler.console for handler in handlers if hasattr(handler, "console")}
        for handler, console in self._consoles.items():
            self.console.highlighter = console.highlighter
            handler.console = self.console

    def stop(self) -> None:
        for handler, console in self._consoles.items():
            handler.console = console
        super().stop()


# Styles of Prefect's console that the bar's console lacks.
_LEVELS = Theme({"log.info_level": "cyan", "log.warning_level": "yellow3", "log.error_level": "red3"})


def progress_bar(*more: ProgressColumn) -> Progress:
    """A progress bar on the error stream of a terminal, or in a notebook with ipywidgets; else a disabled one. `more`:
    columns at its end."""
    columns = (TextColumn("  {task.description}"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(file=sys.stderr, theme=_LEVELS, markup=False, emoji=False)
    # without ipywidgets rich shows no bar in a notebook, so the log has lines
    is_shown = find_spec("ipywidgets") is not None if console.is_jupyter else sys.stderr.isatty()
    return _LogBar(*columns, *more, console=console, transient=True, disable=not is_shown)


FIRST_SECONDS, LINE_SECONDS = 10.0, 60.0  # between two log lines, in the first minute of a stage and later
RECORD_SECONDS = 2.0  # between two calls of `record`
_DRAIN_SECONDS = 1.0


class ProgressReporter:
    """Shows the progress of a stage in the terminal or the log, and passes its workers' lines to the run's log.

    `record` is called now and then with the percentage of the phase.
    """

    def __init__(
        self,
        spec: StageSpec,
        executor: Executor,
        log: logging.Logger | logging.LoggerAdapter,
        record: Callable[[float], None],
    ) -> None:
        self.name, self._summary = spec.name, spec.summary
        self._executor, self._log, self._record = executor, log, record
        self._recorded = self._lined = self._started = time.monotonic()
        self._begun = False
        self._making, self._lock = threading.Event(), threading.Lock()
        self._rates: PhaseRates | None = None
        self._task: TaskID | None = None
        self._bar = progress_bar(TextColumn("{task.fields[rates]}"))
        self._ended = threading.Event()
        # Prefect's log finds its server in the context, and would start another one without it
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._watch,), name="progress", daemon=True)

    def __enter__(self) -> "ProgressReporter":
        self._bar.start()
        self._task = self._bar.add_task(self.name, total=None, rates="")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._bar.stop()
        self.drain()
        if kind is None and self._begun:
            self._record(100.0)

    def start(self) -> None:
        self._making.set()

    def phase(self, phase: str, total: int, size: Callable[[int], int] | None = None, bytes: int = 0) -> None:
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(f"{self.name} {phase}", total=total, rates="")
        self._begin(f" ({phase}: {total:,} job{'s' * (total != 1)})")
        self._rates = PhaseRates(phase, total, size=size, bytes=bytes)
        self._lined = time.monotonic()
        self._record_now()

    def advance(self, result: JobResult, number: int) -> None:
        assert self._rates is not None, "a phase has begun"
        self.drain()  # what the job reported before it ended
        self._rates.add(result, number)
        self._show()
        if time.monotonic() - self._recorded > RECORD_SECONDS:
            self._record_now()

    def message(self, line: str) -> None:
        if self._making.is_set():
            self._begin("")
        self._log.info(line)

    def drain(self) -> None:
        """Pass the workers' lines to the run's log, and record how far their jobs are."""
        messages = self._executor.messages
        while True:
            try:
                level, line, fields = messages.get_nowait()
            except queue.Empty:
                return
            if (reported := log_fields.reported(fields)) is not None:
                if self._rates is not None and fields.get("phase") == self._rates.phase:
                    self._rates.take(fields["shard"], reported)
                continue
            with log_fields.bound(**fields):
                self._log.log(level, printable(line))

    def _begin(self, jobs: str) -> None:
        """Log the first line, which names the jobs if the first phase has begun by then."""
        with self._lock:
            if self._begun:
                return
            self._begun = True
            self._log.info("%s: %s%s", self.name, self._summary[:1].lower() + self._summary[1:], jobs)

    def _record_now(self) -> None:
        rates = self._rates
        self._record(100.0 * rates.jobs / rates.total if rates and rates.total else 0.0)
        self._recorded = time.monotonic()

    def _show(self) -> None:
        if self._rates is not None and self._task is not None:
            self._bar.update(self._task, completed=self._rates.jobs, rates=str(self._rates))

    def _watch(self) -> None:
        """Handle workers' messages during long jobs, and log a line every ten seconds or minute. Runs in a thread."""
        while not self._ended.wait(_DRAIN_SECONDS):
            self.drain()
            self._show()
            if self._making.is_set():
                self._begin("")
            now = time.monotonic()
            between = FIRST_SECONDS if now - self._started < LINE_SECONDS else LINE_SECONDS
            if self._bar.disable and now - self._lined > between:
                self._lined = now
                self._log.info("%s", self._line())

    def _line(self) -> str:
        since = duration(time.monotonic() - self._started)
        if self._rates is None:
            return f"{self.name}: {since} so far"
        rates = self._rates
        text = str(rates)
        return f"{self.name} {rates.phase}: {rates.done:,}/{rates.total:,} jobs, {since} so far" + (
            f", {text}" if text else ""
        )


class BatchReporter:
    """One progress bar for all stages of one name that are made at the same time."""

    def __init__(self, name: str, total: int, log: logging.Logger | logging.LoggerAdapter) -> None:
        self._name, self._total, self._log = name, total, log
        self._bar = progress_bar()

    def __enter__(self) -> "BatchReporter":
        self._bar.start()
        self._task = self._bar.add_task(self._name, total=self._total)
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def advance(self) -> None:
        """Count one more finished stage."""
        self._bar.update(self._task, advance=1)

    @contextlib.contextmanager
    def stage(self) -> Iterator["StageLines"]:
        """The progress of one stage."""
        yield StageLines(self._log)


class StageLines(Silent):
    """Progress of a stage of which only messages are shown."""

    def __init__(self, log: logging.Logger | logging.LoggerAdapter) -> None:
        self._log = log

    def message(self, line: str) -> None:
        self._log.info(line)


def ended(stage: StageResult, seconds: float) -> str:
    """The last line of a stage: reused or made, and how many documents it kept."""
    how = "reused" if stage.reused else f"made in {duration(seconds)}:"
    rows = [funnel_row(count) for count in stage.step_counts]
    return f"{stage.name}: {how} {stage.folder}" + (f", {_kept(rows)}" if rows else "")


def _kept(rows: list[FunnelRow]) -> str:
    """`186 documents in, 150 kept (80.6%), most dropped by gopher_quality.min_words (20)`."""
    arrived, remaining = rows[0].documents_in, rows[-1].documents_out
    line = f"{arrived:,} documents in, {remaining:,} kept"
    if arrived:
        line += f" ({remaining / arrived:.1%})"
    drops = {f"{row.step}.{rule}": count for row in rows for rule, count in row.drops.items() if count}
    if drops:
        rule, count = max(drops.items(), key=lambda item: item[1])
        line += f", most dropped by {rule} ({count:,})"
    return line
