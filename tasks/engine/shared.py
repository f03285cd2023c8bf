"""What all jobs of a phase share, on a Dask cluster: the flow leaves it with the scheduler, workers ask for it once.

It is among the scheduler's metadata, from where a worker that starts late, or again, has it, too. As an argument of
tasks it would be sent with each of them, and as a result of Dask's it would draw tasks to the workers that hold it.
"""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import wrapt

if TYPE_CHECKING:
    import distributed
    from distributed.protocol import pickle
else:
    distributed = wrapt.lazy_import("distributed")
    pickle = wrapt.lazy_import("distributed.protocol.pickle")


def check_workers(client: Any) -> None:
    """Raise ImportError for a worker that has not the code which jobs need."""

    def import_jobs() -> str:
        """Sent as code, since a worker that lacks a module could not find it there."""
        try:
            from importlib import import_module

            for module in ("gristmill.tasks.engine.executors", "gristmill.tasks.engine.jobs"):
                import_module(module)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return ""

    for worker, trouble in client.run(import_jobs).items():
        if trouble:
            raise ImportError(cannot_import(f"the worker {worker}", trouble))


def cannot_import(worker: str, trouble: ImportError | str) -> str:
    return f"{worker} cannot import what its jobs need ({trouble}): install the same code there as where the flow runs"


# Works that a process keeps: those of the phase that it is in, and of a run that shares the cluster.
_KEPT = 4

# Of jobs that are sent together, since each takes less: the others of theirs are sent again when so long has passed.
SECONDS = 0.25

_lock = threading.Lock()
_kept: dict[tuple[str, int], Callable[[Any], Any]] = {}


def give(client: Any, run: str, number: int, work: Callable[[Any], Any]) -> None:
    """Leave work number `number` of a run with the scheduler."""
    client.set_metadata([run, number], dumps(work))


def take_back(client: Any, run: str, number: int) -> None:
    """Forget work number `number` of a run."""
    client.set_metadata([run, number], None)


def dumps(value: Any) -> bytes:
    """As Dask sends values, functions of a script that nobody else has included."""
    return pickle.dumps(value)


def call(run: str, number: int, jobs: bytes) -> tuple[list[Any], float]:
    """Do some jobs, on a worker, by the work that `give` has left, until SECONDS have passed: the results of those that
    were done, and seconds. Raises LookupError for a run that has ended."""
    work, results = _work(run, number), []
    began = time.monotonic()
    for job in pickle.loads(jobs):
        results.append(work(job))
        if (took := time.monotonic() - began) > SECONDS:
            break
    return results, took


def _work(run: str, number: int) -> Callable[[Any], Any]:
    with _lock:  # threads of a worker would each ask
        if (run, number) not in _kept:
            _kept[run, number] = _fetch_work(run, number)
            while len(_kept) > _KEPT:
                del _kept[next(iter(_kept))]
        return _kept[run, number]


def _fetch_work(run: str, number: int) -> Callable[[Any], Any]:
    worker = distributed.get_worker()
    metadata = distributed.utils.sync(worker.loop, worker.scheduler.get_metadata, keys=[run], default=None)
    if not metadata or not metadata.get(number):
        raise LookupError(f"{run} has ended: nobody waits for this job any more")
    return pickle.loads(metadata[number])
