"""Each stage as one Prefect task, with its progress and counts as artifacts; several at a time in threads."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import StateDetails
from prefect.exceptions import TerminationSignal
from prefect.logging import get_run_logger
from prefect.runtime import flow_run, task_run
from prefect.states import Completed, State

from gristmill.flows.machine.context import RunContext, SlotSpec, job_options
from gristmill.flows.machine.context import workers as executor_of
from gristmill.flows.machine.remaking import Remaking
from gristmill.flows.machine.runs import RunRecorder, Seen
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.recipe.steps import filter_stages
from gristmill.flows.reports.finished import check_run
from gristmill.flows.run.artifacts import progress_artifact, publish_stage, stage_name
from gristmill.flows.run.flow import cancellable, unless_cancelled
from gristmill.flows.run.kernel_compilation import compile_kernels
from gristmill.flows.run.progress import BatchReporter, ProgressReporter, ended
from gristmill.tasks.engine import log_fields, options, remakes
from gristmill.tasks.engine.executors import Deferred, Executor, Threads
from gristmill.tasks.engine.make import StageResult, find, find_or_make, restore
from gristmill.tasks.engine.spec import StageSpec

# Makes one stage; `check` is called meanwhile, and raises what is to end it.
Make = Callable[[StageSpec, Callable[[], None]], StageResult]


class EndedError(RuntimeError):
    """A stage that was given up since another one, made at the same time, has failed."""


class _End:
    """Why the stages that are being made shall end, if they shall."""

    def __init__(self) -> None:
        self.why: BaseException | None = None
        self._lock = threading.Lock()

    def now(self, why: BaseException) -> None:
        with self._lock:
            self.why = self.why or why

    def check(self) -> None:
        """Raises in a stage's thread what ends it: the signal that the flow's own thread has got, or EndedError."""
        why = self.why
        if why is None:
            return
        if isinstance(why, TerminationSignal):
            raise TerminationSignal(why.signal)
        if isinstance(why, KeyboardInterrupt):
            raise KeyboardInterrupt
        raise EndedError(f"ended, because a stage that was made at the same time failed: {why}") from why


def build_at_once(make: Make, specs: Sequence[SlotSpec], most: int) -> list[StageResult]:
    """The stages in their order, at most `most` of them made at the same time.

    The first error ends the others, and is raised when they have ended; so does a signal, which Python raises in the
    flow's thread alone. What has not begun then is left.
    """
    end, slots = _End(), queue.SimpleQueue[int]()
    for slot in range(most):
        slots.put(slot)

    def one(spec: SlotSpec) -> StageResult:
        end.check()
        slot = slots.get()
        try:
            return make(spec(slot), end.check)
        except BaseException as error:
            end.now(error)  # before this thread takes up another one
            raise
        finally:
            slots.put(slot)

    with ThreadPoolExecutor(most, thread_name_prefix="stage") as pool:
        futures: list[Future[StageResult]] = []
        try:
            # Prefect's task finds its flow, and its log the server, in the context
            futures += [pool.submit(copy_context().run, one, spec) for spec in specs]
            wait(futures, return_when=FIRST_EXCEPTION)
            if end.why is not None:
                raise end.why
        except BaseException as error:
            end.now(error)
            for future in futures:
                future.cancel()
            raise
        return [future.result() for future in futures]


_current: ContextVar[RunContext | None] = ContextVar("run_context", default=None)


@contextlib.contextmanager
def run_context(recipe: Recipe) -> Iterator[RunContext]:
    """The context of the run; the outermost flow opens it, checks the recipe, starts the executor and ends it."""
    if (open_one := _current.get()) is not None:
        yield open_one
        return
    settings = MachineSettings()
    there = check_run(recipe, settings)
    options.begin_making(job_options(settings))
    with (
        log_fields.bound(run=flow_run.get_id(), recipe=recipe.name),
        executor_of(settings) as workers,
    ):
        seen = None if there else Seen(settings.home, recipe.name)
        if seen:
            get_run_logger().warning("files of the recipe are missing: using their contents as of its last run")
        flow, whole = flow_run.get_flow_name() or "", recipe.model_dump(mode="json")
        last_run = RunRecorder(settings.home, recipe.name, seen, flow, whole)
        remaking = Remaking(settings.home, [step.step for step in recipe.steps], filter_stages(recipe.steps))
        remakes.forget(settings.home)
        noted = Noted(last_run, remaking)
        task_runs: dict[str, UUID] = {}
        context = RunContext(
            settings,
            partial(_build, settings.home, workers, noted, task_runs),
            at_once=partial(_build_all, settings.home, workers, noted, task_runs),
            outside=last_run.outside,
            begin=remaking.begin,
            restore=partial(_restore, settings.home, workers),
        )
        token = _current.set(context)
        try:
            yield context
            last_run.finished()
            remaking.check()
        finally:
            remaking.report(get_run_logger())
            _current.reset(token)


class Noted(NamedTuple):
    """What is noted of the stages of a run."""

    last_run: RunRecorder
    remaking: Remaking


def _beside() -> Threads:
    """The thread that makes a stage, for its jobs."""
    return Threads(1, queue.SimpleQueue())


def _build(home: str, executor: Deferred, noted: Noted, task_runs: dict[str, UUID], spec: StageSpec) -> StageResult:
    """Find or make a stage as a Prefect task that is named after the recipe and the stage. `task_runs`: those of the
    stages so far, by their keys."""
    noted.remaking.begin(spec)
    label = spec.label(home)
    noted.last_run.add(label)
    # a training is processes of its own, for hours perhaps: workers that would wait for it are let go of
    workers = _beside() if spec.name == "model" else executor

    def progress(record: Callable[[float], None]) -> ProgressReporter:
        if workers is not executor:
            executor.release()
        compile_kernels(get_run_logger().info)
        return ProgressReporter(spec, workers, get_run_logger(), record)

    return _taken(noted, label, _as_task(home, spec, workers, progress, lambda: None, task_runs))


def _restore(home: str, executor: Deferred, stage: StageResult) -> StageResult:
    """A stage with its files."""
    if not stage.is_collected:
        return stage
    assert stage.spec is not None, "it was found by what it was asked for by"
    spec, log = stage.spec, get_run_logger()
    return restore(home, stage, executor, lambda: ProgressReporter(spec, executor, log, lambda _: None))


def _taken(noted: Noted, label: str, stage: StageResult) -> StageResult:
    """A stage of the run, which may be in another folder than the one that it was noted with: other code had begun
    that."""
    noted.last_run.replace(label, stage.label)
    if stage.reused:
        noted.remaking.reused(stage)
    return stage


def _build_all(
    home: str,
    executor: Deferred,
    noted: Noted,
    task_runs: dict[str, UUID],
    specs: Sequence[SlotSpec],
    most: Callable[[], int],
) -> list[StageResult]:
    """Find or make stages at the same time, those that are made as Prefect tasks.

    Their jobs run in the threads that make them: what such stages work with are processes of their own.
    """
    first = [spec(0) for spec in specs]
    for spec in first:
        noted.remaking.begin(spec)
    labels = [spec.label(home) for spec in first]
    noted.last_run.add(*labels)
    stages = [find(home, spec) for spec in first]
    stages = [None if stage is not None and stage.is_collected else stage for stage in stages]  # their files are read
    missing = [spec for spec, stage in zip(specs, stages, strict=True) if stage is None]
    if not missing:
        return [stage for stage in stages if stage is not None]
    executor.release()
    log, threads = get_run_logger(), min(most(), len(missing))
    log.info("%s: %d to make, %d at once; %d reused", first[0].name, len(missing), threads, len(first) - len(missing))
    with BatchReporter(first[0].name, len(missing), log) as reporter:

        def make(spec: StageSpec, check: Callable[[], None]) -> StageResult:
            stage = _as_task(home, spec, _beside(), lambda _: reporter.stage(), check, task_runs)
            stage = restore(home, stage, _beside(), reporter.stage, check)
            reporter.advance()
            return stage

        results = iter(build_at_once(make, missing, threads))
    return [
        _taken(noted, label, next(results) if stage is None else stage)
        for label, stage in zip(labels, stages, strict=True)
    ]


def _as_task(
    home: str,
    spec: StageSpec,
    executor: Executor,
    progress: Callable[[Callable[[float], None]], Any],
    check: Callable[[], None],
    task_runs: dict[str, UUID],
) -> StageResult:
    """Find or make a stage as a Prefect task. `progress` is given what records a percentage, and opens a block that
    gives a Progress."""
    name, label = stage_name(spec), spec.label(home)

    # a task without arguments, since Prefect would search all manifests in them for futures
    @task(
        name=spec.name,
        task_run_name=f"{name}-{label.rpartition('-')[2]}",
        tags=["gristmill", f"stage:{spec.name}"],
        persist_result=False,
        cache_policy=NO_CACHE,
    )
    @cancellable
    def run() -> StageResult:
        with log_fields.bound(stage=label):
            started = time.monotonic()
            record = progress_artifact(name)
            stage = find_or_make(home, spec, executor, lambda: progress(record), check)
            get_run_logger().info("%s", ended(stage, time.monotonic() - started))
            publish_stage(name, stage)
            task_runs[stage.label] = UUID(str(task_run.get_id()))
        return stage

    # the graph of the run shows what a stage reads: states alone, since Prefect would search manifests for futures
    read = [task_runs[label] for label in spec.read.values() if label in task_runs]
    states: list[State] = [
        Completed(data="made", state_details=StateDetails(task_run_id=run_id)) for run_id in dict.fromkeys(read)
    ]
    return unless_cancelled(run(wait_for=states))
