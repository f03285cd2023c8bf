"""Makes each stage as one Prefect task, with its progress and counts as artifacts. Several stages run in threads."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextvars import ContextVar, copy_context
from dataclasses import replace
from functools import partial
from typing import NamedTuple
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
from gristmill.flows.run import stale_marks
from gristmill.flows.run.artifacts import progress_artifact, publish_stage, stage_name
from gristmill.flows.run.flow import cancellable, unless_cancelled
from gristmill.flows.run.kernel_compilation import compile_kernels
from gristmill.flows.run.progress import BatchReporter, ProgressReporter, ended
from gristmill.tasks.engine import log_fields, options, remakes
from gristmill.tasks.engine.executors import Deferred, Threads
from gristmill.tasks.engine.jobs import JobResult
from gristmill.tasks.engine.lease import is_taken
from gristmill.tasks.engine.make import StageResult, find, find_or_make, restore
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.engine.stage_jobs import StageJobs, made_by_workers

# Makes one stage. It calls `check` now and then, which raises the error that ends it.
Make = Callable[[StageSpec, Callable[[], None]], StageResult]


class EndedError(RuntimeError):
    """A stage was stopped because another one that was made at the same time failed."""


class _End:
    """The error or signal that stops all stages that are being made; `why` is None while there is none."""

    def __init__(self) -> None:
        self.why: BaseException | None = None
        self._lock = threading.Lock()

    def now(self, why: BaseException) -> None:
        with self._lock:
            self.why = self.why or why

    def check(self) -> None:
        """Raise the signal that the flow's thread received, or EndedError, in the thread of a stage."""
        why = self.why
        if why is None:
            return
        if isinstance(why, TerminationSignal):
            raise TerminationSignal(why.signal)
        if isinstance(why, KeyboardInterrupt):
            raise KeyboardInterrupt
        raise EndedError(f"ended, because a stage that was made at the same time failed: {why}") from why


def build_at_once(
    make: Make, specs: Sequence[SlotSpec], most: int, is_elsewhere: Callable[[StageSpec], bool] = lambda spec: False
) -> list[StageResult]:
    """Make stages, at most `most` at the same time, and return them in their order.

    `is_elsewhere`: whether another process makes a stage now. Such a stage is made last, since it may be finished then.

    The first error stops the other stages, and is raised when they have ended. So does a signal, which Python raises
    only in the flow's thread. Stages that have not begun are not made.
    """
    end, slots = _End(), queue.SimpleQueue[int]()
    for slot in range(most):
        slots.put(slot)

    def one(declare: SlotSpec, waits: bool) -> StageResult | None:
        end.check()
        slot = slots.get()
        try:
            spec = declare(slot)
            return None if not waits and is_elsewhere(spec) else make(spec, end.check)
        except BaseException as error:
            end.now(error)  # before this thread starts another stage
            raise
        finally:
            slots.put(slot)

    stages: dict[int, StageResult] = {}
    with ThreadPoolExecutor(most, thread_name_prefix="stage") as pool:
        futures: dict[int, Future[StageResult | None]] = {}
        try:
            for waits in (False, True):
                # Prefect's task finds its flow in the context, and its log finds the server there
                for number, spec in enumerate(specs):
                    if number not in stages:
                        futures[number] = pool.submit(copy_context().run, one, spec, waits)
                wait(futures.values(), return_when=FIRST_EXCEPTION)
                if end.why is not None:
                    raise end.why
                stages |= {number: stage for number, each in futures.items() if (stage := each.result()) is not None}
                futures = {}
        except BaseException as error:
            end.now(error)
            for future in futures.values():
                future.cancel()
            raise
    return [stages[number] for number in range(len(specs))]


_current: ContextVar[RunContext | None] = ContextVar("run_context", default=None)


@contextlib.contextmanager
def run_context(recipe: Recipe) -> Iterator[RunContext]:
    """The context of the run. The outermost flow opens and closes it, checks the recipe, and starts the executor."""
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
        records = Records(last_run, remaking)
        task_runs: dict[str, UUID] = {}
        context = RunContext(
            settings,
            partial(_build, settings.home, workers, records, task_runs),
            at_once=partial(_build_all, settings.home, workers, records, task_runs),
            outside=last_run.outside,
            begin=remaking.begin,
            use=partial(_use, records),
            restore=partial(_restore, settings.home, workers),
        )
        token = _current.set(context)
        try:
            yield context
            last_run.finished()
            stale_marks.mark_after_run(settings)
            remaking.check()
        finally:
            remaking.report(get_run_logger())
            _current.reset(token)


class Records(NamedTuple):
    """The records that a run keeps of its stages."""

    last_run: RunRecorder
    remaking: Remaking


def _same_thread() -> Threads:
    """An executor that runs jobs in the thread that makes the stage."""
    return Threads(1, queue.SimpleQueue())


def _build(home: str, executor: Deferred, records: Records, task_runs: dict[str, UUID], spec: StageSpec) -> StageResult:
    """Find or make a stage as a Prefect task that is named after the recipe and the stage. `task_runs`: ids of the task
    runs of earlier stages, by label."""
    records.remaking.begin(spec)
    label = spec.label(home)
    records.last_run.add(label)
    if spec.at:
        records.last_run.exported(label, spec.at)
    # a training runs in separate processes, perhaps for hours, so idle workers are released
    workers = _same_thread() if spec.name == "model" else executor

    def progress(record: Callable[[float], None]) -> ProgressReporter:
        if workers is not executor:
            executor.release()
        compile_kernels(get_run_logger().info)
        return ProgressReporter(spec, workers, get_run_logger(), record)

    def make(record: Callable[[float], None]) -> StageResult:
        return find_or_make(home, spec, workers, lambda: progress(record))

    return _recorded(records, label, _as_task(home, spec, make, task_runs))


def _use(records: Records, stage: StageResult) -> StageResult:
    """Record and return a stage that another run made and this one reads."""
    records.last_run.add(stage.label)
    return stage


def _restore(home: str, executor: Deferred, stage: StageResult) -> StageResult:
    """Return a stage with its files, which are made again if they were removed."""
    if not stage.is_collected:
        return stage
    assert stage.spec is not None, "it was found by its spec"
    spec, log = stage.spec, get_run_logger()
    return restore(home, stage, executor, lambda: ProgressReporter(spec, executor, log, lambda _: None))


def _recorded(records: Records, label: str, stage: StageResult) -> StageResult:
    """Record and return a stage of the run. It may be in another folder than expected, which other code had begun."""
    records.last_run.replace(label, stage.label)
    if stage.reused:
        records.remaking.reused(stage)
    return stage


def _build_all(
    home: str,
    executor: Deferred,
    records: Records,
    task_runs: dict[str, UUID],
    specs: Sequence[SlotSpec],
    most: Callable[[], int],
    jobs: StageJobs | None,
) -> list[StageResult]:
    """Find stages, and make the missing ones at the same time as Prefect tasks.

    Their jobs run in the threads that make them, because such stages start separate processes. With `jobs`, the workers
    of the cluster make the stages.
    """
    first = [spec(0) for spec in specs]
    for spec in first:
        records.remaking.begin(spec)
    labels = [spec.label(home) for spec in first]
    records.last_run.add(*labels)
    stages = [find(home, spec) for spec in first]
    stages = [None if stage is not None and stage.is_collected else stage for stage in stages]  # their files are read
    missing = [spec for spec, stage in zip(specs, stages, strict=True) if stage is None]
    if not missing:
        return [stage for stage in stages if stage is not None]
    if jobs is not None:
        numbers = [number for number, stage in enumerate(stages) if stage is None]
        own = replace(jobs, arguments=[jobs.arguments[number] for number in numbers])
        made = _build_by_workers(home, executor, task_runs, own, [first[number] for number in numbers])
        get_run_logger().info("%s: %d made by workers; %d reused", first[0].name, len(made), len(first) - len(made))
    else:
        executor.release()
        made = _build_here(home, task_runs, missing, min(most(), len(missing)), len(first) - len(missing))
    results = iter(made)
    return [
        _recorded(records, label, next(results) if stage is None else stage)
        for label, stage in zip(labels, stages, strict=True)
    ]


def _build_here(
    home: str, task_runs: dict[str, UUID], missing: Sequence[SlotSpec], threads: int, reused: int
) -> list[StageResult]:
    name, log = missing[0](0).name, get_run_logger()
    log.info("%s: %d to make, %d at once; %d reused", name, len(missing), threads, reused)
    with BatchReporter(name, len(missing), log) as reporter:

        def make(spec: StageSpec, check: Callable[[], None]) -> StageResult:
            stage = _as_task(
                home, spec, lambda _: find_or_make(home, spec, _same_thread(), reporter.stage, check), task_runs
            )
            stage = restore(home, stage, _same_thread(), reporter.stage, check)
            reporter.advance()
            return stage

        return build_at_once(make, missing, threads, lambda spec: is_taken(spec.folder(home)))


def _build_by_workers(
    home: str, executor: Deferred, task_runs: dict[str, UUID], jobs: StageJobs, specs: Sequence[StageSpec]
) -> list[StageResult]:
    for spec in specs:
        for given in spec.inputs.values():
            if isinstance(given, StageResult):
                _restore(home, executor, given)
    stages: dict[int, StageResult] = {}
    log, name = get_run_logger(), specs[0].name
    log.info("%s: %d to make, by the workers of the cluster", name, len(specs))
    with ProgressReporter(specs[0], executor, log, lambda _: None) as reporter:
        reporter.phase("runs", len(specs))
        for number, stage, seconds in made_by_workers(home, executor, jobs, specs):
            stages[number] = _as_task(home, specs[number], partial(_made, stage), task_runs, seconds)
            reporter.advance(JobResult({}, {}, found=stage.reused), number)
    return [stages[number] for number in range(len(specs))]


def _made(stage: StageResult, record: Callable[[float], None]) -> StageResult:
    """Return a stage that a worker has made."""
    record(100.0)
    return stage


def _as_task(
    home: str,
    spec: StageSpec,
    make: Callable[[Callable[[float], None]], StageResult],
    task_runs: dict[str, UUID],
    seconds: float | None = None,
) -> StageResult:
    """Find or make a stage as a Prefect task. `make` gets the function that records a percentage. `seconds`: the time
    that a worker took, if one made the stage."""
    name, label = stage_name(spec), spec.label(home)

    # the task has no arguments, because Prefect would search all manifests in them for futures
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
            stage = make(record)
            get_run_logger().info("%s", ended(stage, time.monotonic() - started if seconds is None else seconds))
            publish_stage(name, stage)
            task_runs[stage.label] = UUID(str(task_run.get_id()))
        return stage

    # so the graph of the run shows what a stage reads; only states, because Prefect would search manifests for futures
    read = [task_runs[label] for label in spec.read.values() if label in task_runs]
    states: list[State] = [
        Completed(data="made", state_details=StateDetails(task_run_id=run_id)) for run_id in dict.fromkeys(read)
    ]
    return unless_cancelled(run(wait_for=states))
