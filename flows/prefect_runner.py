"""One stage as one Prefect task: reused if it is finished, else worked on shard by shard, checked, and told of."""

import flows.prefect_env  # noqa: F401, I001  (before anything imports prefect)

# isort: split
import contextlib
import logging
import time
from collections.abc import Iterator
from contextvars import ContextVar
from functools import partial

from prefect import task
from prefect.artifacts import create_progress_artifact, create_table_artifact, update_progress_artifact
from prefect.cache_policies import NO_CACHE
from prefect.logging import get_run_logger

from flows.child_processes import child_process_cleanup
from flows.context import PhaseRunner, RunContext, StageResult, StageSpec, step_counts, told
from flows.machine import MachineSettings
from flows.progress_bar import progress_bar
from storage import layout
from storage.remote import retry
from tasks.engine.executors import Executor, executor

_PROGRESS_SECONDS = 2.0


_current: ContextVar[RunContext | None] = ContextVar("workshop", default=None)


@contextlib.contextmanager
def context() -> Iterator[RunContext]:
    """The run's context; the outermost flow opens it, starts the executor and closes it."""
    if (open_one := _current.get()) is not None:
        yield open_one
        return
    settings = MachineSettings()
    retry.configure(settings.remote_io)
    with child_process_cleanup(), executor(settings.executor, settings.workers, settings.dask_address) as workers:
        token = _current.set(RunContext(settings, partial(build, settings.home, workers)))
        try:
            yield _current.get()
        finally:
            _current.reset(token)


def build(home: str, executor: Executor, made: StageSpec) -> StageResult:
    """Run a stage as a Prefect task named after it."""
    name = made.stage.name

    # a task without arguments, since Prefect would search all manifests in them for futures
    @task(
        name=name,
        task_run_name=f"{name}-{made.stage.key}",
        tags=["gristmill", f"stage:{name}"],
        persist_result=False,
        cache_policy=NO_CACHE,
    )
    def run() -> StageResult:
        return _find_or_make(home, executor, made)

    return run()


def _find_or_make(home: str, executor: Executor, made: StageSpec) -> StageResult:
    log = get_run_logger()
    folder = made.stage.folder(home)
    found = layout.manifest(folder)
    if found is not None:
        layout.check(folder, found)
        log.info("%s: reused %s", made.stage.name, folder)
        built = StageResult(made.stage, folder, found, reused=True)
    else:
        started = time.monotonic()
        with ProgressReporter(made.stage.name, executor, log) as progress:
            record = made.body(PhaseRunner(folder, made.stage.code, executor, progress))
            progress.drain()
        manifest = layout.finish(folder, made.stage, record)
        log.info("%s: made %s in %.1f s", made.stage.name, folder, time.monotonic() - started)
        built = StageResult(made.stage, folder, manifest, reused=False)
    _tell_yield(built)
    return built


def _tell_yield(built: StageResult) -> None:
    rows = [
        {
            "step": told(step)[0],
            "documents in": step["rows_in"],
            "documents out": step["rows_out"],
            "kept %": round(100 * step["rows_out"] / step["rows_in"], 2) if step["rows_in"] else None,
            "top reasons": told(step)[1],
        }
        for step in step_counts(built)
    ] or [{"record": name, "value": str(value)[:400]} for name, value in built.manifest.items() if name != "shards"]
    create_table_artifact(
        key=f"yield-{built.name.replace('_', '-')}",
        table=rows,
        description=f"{built.name} {'reused' if built.reused else 'made'}: `{built.folder}`",
    )


class ProgressReporter:
    """Progress of a stage on the terminal and as a Prefect artifact, and its workers' lines in the run's log."""

    def __init__(self, name: str, executor: Executor, log: logging.Logger):
        self.name = name
        self._messages = executor.messages
        self._log = log
        self._artifact = None
        self._told = 0.0
        self._task = None
        self._total = self._done = 0
        self._bar = progress_bar()

    def __enter__(self) -> "ProgressReporter":
        self._bar.start()
        return self

    def __exit__(self, *exc) -> None:
        self._bar.stop()
        if self._artifact is not None and exc[0] is None:
            update_progress_artifact(self._artifact, progress=100.0)

    def phase(self, phase: str, total: int) -> None:
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(f"{self.name} {phase}", total=total)
        self._total, self._done = total, 0
        self._tell(f"{phase}: {total} shards")

    def advance(self, found: bool) -> None:
        self._bar.advance(self._task)
        self._done += 1
        self.drain()
        if time.monotonic() - self._told > _PROGRESS_SECONDS:
            self._tell("")

    def say(self, line: str) -> None:
        self._log.info(line)

    def drain(self) -> None:
        """Hand the workers' lines to the run's log, in this thread, which knows the run."""
        while not self._messages.empty():
            level, line = self._messages.get()
            self._log.log(level, line)

    def _tell(self, description: str) -> None:
        percent = 100.0 * self._done / self._total if self._total else 0.0
        if self._artifact is None:
            self._artifact = create_progress_artifact(
                key=f"progress-{self.name.replace('_', '-')}",
                progress=percent,
                description=f"{self.name} {description}",
            )
        else:
            update_progress_artifact(self._artifact, progress=percent)
        self._told = time.monotonic()
