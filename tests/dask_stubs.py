"""Many Dask workers in one process, and jobs for them: `python -m tests.dask_stubs ADDRESS COUNT FOLDER`.

Each is a worker of Dask with one thread and a connection of its own, so a scheduler sees as many workers as on a large
cluster. Only their processes are missing, which would not fit on a small machine.
"""

import asyncio
import sys
import time

import dask
from distributed import Worker, get_worker

from gristmill.tasks.engine.dask_processes import UNWATCHED


def nothing(text: str) -> str:
    return text


def nap(seconds: float) -> str:
    """The task of Dask's that this job is in."""
    time.sleep(seconds)
    return str(get_worker().get_current_task())


async def _work(address: str, count: int, folder: str) -> None:
    # watching one process two hundred times would be most of what it does
    monitor = {"distributed.admin.system-monitor.interval": "1h", "distributed.admin.tick.interval": "1m"}
    with dask.config.set({**UNWATCHED, **monitor, "temporary-directory": folder}):
        workers = [
            Worker(address, nthreads=1, host="127.0.0.1", dashboard_address=None, memory_limit=0) for _ in range(count)
        ]
        for worker in workers:  # one after the other, so that none waits too long for the scheduler
            await worker
        await asyncio.gather(*(worker.finished() for worker in workers))


if __name__ == "__main__":
    asyncio.run(_work(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
