"""Executors run the jobs of a stage: in this process, in threads, or on a Dask cluster (see `clusters`).

An executor takes a function and jobs, and yields results as jobs end, each with the index of its job. Jobs are small:
paths and counts, never documents. They are created when there is room for them. Their common arguments are in the
function. Log records of jobs return to the caller through `messages`, so that a worker's lines reach the flow's log.
"""

import gc
import logging
import os
import queue
import time
import types
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import islice
from operator import length_hint
from typing import TYPE_CHECKING, Any, TypeVar

import wrapt

from gristmill.storage import files, leftovers
from gristmill.tasks.engine import clusters, log_fields, shared
from gristmill.tasks.engine.dask_processes import bare_main, quiet_refusals
from gristmill.tasks.engine.memory import keep_what_is_freed
from gristmill.tasks.engine.shared import NotBegun, SharedWork, cannot_import, check_workers
from gristmill.tasks.engine.slurm import cluster as slurm_cluster
from gristmill.tasks.engine.slurm.cluster import NOWHERE, SlurmPlace
from gristmill.tasks.engine.slurm.losses import Losses

if TYPE_CHECKING:
    import distributed
else:
    distributed = wrapt.lazy_import("distributed")

log = logging.getLogger(__name__)
T = TypeVar("T")

KINDS = ("serial", "threads", *clusters.CLUSTERS)
LOG_TOPIC = "gristmill-log"
LOGGERS = ("gristmill.tasks", "gristmill.storage")
# Jobs that run or wait at the cluster: per thread, so that no thread waits for the flow, and at least so many, so that
# many short jobs are sent and fetched at a time. When half of them are done, more follow.
_AHEAD, _MIN_AHEAD = 4, 256
# Seconds between two requests for results. A request per short job would be the largest cost of flow and scheduler.
_MAX_PAUSE = 0.5
# Tries of a request to a scheduler that does not answer within Dask's limit of half a minute.
_MAX_QUESTIONS = 5
# The folder of a home with the work of running phases.
WORK = "work"


class ToQueue(logging.Handler):
    """Puts (level, line, fields) into a queue for the flow's thread, whose loggers know the run."""

    def __init__(self, messages: queue.SimpleQueue) -> None:
        super().__init__(logging.DEBUG)
        self.messages = messages

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.put(log_fields.message(record))


class Threads:
    """A pool of threads in this process. With one worker, jobs run one after another in their order."""

    def __init__(self, workers: int, messages: queue.SimpleQueue) -> None:
        self.workers = workers
        self.messages = messages

    def map(self, work: Callable[[Any], Any], jobs: Iterable[Any], processes: int = 0) -> Iterator[tuple[int, Any]]:
        if self.workers == 1:
            for index, job in enumerate(jobs):
                yield index, work(job)
            return
        waiting = enumerate(jobs)
        begun: dict[Future, int] = {}
        with ThreadPoolExecutor(self.workers) as pool:
            try:
                while True:
                    for number, job in islice(waiting, _AHEAD * self.workers - len(begun)):
                        begun[pool.submit(work, job)] = number
                    if not begun:
                        return
                    for future in wait(begun, return_when=FIRST_COMPLETED).done:
                        yield begun.pop(future), future.result()
            finally:
                pool.shutdown(cancel_futures=True)


class _Waiting:
    """Jobs that are not sent yet, with their indices. They are created when taken. `remaining`: 0 if unknown."""

    def __init__(self, jobs: Iterable[Any]) -> None:
        self.remaining = length_hint(jobs)
        self._jobs = enumerate(jobs)
        self._first: list[tuple[int, Any]] = []
        self._more = True

    def __bool__(self) -> bool:
        """Whether there may be some."""
        return self._more or bool(self._first)

    def again(self, jobs: list[tuple[int, Any]]) -> None:
        """Put back jobs that were sent and not done."""
        self._first += jobs
        self.remaining += len(jobs)

    def take(self, most: int, together: int) -> list[list[tuple[int, Any]]]:
        """Up to `most` lists of up to `together` jobs."""
        some = [self._first[start : start + together] for start in range(0, len(self._first), together)][:most]
        self._first = self._first[together * len(some) :]
        while len(some) < most and self._more:
            jobs = list(islice(self._jobs, together))
            self._more = bool(jobs)
            some += [jobs] if jobs else []
        self.remaining = max(0, self.remaining - sum(map(len, some)))
        return some


class Dask:
    """A Dask cluster, used through a client. If a worker dies, or cannot begin its jobs, they run again.

    Each worker reads `work` once, from a file in `folder`. Only jobs are sent, short ones several at a time, and only
    as many as keep the workers busy.
    """

    def __init__(
        self, client: Any, messages: queue.SimpleQueue, folder: str, crashed: Collection[str] | None = None
    ) -> None:
        """`crashed`: addresses of worker processes that crashed, if the scheduler reports every lost worker. None: it
        reports only jobs at which several workers died."""
        self.client = client
        self.messages = messages
        self.folder = folder
        self.crashed = crashed
        self._held: list[Any] = []
        self._name, self._works = f"gristmill-{uuid.uuid4().hex}", 0

    def map(self, work: Callable[[Any], Any], jobs: Iterable[Any], processes: int = 0) -> Iterator[tuple[int, Any]]:
        """`processes`: 0 for short jobs. Other jobs are sent one at a time, and each requires so many GPUs if workers
        have GPUs. Raises what `clusters.resources` raises."""
        self._works += 1
        resources = clusters.resources(self.client, processes) if processes else {}
        done, waiting = distributed.as_completed(()), _Waiting(jobs)
        begun: dict[Any, list[tuple[int, Any]]] = {}  # sent jobs with their indices, by Dask's key
        attempts: Counter[int] = Counter()  # by index: how often jobs were sent that no worker could begin
        losses = Losses(self.crashed, work)
        ahead, threads, a_thread = 0, 0, 1
        mean_seconds: float | None = None  # of a job; None until one has ended, and if jobs are sent one at a time
        started = now = time.monotonic()
        pause = 0.0
        shared_work = shared.leave(self.folder, work)
        try:
            while waiting or begun:
                if waiting and len(begun) <= ahead // 2:
                    threads = self._threads()
                    ahead = max(_MIN_AHEAD, a_thread * threads)
                    size = shared.SINGLE
                    if mean_seconds is not None:
                        size = shared.task_size(threads, mean_seconds, waiting.remaining)
                    batches = waiting.take(ahead - len(begun), size.jobs)
                    waits = attempts + losses.waits
                    done.update(self._begin(shared_work, batches, begun, waits, resources, size.seconds))
                    continue
                time.sleep(pause)
                batch, lost = losses.split(done.next_batch(), begun)
                waiting.again(lost)
                if not batch:
                    continue
                before, now = now, time.monotonic()
                # at most a tenth of the phase so far, and a quarter of the time that the sent jobs last at this rate
                pause = min(_MAX_PAUSE, (now - started) / 10, (now - before) * ahead / (4 * len(batch)))
                # not by `as_completed`, which would wait forever for a result that is lost and fails again
                try:
                    results = self._gather(batch)
                except distributed.KilledWorker as error:
                    raise RuntimeError(shared.killed([job for _, job in begun[error.task]], work)) from error
                except ImportError as error:
                    raise ImportError(cannot_import("a worker", error)) from error
                lasting = [(len(each), took) for each, took in results if not isinstance(each, NotBegun)]
                # one job per thread until the first results, because the right number of jobs per task is not known
                a_thread, ahead = _AHEAD, max(_MIN_AHEAD, _AHEAD * threads)
                if lasting and not processes:
                    mean_seconds = sum(took for _, took in lasting) / sum(number for number, _ in lasting)
                for future, (each, _) in zip(batch, results, strict=True):
                    batch_jobs = begun.pop(future.key)
                    if isinstance(each, NotBegun):
                        attempts.update(index for index, _ in batch_jobs)
                        if max(attempts[index] for index, _ in batch_jobs) == shared.ATTEMPTS:
                            raise OSError(shared.not_begun(shared_work.path, each))
                        log.warning("a worker could not begin its jobs; sending them again: %s", each.reason)
                        waiting.again(batch_jobs)
                        continue
                    waiting.again(batch_jobs[len(each) :])
                    for (index, _), result in zip(batch_jobs, each, strict=False):
                        yield index, result
        finally:
            if unfinished := [future for future in self._held if future.key in begun and not future.done()]:
                self.client.cancel(unfinished)
            shared.take_back(shared_work)

    def _begin(
        self,
        work: SharedWork,
        some: list[list[tuple[int, Any]]],
        begun: dict[Any, list[tuple[int, Any]]],
        attempts: Mapping[int, int],
        resources: Mapping[str, int],
        seconds: float,
    ) -> list[Any]:
        """Send jobs, add them to `begun`, and return their futures. `seconds`: after which a task returns the jobs that
        it has not begun."""
        if not some:
            return []
        # in one group, so that the scheduler assigns them as workers become free instead of all at once
        group = f"{self._name}-{self._works}"
        keyed = {(group, uuid.uuid4().hex): jobs for jobs in some}
        payloads = [shared.dumps([job for _, job in jobs]) for jobs in some]
        before = [max(attempts.get(index, 0) for index, _ in jobs) for jobs in some]
        own = {"key": list(keyed), "pure": False, "resources": dict(resources) or None}
        futures = self.client.map(shared.call, [work] * len(some), payloads, before, [seconds] * len(some), **own)
        # Finished jobs are released only now, because a release before the new jobs would delay these by 10 ms. If a
        # worker that holds them dies before that, their jobs run again and find themselves done.
        self._held = [*(future for future in self._held if future.key in begun), *futures]
        begun |= keyed
        return futures

    def _gather(self, batch: Sequence[Any]) -> list[tuple[Any, float]]:
        """Return the results of futures. Raises the error of a job."""
        return self._retry(lambda: self.client.gather(batch), lambda: any(future.status == "error" for future in batch))

    def _threads(self) -> int:
        """Number of threads that the workers have now."""
        information = self._retry(lambda: self.client.scheduler_info(n_workers=0), lambda: False)
        return int(information["total_threads"])

    def _retry(self, ask: Callable[[], T], is_of_job: Callable[[], bool]) -> T:
        """Return the scheduler's answer. Retries, because a busy scheduler may let a connection time out."""
        for _ in range(_MAX_QUESTIONS - 1):
            try:
                return ask()
            except OSError as error:
                if self.client.status != "running" or is_of_job():
                    raise
                log.warning("the scheduler did not answer; retrying: %s", error)
        return ask()


class Deferred:
    """An executor that starts with the first jobs, because a run that reuses all of its stages needs none."""

    def __init__(self, start: Callable[[], "AbstractContextManager[Threads | Dask]"]) -> None:
        self._start = start
        self._stack = ExitStack()
        self._started: Threads | Dask | None = None
        self._none: queue.SimpleQueue = queue.SimpleQueue()

    @property
    def messages(self) -> queue.SimpleQueue:
        return self._started.messages if self._started else self._none

    def map(self, work: Callable[[Any], Any], jobs: Iterable[Any], processes: int = 0) -> Iterator[tuple[int, Any]]:
        if self._started is None:
            self._started = self._stack.enter_context(self._start())
        return self._started.map(work, jobs, processes)

    def release(self) -> None:
        """End it until the next jobs, so that others can use workers that would wait for hours during a training."""
        self.__exit__(None, None, None)

    def __enter__(self) -> "Deferred":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        """End it, and pass on the error that ends it: an interrupted run may need its workers again."""
        self._started = None
        self._stack.__exit__(kind, error, trace)


Executor = Threads | Dask | Deferred


@contextmanager
def deferred(
    kind: str,
    workers: int = 0,
    address: str = "",
    template: str = "",
    json_lines: bool = False,
    tls: clusters.Tls = clusters.NO_TLS,
    home: str = "",
    slurm: SlurmPlace = NOWHERE,
) -> Iterator[Deferred]:
    """The executor of `executor`, started by the first jobs and ended with the block.

    Raises ValueError immediately, as `executor` does.
    """
    check(kind, workers, address, template, tls, home, slurm)
    leftovers.remove_scratch()  # also where all is reused, and nothing is started
    with Deferred(lambda: executor(kind, workers, address, template, json_lines, tls, home, slurm)) as waiting:
        yield waiting


def check(
    kind: str, workers: int, address: str, template: str, tls: clusters.Tls, home: str, slurm: SlurmPlace
) -> None:
    """Raise ValueError for arguments with which `executor` cannot start, MissingExtraError for a missing package."""
    if kind not in KINDS:
        raise ValueError(f"no executor {kind!r}: choose {', '.join(KINDS[:-1])} or {KINDS[-1]}")
    clusters.check(kind, workers, address, template, tls, slurm)
    if kind in clusters.CLUSTERS and kind != "local" and not home:
        raise ValueError(f"executor `{kind}` needs a home that its workers can reach: set GRISTMILL_HOME")


@contextmanager
def executor(
    kind: str,
    workers: int = 0,
    address: str = "",
    template: str = "",
    json_lines: bool = False,
    tls: clusters.Tls = clusters.NO_TLS,
    home: str = "",
    slurm: SlurmPlace = NOWHERE,
) -> Iterator[Threads | Dask]:
    """The executor for a kind: `serial`, `threads`, `local` (Dask processes on this machine), `dask`, `kubernetes` or
    `slurm`.

    `workers`: 0 for one per core of this machine; for `slurm` the number of tasks of the array. `dask` takes `address`
    (`tls://host:8786`) and `tls`, and uses the workers of that cluster. `kubernetes` takes `template`, a YAML file, and
    `tls`. `slurm` takes `template`, a job script, and `slurm`, where run and tasks meet.
    `json_lines`: workers on other machines also write their logs as JSON lines. `home`: where workers on other machines
    read the work of a phase. Raises ValueError for an unknown kind or a missing argument.
    """
    check(kind, workers, address, template, tls, home, slurm)
    workers = workers or os.cpu_count() or 1
    messages: queue.SimpleQueue = queue.SimpleQueue()
    if kind in ("serial", "threads"):
        with _listening(messages):
            yield Threads(1 if kind == "serial" else workers, messages)
    else:
        from distributed import Client  # before its logger has a level, since the import sets one

        # at a lower level, every connection and every worker that joins or leaves is a line of the flow's log
        logging.getLogger("distributed").setLevel(logging.WARNING)
        with (
            leftovers.scratch_folder("dask") as scratch,
            bare_main(),
            quiet_refusals() if kind == "local" else nullcontext(),
            clusters.CLUSTERS[kind](
                clusters.ClusterSettings(workers, address, template, str(scratch), tls, slurm)
            ) as target,
        ):
            # local processes read the temporary folder, so a read-only home is not written
            folder = str(scratch) if kind == "local" else files.join(home, WORK)
            shared.remove_leftovers(folder)
            # None: Dask uses the key of a cluster that it has started itself
            security = tls.security() if kind in ("dask", "kubernetes") else None
            with Client(target, security=security) as client:
                check_workers(client)
                # workers of a cluster write to their own output, which is stored where they run
                client.register_plugin(_plugin(json_lines and kind != "local"))
                client.subscribe_topic(LOG_TOPIC, _of_this_run(messages))
                try:
                    yield Dask(client, messages, folder, slurm_cluster.crashed(client) if kind == "slurm" else None)
                finally:
                    # hide the warnings about workers that are killed in a job whose result is not needed any more
                    logging.getLogger("distributed").setLevel(logging.ERROR)


@contextmanager
def _listening(messages: queue.SimpleQueue) -> Iterator[None]:
    handler = ToQueue(messages)
    loggers = [logging.getLogger(name) for name in (*LOGGERS, log_fields.LOGGER)]
    before = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
        logger.propagate = False  # the reader of the queue logs them, as it does for workers
    try:
        yield
    finally:
        for logger, (level, propagate) in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate


def _of_this_run(messages: queue.SimpleQueue) -> Callable[[Any], None]:
    """Handler for the events of a cluster. It ignores those of other runs that share the workers."""
    run = log_fields.current().get("run")

    def take(event: Any) -> None:
        level, line, fields = event[1]
        if fields.get("run", run) == run:
            messages.put((level, line, fields))

    return take


def _plugin(json_lines: bool) -> Any:
    """The plugin that sets up each worker. After an error here Dask would restart the worker forever, so a worker that
    cannot import our code starts, and its first job reports it."""

    class Gristmill(distributed.WorkerPlugin):
        name = "gristmill"

        def setup(self, worker: Any) -> None:
            try:
                from gristmill.tasks.engine import log_fields
            except ImportError:
                return
            keep_what_is_freed()
            gc.set_threshold(50_000)  # the imports of the first jobs leave almost no garbage

            class ToScheduler(logging.Handler):
                def emit(self, record: logging.LogRecord) -> None:
                    worker.log_event(LOG_TOPIC, log_fields.message(record))

            self.handlers: list[logging.Handler] = [ToScheduler(logging.DEBUG)]
            if json_lines:
                self.handlers.append(logging.StreamHandler())
                for handler in (self.handlers[-1], *logging.getLogger("distributed").handlers):
                    handler.setFormatter(log_fields.JsonLines())
            for name in LOGGERS:
                for handler in self.handlers:
                    logging.getLogger(name).addHandler(handler)
                logging.getLogger(name).setLevel(logging.DEBUG)
            logging.getLogger(log_fields.LOGGER).addHandler(self.handlers[0])
            logging.getLogger(log_fields.LOGGER).setLevel(logging.DEBUG)

        def teardown(self, worker: Any) -> None:
            for handler in getattr(self, "handlers", ()):
                for name in (*LOGGERS, log_fields.LOGGER):
                    logging.getLogger(name).removeHandler(handler)

    return Gristmill()
