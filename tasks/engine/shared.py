"""The common part of the jobs of a phase on a Dask cluster: the flow writes it to a file, and each worker reads it
once.

All workers can read the file: it is in the home, or in a local folder if the workers are on this machine. Jobs have its
name and digest, so a worker that starts late, or restarts, needs no message. As an argument it would be sent with each
task. As a Dask result it would attract tasks to the workers that hold it. In the scheduler's metadata, hundreds of
workers would request it at the same moment.
"""

import hashlib
import math
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import wrapt

from gristmill.storage import exclusive, files, leftovers
from gristmill.storage.printable import redact_url
from gristmill.storage.remote.retry import RemoteIOError
from gristmill.tasks.engine.code_version import is_ours

if TYPE_CHECKING:
    from distributed.protocol import pickle
else:
    pickle = wrapt.lazy_import("distributed.protocol.pickle")


def check_workers(client: Any) -> None:
    """Raise ImportError if a worker lacks the code of the jobs."""

    def import_jobs() -> str:
        """Sent as code, since a worker that lacks a module could not find it there."""
        try:
            from importlib import import_module

            for module in ("gristmill.tasks.engine.executors", "gristmill.tasks.engine.jobs"):
                import_module(module)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""

    # one that leaves meanwhile is no error
    for worker, trouble in client.run(import_jobs, on_error="ignore").items():
        if trouble:
            raise ImportError(cannot_import(f"the worker {worker}", trouble))


def cannot_import(worker: str, trouble: ImportError | str) -> str:
    return (
        f"{worker} cannot import what its jobs need ({trouble}): install the same code there as on "
        "the machine of the flow"
    )


# Works that a process keeps: of its current phase, and of a run that shares the cluster.
_KEPT = 4

# Seconds that the jobs of a task may take, at least, and how many are sent together for each so many seconds.
SECONDS, MAX_TOGETHER = 0.25, 64

# CPU seconds of the scheduler's only thread for a task, whatever is in it, with the heartbeats of 200 workers that have
# two otherwise idle cores with it: tests/tasks/engine/test_many_workers.py prints it. At a load of 8 to 16 it was 2.6
# to 3.5 ms.
TASK_COST = 0.002
# The same of the flow for each job, 0.3 to 0.4 ms: the difference of the runs of tests/benchmarks/test_engine_jobs.py.
JOB_COST = 0.0004

# The share of its time that a scheduler may be busy with tasks that end. The rest is for heartbeats and log lines of
# the workers, for the flow, whose process it shares, and for a slower machine.
MAX_SCHEDULER_SHARE = 0.5

# How often jobs are sent that no worker could begin. Before each further time their worker waits, twice as long as
# before: together two minutes, in which a store recovers and a file system of several machines shows a new file.
ATTEMPTS = 8

_lock = threading.Lock()
_kept: dict[str, Callable[[Any], Any]] = {}


class TaskSize(NamedTuple):
    """`seconds`: after these, a task gives back the jobs that it has not begun; `jobs`: that are sent together."""

    seconds: float
    jobs: int


SINGLE = TaskSize(SECONDS, 1)


@dataclass(frozen=True)
class SharedWork:
    """The file with the work of a phase. `digest`: sha256 of its bytes, hexadecimal."""

    path: str
    digest: str


@dataclass(frozen=True)
class NotBegun:
    """A worker could not read the work. No job has failed: they are sent again."""

    reason: str


def leave(folder: str, work: Callable[[Any], Any]) -> SharedWork:
    """Write the work of a phase into a folder, under a name with this process. Raises OSError, RemoteIOError."""
    data = dumps(work)
    digest = hashlib.sha256(data).hexdigest()
    path = files.join(folder, leftovers.temporary_name(digest[:16]))
    files.write_bytes(path, data)
    return SharedWork(path, digest)


def take_back(work: SharedWork) -> None:
    """Remove the work of a phase that has ended."""
    files.remove(work.path)


def works(folder: str) -> dict[str, str]:
    """The files of works in a local or remote folder, each with the process that wrote it."""
    return {files.join(folder, name): owner for name in exclusive.names(folder) if (owner := leftovers.owner_of(name))}


def remove_leftovers(folder: str) -> None:
    """Remove the works of processes of this host that were killed in a phase."""
    for path, owner in works(folder).items():
        if leftovers.has_ended(owner):
            files.remove(path)


def dumps(value: Any) -> bytes:
    """Serialize as Dask does, including functions of a script that workers do not have."""
    return pickle.dumps(value)


def task_size(threads: int, job_seconds: float, remaining: int) -> TaskSize:
    """Return how many jobs to send together so that the scheduler is not the limit.

    `threads` finish tasks of s seconds at a rate of threads / s, so s is chosen such that the scheduler is busy for
    MAX_SCHEDULER_SHARE of the time. Among the last jobs of a phase, fewer are sent together so that all threads get
    some: tasks of n jobs keep the scheduler busy for TASK_COST * remaining / n, and the last one takes
    n * job_seconds. The n that makes both equal is best. `remaining`: jobs that are not sent yet; 0 if unknown.
    """
    lasting = threads * TASK_COST / MAX_SCHEDULER_SHARE
    seconds = max(SECONDS, min(lasting, math.sqrt(TASK_COST * remaining * job_seconds)))
    most = MAX_TOGETHER * seconds / SECONDS
    return TaskSize(seconds, max(1, int(min(most, math.ceil(seconds / max(job_seconds, 1e-6))))))


def call(work: SharedWork, jobs: bytes, attempt: int, seconds: float = SECONDS) -> tuple[list[Any] | NotBegun, float]:
    """Do jobs on a worker with the work that `leave` has written, until `seconds` have passed. Returns the results of
    the finished jobs, and the seconds. `attempt`: how often they were sent before. Raises the error of a job."""
    time.sleep(2.0 ** (attempt - 1) if attempt else 0.0)
    try:
        function = _work(work)
    except (OSError, RemoteIOError) as error:
        return NotBegun(f"{type(error).__name__}: {error}"), 0.0
    results: list[Any] = []
    began = time.monotonic()
    for job in pickle.loads(jobs):
        results.append(function(job))
        if (took := time.monotonic() - began) > seconds:
            break
    return results, took


def _work(work: SharedWork) -> Callable[[Any], Any]:
    with _lock:  # threads of a worker would each read it
        if work.digest not in _kept:
            _kept[work.digest] = _read(work)
            while len(_kept) > _KEPT:
                del _kept[next(iter(_kept))]
        return _kept[work.digest]


def _read(work: SharedWork) -> Callable[[Any], Any]:
    data = files.read_bytes(work.path)
    if hashlib.sha256(data).hexdigest() != work.digest:  # what is unpickled runs: only what the flow has written
        raise OSError(f"{redact_url(work.path)} differs from what the run wrote")
    return pickle.loads(data)


def not_begun(path: str, trouble: NotBegun) -> str:
    """The message of a run that ends because no worker could begin its jobs."""
    return (
        f"workers cannot read the file that their jobs need, {redact_url(path)} ({trouble.reason}): set "
        "GRISTMILL_HOME to a folder or a store that all workers can reach under the same name"
    )


def killed(jobs: list[Any], work: Callable[[Any], Any]) -> str:
    """The message of a run that ends because its workers died at these jobs of a phase."""
    others = f", or one of the {len(jobs) - 1} after it" if len(jobs) > 1 else ""
    phase = next(iter(getattr(work, "args", ())), None)
    own = [name for name in getattr(getattr(phase, "code", None), "modules", ()) if not is_ours(name)]
    if not own:
        return f"workers died repeatedly, most likely out of memory, at {jobs[0]}{others}"
    paths = ", ".join(getattr(sys.modules.get(name), "__file__", None) or name for name in own)
    return (
        f"workers died repeatedly at {jobs[0]}{others}, where they run your own code ({paths}): they ran out "
        "of memory, or that code ended its process, for example with os._exit or a crash in a C library"
    )
