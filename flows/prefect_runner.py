"""Each stage as one Prefect task, with its progress and its counts as artifacts."""

import flows.prefect_env  # noqa: F401, I001  (before anything imports prefect)

# isort: split
import contextlib
import logging
import time
from collections.abc import Iterator
from contextvars import ContextVar
from functools import partial
from types import TracebackType
from typing import cast
from uuid import UUID

from prefect import task
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.cache_policies import NO_CACHE
from prefect.logging import get_run_logger
from rich.progress import TaskID

from flows.child_processes import child_process_cleanup
from flows.context import RunContext, job_options
from flows.machine import MachineSettings
from flows.prefect_artifacts import artifact_key, publish_stage
from flows.prefect_names import stage_name
from flows.progress_bar import progress_bar
from tasks.engine import options
from tasks.engine.executors import Executor, executor
from tasks.engine.make import StageResult, find_or_make
from tasks.engine.spec import StageSpec

_PROGRESS_SECONDS = 2.0

_current: ContextVar[RunContext | None] = ContextVar("run_context", default=None)


@contextlib.contextmanager
def run_context() -> Iterator[RunContext]:
    """The context of the run; the outermost flow opens it, starts the executor and ends it."""
    if (open_one := _current.get()) is not None:
        yield open_one
        return
    settings = MachineSettings()
    options.configure(job_options(settings))
    with child_process_cleanup(), executor(settings.executor, settings.workers, settings.dask_address) as workers:
        context = RunContext(settings, partial(_build, settings.home, workers))
        token = _current.set(context)
        try:
            yield context
        finally:
            _current.reset(token)


def _build(home: str, executor: Executor, spec: StageSpec) -> StageResult:
    """Find or make a stage as a Prefect task that is named after the recipe and the stage."""
    name = stage_name(spec)

    # a task without arguments, since Prefect would search all manifests in them for futures
    @task(
        name=spec.name,
        task_run_name=f"{name}-{spec.key}",
        tags=["gristmill", f"stage:{spec.name}"],
        persist_result=False,
        cache_policy=NO_CACHE,
    )
    def run() -> StageResult:
        log = get_run_logger()
        started = time.monotonic()
        stage = find_or_make(home, spec, executor, lambda: ProgressReporter(spec.name, name, executor, log))
        if stage.reused:
            log.info("%s: reused %s", stage.name, stage.folder)
        else:
            log.info("%s: made %s in %.1f s", stage.name, stage.folder, time.monotonic() - started)
        publish_stage(name, stage)
        return stage

    return run()


class ProgressReporter:
    """Progress of a stage on the terminal and as a Prefect artifact, and its workers' lines in the run's log.

    `name`: of the stage, for the terminal; `recorded`: by recipe and stage, for Prefect.
    """

    def __init__(
        self, name: str, recorded: str, executor: Executor, log: logging.Logger | logging.LoggerAdapter
    ) -> None:
        self.name = name
        self._recorded = recorded
        self._messages = executor.messages
        self._log = log
        self._artifact: UUID | None = None
        self._updated = 0.0
        self._task: TaskID | None = None
        self._total = self._done = 0
        self._bar = progress_bar()

    def __enter__(self) -> "ProgressReporter":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        if self._artifact is not None and kind is None:
            update_progress_artifact(self._artifact, progress=100.0)

    def phase(self, phase: str, total: int) -> None:
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(f"{self.name} {phase}", total=total)
        self._total, self._done = total, 0
        self._update(f"{phase}: {total} jobs")

    def advance(self, found: bool) -> None:
        assert self._task is not None, "a phase has begun"
        self._bar.advance(self._task)
        self._done += 1
        self.drain()
        if time.monotonic() - self._updated > _PROGRESS_SECONDS:
            self._update("")

    def message(self, line: str) -> None:
        self._log.info(line)

    def drain(self) -> None:
        """Hand the workers' lines to the run's log, in this thread, which knows the run."""
        while not self._messages.empty():
            level, line = self._messages.get()
            self._log.log(level, line)

    def _update(self, description: str) -> None:
        percent = 100.0 * self._done / self._total if self._total else 0.0
        if self._artifact is None:
            artifact = create_progress_artifact(
                key=artifact_key("progress", self._recorded),
                progress=percent,
                description=f"{self.name} {description}",
            )
            self._artifact = cast(UUID, artifact)  # no coroutine, as no event loop runs in this thread
        else:
            update_progress_artifact(self._artifact, progress=percent)
        self._updated = time.monotonic()
