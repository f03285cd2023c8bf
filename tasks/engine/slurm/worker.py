"""A task of the job array: worker processes that join the run, and join again when the run has a new scheduler."""

import asyncio
import logging
import signal
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import wrapt

from gristmill.storage import leftovers
from gristmill.tasks.engine.clusters import GPU
from gristmill.tasks.engine.dask_processes import NO_PAGES, UNWATCHED
from gristmill.tasks.engine.slurm.cluster import worker_name
from gristmill.tasks.engine.slurm.meeting import Meeting, SchedulerPlace, State, TaskState, node_name

if TYPE_CHECKING:
    import dask
    import distributed
    from distributed import comm as dask_comm
else:
    dask = wrapt.lazy_import("dask")
    distributed = wrapt.lazy_import("distributed")
    dask_comm = wrapt.lazy_import("distributed.comm")

log = logging.getLogger(__name__)

WAIT_SECONDS = 600.0
_POLL_SECONDS = 2.0  # between two looks into the folder
_SEEN_SECONDS = 30.0  # between two signs of life
# A worker process takes about four connections, each of which costs the scheduler 3.5 ms.
_PROCESS_SECONDS = 4 * 0.0035
_STAGGER_SECONDS = 60.0  # in which all tasks begin to join
_CONNECT_SECONDS = 10.0  # after which the file may have another scheduler
_CLOSE_SECONDS = 5.0


@dataclass(frozen=True)
class Allocation:
    """What SLURM has given a task. `task`: its number in the array; `memory`: bytes of a worker process, "auto" where
    SLURM does not limit it; `gpus`: of a worker process."""

    task: int
    job: str
    processes: int
    memory: int | str
    gpus: int
    restarts: int

    @classmethod
    def of_environment(cls, environment: Mapping[str, str], processes: int = 0, gpus: int = 0) -> "Allocation":
        """`processes`: 0 for one per CPU. Raises ValueError outside of a job array."""
        try:
            task = int(environment["SLURM_ARRAY_TASK_ID"])
        except KeyError:
            raise ValueError(
                "SLURM_ARRAY_TASK_ID is not set: `gristmill home worker` runs in tasks of docker/slurm/workers.sbatch"
            ) from None
        cpus = int(environment.get("SLURM_CPUS_PER_TASK") or environment.get("SLURM_CPUS_ON_NODE") or 1)
        processes = processes or cpus
        megabytes = int(environment.get("SLURM_MEM_PER_NODE") or 0)
        megabytes = megabytes or cpus * int(environment.get("SLURM_MEM_PER_CPU") or 0)
        job = f"{environment.get('SLURM_ARRAY_JOB_ID', '')}_{task}"
        restarts = int(environment.get("SLURM_RESTART_COUNT") or 0)
        return cls(task, job, processes, (megabytes << 20) // processes or "auto", gpus, restarts)


def stagger_seconds(task: int, processes: int) -> float:
    """How long a task waits before its processes join, in seconds below 60. Tasks are spread over that time, however
    many there are, so that the scheduler gets their connections at an even rate."""
    return task * processes * _PROCESS_SECONDS % _STAGGER_SECONDS


def work(folder: str, allocation: Allocation, wait_seconds: float = WAIT_SECONDS) -> State:
    """Work for the run that meets its workers in `folder`, until it ends.

    If the scheduler is lost, wait up to `wait_seconds` for it or for another one, and join it. Returns `ended` if the
    run has ended, `gave up` if there was no scheduler for too long, `stopped` after a SIGTERM. Raises PermissionError
    for a folder that other accounts may enter.
    """
    meeting = Meeting(folder)
    if meeting.is_ended():
        return "ended"
    meeting.check()
    with leftovers.scratch_folder("dask") as scratch, dask.config.set({**UNWATCHED, **NO_PAGES}):
        return asyncio.run(_Task(meeting, allocation, wait_seconds, str(scratch)).run())


class _Task:
    def __init__(self, meeting: Meeting, allocation: Allocation, wait_seconds: float, scratch: str) -> None:
        self.meeting, self.allocation, self.wait_seconds, self.scratch = meeting, allocation, wait_seconds, scratch
        now = time.time()
        self.state = TaskState(
            allocation.task,
            allocation.job,
            node_name(),
            "waiting",
            allocation.processes,
            allocation.restarts,
            joins=0,
            since=now,
            seen=now,
        )

    async def run(self) -> State:
        this = asyncio.current_task()
        assert this is not None, "it runs in one"
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
        try:
            end = await self._until_end()
        except asyncio.CancelledError:
            end = "stopped"
        self._enter(end)
        return end

    async def _until_end(self) -> State:
        self._enter("waiting")
        lost = time.monotonic()
        while not self.meeting.is_ended():
            place = self.meeting.scheduler()
            if place is not None and await self._join(place):
                lost = time.monotonic()
            if self.state.state != "waiting":
                self._enter("waiting")
            if time.monotonic() - lost > self.wait_seconds:
                log.warning("no scheduler for %.0f s: task %d gives up", self.wait_seconds, self.allocation.task)
                return "gave up"
            self._show_life()
            await asyncio.sleep(_POLL_SECONDS)
        return "ended"

    async def _join(self, place: SchedulerPlace) -> bool:
        """Work for a scheduler until it or the run ends. Whether it could be reached."""
        try:
            security = self.meeting.security(place)
            # a connection that is only held: its end is the end of the scheduler, however that came
            arguments = security.get_connection_args("worker")
            held = await dask_comm.connect(place.address, timeout=_CONNECT_SECONDS, **arguments)
        except OSError as error:
            log.info("the scheduler at %s does not answer: %s", place.address, error)
            return False
        try:
            await self._serve(place, security, asyncio.ensure_future(held.read()))
        finally:
            held.abort()
        return True

    async def _serve(self, place: SchedulerPlace, security: Any, lost: asyncio.Future) -> None:
        self._enter("joining")
        await asyncio.wait({lost}, timeout=stagger_seconds(self.allocation.task, self.allocation.processes))
        over = asyncio.ensure_future(self._until_over(place))
        nannies = [] if lost.done() else list(self._nannies(place.address, security))
        waits: set[asyncio.Future] = {lost, over}
        started = asyncio.ensure_future(asyncio.gather(*nannies))
        try:
            await asyncio.wait({*waits, started}, return_when=asyncio.FIRST_COMPLETED)
            if started.done() and not lost.done() and not over.done():
                started.result()
                self._enter("working", joins=self.state.joins + 1)
                # a nanny ends only with its scheduler, or with an error: then all join again
                waits |= {asyncio.ensure_future(nanny.finished()) for nanny in nannies}
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        except (OSError, RuntimeError) as error:
            log.warning("worker processes did not start: %s", error)
        finally:
            for each in (*waits, started):
                each.cancel()
            closing = (nanny.close(timeout=_CLOSE_SECONDS, reason="task-leaves") for nanny in nannies)
            await asyncio.gather(*closing, return_exceptions=True)
            await asyncio.gather(*waits, started, return_exceptions=True)

    def _nannies(self, address: str, security: Any) -> Iterator[Any]:
        session = uuid.uuid4().hex[:8]
        resources = {GPU: self.allocation.gpus} if self.allocation.gpus else None
        for process in range(self.allocation.processes):
            yield distributed.Nanny(
                address,
                nthreads=1,
                name=worker_name(self.allocation.task, process, session),
                memory_limit=self.allocation.memory,
                local_directory=self.scratch,
                resources=resources,
                security=security,
                dashboard=False,
                dashboard_address="127.0.0.1:0",
            )

    async def _until_over(self, place: SchedulerPlace) -> None:
        """Returns when the run has ended or has another scheduler."""
        while not self.meeting.is_ended():
            current = self.meeting.scheduler()
            if current is not None and current.id != place.id:
                return
            self._show_life()
            await asyncio.sleep(_POLL_SECONDS)

    def _enter(self, state: State, **changes: Any) -> None:
        now = time.time()
        log.info("task %d: %s", self.allocation.task, state)
        self.state = replace(self.state, state=state, since=now, seen=now, **changes)
        self._report()

    def _show_life(self) -> None:
        if time.time() - self.state.seen > _SEEN_SECONDS:
            self.state = replace(self.state, seen=time.time())
            self._report()

    def _report(self) -> None:
        with suppress(OSError):  # the folder is removed, or its disk is full: the task continues
            self.meeting.report(self.state)
