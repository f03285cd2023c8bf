"""Each stage as one Prefect task, with its progress and its counts as artifacts."""

import flows.prefect_env  # noqa: F401, I001  (before anything imports prefect)

# isort: split
import contextlib
import time
from collections.abc import Iterator
from contextvars import ContextVar
from functools import partial

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.logging import get_run_logger

from flows.check.run import before_run
from flows.context import RunContext, job_options
from flows.kernel_compilation import compile_kernels
from flows.machine import MachineSettings
from flows.prefect_artifacts import progress_artifact, publish_stage
from flows.prefect_flow import cancellable, unless_cancelled
from flows.prefect_names import stage_name
from flows.progress import ProgressReporter, ended
from flows.recipe import Recipe
from flows.runs import LastRun
from tasks.engine import options
from tasks.engine.executors import Executor, deferred
from tasks.engine.make import StageResult, find_or_make
from tasks.engine.spec import StageSpec

_current: ContextVar[RunContext | None] = ContextVar("run_context", default=None)


@contextlib.contextmanager
def run_context(recipe: Recipe) -> Iterator[RunContext]:
    """The context of the run; the outermost flow opens it, checks the recipe, starts the executor and ends it."""
    if (open_one := _current.get()) is not None:
        yield open_one
        return
    settings = MachineSettings()
    before_run(recipe, settings)
    options.configure(job_options(settings))
    with deferred(settings.executor, settings.workers, settings.dask_address) as workers:
        context = RunContext(settings, partial(_build, settings.home, workers, LastRun(settings.home, recipe.name)))
        token = _current.set(context)
        try:
            yield context
        finally:
            _current.reset(token)


def _build(home: str, executor: Executor, last_run: LastRun, spec: StageSpec) -> StageResult:
    """Find or make a stage as a Prefect task that is named after the recipe and the stage."""
    last_run.add(spec)
    name = stage_name(spec)

    # a task without arguments, since Prefect would search all manifests in them for futures
    @task(
        name=spec.name,
        task_run_name=f"{name}-{spec.key}",
        tags=["gristmill", f"stage:{spec.name}"],
        persist_result=False,
        cache_policy=NO_CACHE,
    )
    @cancellable
    def run() -> StageResult:
        log = get_run_logger()
        started = time.monotonic()

        def progress() -> ProgressReporter:
            compile_kernels(log.info)
            return ProgressReporter(spec, executor, log, record)

        record = progress_artifact(name)
        stage = find_or_make(home, spec, executor, progress)
        log.info("%s", ended(stage, time.monotonic() - started))
        publish_stage(name, stage)
        return stage

    return unless_cancelled(run())
