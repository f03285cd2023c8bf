"""The cluster of a run on SLURM: a Dask scheduler in the run's process, and a job array that the run submits.

A run that is itself a job of SLURM has a meeting folder named after the job. When the job is requeued, the run finds
the folder and the tasks of its array again, and the tasks find its new scheduler.
"""

import logging
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import wrapt

from gristmill.tasks.engine.dask_processes import NO_PAGES, UNWATCHED, interrupts_held
from gristmill.tasks.engine.slurm.meeting import Meeting, SchedulerPlace, node_name

if TYPE_CHECKING:
    import dask
    import distributed
    from distributed import utils as dask_utils
else:
    dask = wrapt.lazy_import("dask")
    distributed = wrapt.lazy_import("distributed")
    dask_utils = wrapt.lazy_import("distributed.utils")

log = logging.getLogger(__name__)

_PLUGIN = "gristmill-slurm"


class SlurmPlace(NamedTuple):
    """`folder`: has the meeting folders of runs; `interface`: network interface of schedulers, "" for the one that
    leads to other networks."""

    folder: str = ""
    interface: str = ""


NOWHERE = SlurmPlace()


def check(place: SlurmPlace, script: str) -> None:
    """Raise ValueError, which names the setting, for a place or a script that cannot be used."""
    if not os.path.isfile(script):
        raise ValueError(f"GRISTMILL_CLUSTER {script} is not a file; give the job script of the workers")
    if script.endswith((".yaml", ".yml")):
        raise ValueError(
            f"GRISTMILL_CLUSTER {script} is a YAML file, but executor `slurm` submits a job script: use a copy of "
            "docker/slurm/workers.sbatch"
        )
    if not place.folder:
        raise ValueError(
            "executor `slurm` needs a folder on a disk that all nodes share: set GRISTMILL_SLURM_FOLDER, because "
            "GRISTMILL_HOME is not a folder"
        )
    if shutil.which("sbatch") is None:
        raise ValueError("executor `slurm` needs `sbatch` on the PATH: run on a machine that submits jobs of SLURM")


@contextmanager
def started(tasks: int, script: str, place: SlurmPlace) -> Iterator[Any]:
    """The cluster of this run, whose workers join when SLURM starts them. `tasks`: of the array; `script`: their job
    script.

    With the block the workers end. If a signal ends the block in a job of SLURM, which may be requeued, they wait for
    the next scheduler instead. Raises RuntimeError for an array that SLURM refuses.
    """
    from distributed import LocalCluster, Security  # before `dask.config.set`, which forgets what is set meanwhile

    job = os.environ.get("SLURM_JOB_ID")
    name = f"job-{job}" if job else f"run-{uuid.uuid4().hex[:12]}"
    meeting, array = Meeting(os.path.join(place.folder, name)), f"gristmill-{name}"
    meeting.open()
    # each loss of a worker is reported: who counts them knows which processes died, and which were taken away
    config = {**UNWATCHED, **NO_PAGES, "distributed.scheduler.allowed-failures": 0}
    logging.getLogger("distributed.scheduler").setLevel(logging.CRITICAL)  # a line or more for every lost worker
    security = Security.temporary()
    host = dask_utils.get_ip_interface(place.interface) if place.interface else dask_utils.get_ip()
    is_submitted = is_back_soon = False
    try:
        with dask.config.set(config), interrupts_held():
            cluster = LocalCluster(
                n_workers=0,
                threads_per_worker=1,
                host=host,
                protocol="tls://",
                security=security,
                dashboard_address="127.0.0.1:0",
                scheduler_kwargs={"dashboard": False},
                silence_logs=logging.CRITICAL,
            )
        with cluster:
            scheduler: Any = cluster.scheduler
            scheduler.add_plugin(_arrivals(meeting), name=_PLUGIN)
            restarts = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
            here = SchedulerPlace(uuid.uuid4().hex, cluster.scheduler_address, node_name(), time.time(), restarts)
            meeting.publish(here, security.tls_scheduler_cert, security.tls_scheduler_key)
            meeting.add_event(
                f"run started on {here.host}" + (f", restart {restarts} of job {job}" if restarts else "")
            )
            _submit(meeting, array, tasks, script)
            is_submitted = True
            try:
                yield cluster
            except BaseException as error:
                is_back_soon = bool(job) and not isinstance(error, Exception)
                raise
            finally:  # before the scheduler ends, so that its workers know why
                if is_back_soon:
                    meeting.withdraw()
                    meeting.add_event("run interrupted: workers wait for its next start")
                else:
                    meeting.end()
                    meeting.add_event("run ended")
    finally:
        if not is_back_soon:
            meeting.end()
        if is_submitted and not is_back_soon:
            try:
                _command(["scancel", "--me", f"--name={array}", "--state=PENDING"])
            except RuntimeError as error:
                log.warning("tasks of array %s that wait in the queue will end when they start: %s", array, error)


def crashed(client: Any) -> Collection[str] | None:
    """Addresses of worker processes that have died while their task of the array lived; None for a cluster of another
    kind, whose scheduler counts lost workers itself."""
    plugins = getattr(getattr(client.cluster, "scheduler", None), "plugins", {})
    return plugins[_PLUGIN].crashed if _PLUGIN in plugins else None


def worker_name(task: int, process: int, session: str) -> str:
    """The name of a worker process. `session`: differs each time that a task joins a scheduler."""
    return f"{task}-{process}-{session}"


def _arrivals(meeting: Meeting) -> Any:
    """A plugin of the scheduler that writes down which tasks of the array join and leave.

    A nanny starts a worker process that died again, under its name: that the process before has crashed is known by
    this. A task that SLURM has ended comes back under other names.
    """

    class Arrivals(distributed.SchedulerPlugin):
        name = _PLUGIN

        def __init__(self) -> None:
            self.crashed: set[str] = set()
            self._names: dict[str, str] = {}  # of workers, by address
            self._addresses: dict[str, str] = {}  # the newest one, by name
            self._present: dict[str, set[str]] = {}  # addresses of the workers of a task

        def add_worker(self, scheduler: Any, worker: str) -> None:
            name = str(scheduler.workers[worker].name)
            task, present = self._task(name)
            if (before := self._addresses.get(name)) is not None:
                self.crashed.add(before)
                meeting.add_event(f"task {task}: a worker process died and was started again")
            elif not present:
                meeting.add_event(f"task {task} joined")
            self._names[worker] = name
            self._addresses[name] = worker
            present.add(worker)

        def remove_worker(self, scheduler: Any, worker: str, **_: Any) -> None:
            if (name := self._names.get(worker)) is None:
                return
            task, present = self._task(name)
            present.discard(worker)
            if not present:
                meeting.add_event(f"task {task} left")

        def _task(self, name: str) -> tuple[str, set[str]]:
            task = name.partition("-")[0]
            return task, self._present.setdefault(task, set())

    return Arrivals()


def _submit(meeting: Meeting, array: str, tasks: int, script: str) -> None:
    """Submit the tasks of the array that are not in SLURM's queue. A requeued run finds tasks of its earlier start."""
    queued = _command(["squeue", "--noheader", "--array", "--me", f"--name={array}", "--format=%K"])
    present = {int(number) for number in queued.split() if number.isdecimal()}
    missing = [number for number in range(tasks) if number not in present]
    if not missing:
        return
    numbers = f"0-{tasks - 1}" if len(missing) == tasks else ",".join(map(str, missing))
    command = ["sbatch", "--parsable", f"--array={numbers}", f"--job-name={array}"]
    job = _command([*command, f"--output={meeting.workers}/%a.log", script, str(meeting.folder)]).strip()
    meeting.add_event(f"submitted {len(missing)} tasks as array {job}")
    log.info("submitted %d worker tasks as array %s; logs: %s", len(missing), job, meeting.workers)


def _command(command: list[str]) -> str:
    """What a command of SLURM prints. Raises RuntimeError with what it says of an error."""
    # what SLURM has set for the job of the run would be taken for options of the array
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_") or k == "SLURM_CONF"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        reason = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        settings = "GRISTMILL_CLUSTER, GRISTMILL_WORKERS and " if command[0] == "sbatch" else ""
        raise RuntimeError(f"{command[0]} failed: {reason}. Check {settings}`sinfo`")
    return done.stdout
