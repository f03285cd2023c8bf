"""Whole stages as jobs of a cluster: a worker finds or makes a stage, and holds its lease meanwhile.

Other stages are made by the flow's process, which sends the jobs of their phases to workers. A stage that is one long
job, such as a short training, is made where the job runs. Its files are local there, and if its worker dies, the worker
that gets the job next takes the lease.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import wrapt

from gristmill.tasks.engine import log_fields, options, remakes
from gristmill.tasks.engine.executors import Executor, Threads
from gristmill.tasks.engine.jobs import Code, check_code
from gristmill.tasks.engine.lease import is_taken
from gristmill.tasks.engine.make import StageResult, find, find_or_make, restore
from gristmill.tasks.engine.options import JobOptions
from gristmill.tasks.engine.phases import Silent
from gristmill.tasks.engine.spec import StageSpec

if TYPE_CHECKING:
    from distributed import worker as dask_worker
else:
    dask_worker = wrapt.lazy_import("distributed.worker")

log = logging.getLogger(__name__)

# Seconds until a shared file system shows a new file to a machine that has just looked for it.
SHOWN_SECONDS = 60.0


@dataclass(frozen=True)
class StageJobs:
    """How workers make the stages of a batch. `declare(argument, slot)`: a stage; a module function or a partial of
    one. `slot`: its number among those that a worker makes at once. `arguments`: of each stage, less than 2 kB;
    `processes`: of a stage, each with one GPU where workers have GPUs."""

    declare: Callable[[Any, int], StageSpec]
    arguments: Sequence[Any]
    processes: int


@dataclass(frozen=True)
class Batch:
    """The common part of the jobs of a batch."""

    home: str
    declare: Callable[[Any, int], StageSpec]
    code: Code
    options: JobOptions = field(default_factory=options.current)
    log_fields: dict[str, Any] = field(default_factory=log_fields.current)


@dataclass(frozen=True)
class StageJob:
    """`waits`: whether the job waits for another process that makes the stage; else its worker is free for other
    jobs."""

    key: str
    argument: Any
    waits: bool


@dataclass(frozen=True)
class Made:
    """`reused`: whether another process made the stage."""

    seconds: float
    reused: bool


class CanceledJobError(RuntimeError):
    """The flow of a job was canceled or has ended."""


class Lines(Silent):
    """Progress on a worker: messages go to its log, which the flow shows."""

    def message(self, line: str) -> None:
        log.info("%s", line)


def made_by_workers(
    home: str, executor: Executor, jobs: StageJobs, specs: Sequence[StageSpec]
) -> Iterator[tuple[int, StageResult, float]]:
    """Have workers make stages: the number of each, the stage, and seconds, as they end. `specs`: as `jobs.declare`
    gives them here, in the order of `jobs.arguments`; the same body makes all of them.

    Those that another process makes come last, since it may finish them meanwhile. A worker that dies costs its jobs
    only a second run. Raises what making a stage raises, and ends the other jobs then.
    """
    first = specs[0]
    batch = Batch(home, jobs.declare, Code(first.roots, first.code, tuple(first.identity["libraries"].items())))
    numbers: Sequence[int] = range(len(specs))
    for waits in (False, True):
        todo = (StageJob(specs[number].key, jobs.arguments[number], waits) for number in numbers)
        elsewhere = []
        for index, made in executor.map(partial(make_stage, batch), todo, jobs.processes) if numbers else ():
            number = numbers[index]
            if made is None:
                elsewhere.append(number)
            else:
                yield number, _finished(home, specs[number], made), made.seconds
        numbers = elsewhere


def _finished(home: str, spec: StageSpec, made: Made) -> StageResult:
    until = time.monotonic() + SHOWN_SECONDS
    while True:
        remakes.forget(home)  # a worker may have begun it again in another folder
        stage = find(home, spec)
        if stage is not None and not stage.is_collected:
            return StageResult(stage.name, stage.key, stage.folder, stage.manifest, made.reused, stage.code, spec)
        if time.monotonic() > until:
            raise RuntimeError(
                f"a worker has made {spec.folder(home)}, but this machine cannot read it: set GRISTMILL_HOME to a "
                "folder or a store that all workers and this machine reach under the same name"
            )
        time.sleep(1)


def make_stage(batch: Batch, job: StageJob) -> Made | None:
    """Find or make a stage, on a worker. None: another process makes it, and the job does not wait.

    Raises RuntimeError on a worker whose code or libraries differ from the flow's, CanceledJobError when the flow has
    ended, and what making the stage raises.
    """
    options.begin_making(batch.options)
    check_code(batch.code)
    remakes.forget(batch.home)
    with _slot() as slot:
        spec = batch.declare(job.argument, slot)
        if spec.key != job.key:
            raise RuntimeError(
                f"the {spec.name} {job.key} of the flow is {spec.key} on this worker: install the same code and "
                "releases on both"
            )
        with log_fields.bound(**batch.log_fields | {"stage": spec.label(batch.home)}):
            began = time.monotonic()
            stage = find(batch.home, spec)
            if stage is None and not job.waits and is_taken(spec.folder(batch.home)):
                return None
            if stage is None:
                stage = find_or_make(batch.home, spec, _here(), _lines, check_wanted)
            stage = restore(batch.home, stage, _here(), _lines, check_wanted)
            return Made(time.monotonic() - began, stage.reused)


def check_wanted() -> None:
    """Raise CanceledJobError in the thread of a job that its flow has canceled. A flow that has died has canceled all
    of its jobs when the scheduler notices."""
    state = dask_worker.get_worker().state.tasks.get(dask_worker.thread_state.key)
    if state is None or state.state == "cancelled":
        raise CanceledJobError("the flow that this job belongs to has ended")


def _here() -> Threads:
    """An executor that runs jobs in the thread of this job."""
    return Threads(1, queue.SimpleQueue())


def _lines() -> Any:
    return nullcontext(Lines())


_slots: set[int] = set()
_lock = threading.Lock()


@contextmanager
def _slot() -> Iterator[int]:
    """The smallest number that no other running job of this worker has."""
    with _lock:
        slot = next(number for number in count() if number not in _slots)
        _slots.add(slot)
    try:
        yield slot
    finally:
        with _lock:
            _slots.discard(slot)
