"""Hundreds of workers on one scheduler: all results arrive, and what the scheduler's only thread needs for each."""

import signal
import time
from collections import Counter

import pytest

from gristmill.tasks.engine import shared
from gristmill.tasks.engine.executors import executor
from tests.dask_stubs import nap, nothing
from tests.dask_workers import SECONDS, cluster, start

STAYING, LEAVING = 160, 40
JOBS = 4_000
# As long as the arguments of a job that measures documents.
TEXT = "/a/home/of/some/length/stages/documents-0123456789abcdef/part-00000.parquet" * 4


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_hundred_workers_of_which_some_leave(tmp_path, capsys, monkeypatch):
    """CPU time of the scheduler's process for a task with one job, and for a job among others in a task. Print both."""
    monkeypatch.setattr(shared, "MAX_TOGETHER", 0)  # so that each job is a task
    with cluster(tmp_path / "cluster", 0) as running:
        stubs = [
            start(
                tmp_path / f"stubs-{count}.log", ["tests.dask_stubs", running.address, str(count), str(tmp_path)],
                tmp_path,
            )
            for count in (STAYING, LEAVING)
        ]  # fmt: skip
        try:
            with executor("dask", address=running.address, home=str(tmp_path / "home")) as dask:
                dask.client.wait_for_workers(STAYING + LEAVING, timeout=SECONDS)

                def used() -> float:
                    return dask.client.run_on_scheduler(time.process_time)

                before = used()
                time.sleep(5)
                idle = (used() - before) / 5
                before, jobs, found = used(), [f"{TEXT}{number}" for number in range(JOBS)], {}
                for index, result in dask.map(nothing, jobs):
                    if len(found) == JOBS // 3:
                        stubs[1].send_signal(signal.SIGKILL)
                    assert index not in found, "each arrives once"
                    found[index] = result
                a_task = (used() - before) / JOBS
                assert [found[index] for index in range(JOBS)] == jobs
                assert dask.client.scheduler_info(n_workers=0)["total_threads"] == STAYING

                monkeypatch.undo()
                before = used()
                tasks = Counter(task for _, task in dask.map(nap, [0.01] * JOBS))
                a_job = (used() - before) / JOBS
                assert tasks.total() == JOBS
        finally:
            for process in stubs:
                process.kill()
                process.wait()
    with capsys.disabled():
        print(
            f"\n{1e3 * a_task:.2f} ms of CPU of the scheduler for a task; {1e3 * a_job:.2f} ms for each of "
            f"{JOBS:,} short jobs in {len(tasks):,} tasks, at most {max(tasks.values())} together; "
            f"{1e3 * idle:.1f} ms a second for {STAYING + LEAVING} workers without jobs"
        )
    assert len(tasks) < JOBS / 4 and a_job < a_task / 4
