"""A Dask scheduler and its workers on loopback, processes of their own, as `dask scheduler` and `dask worker` start
them."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 120  # for a process to start


@dataclass
class Cluster:
    address: str
    folder: Path
    workers: dict[str, subprocess.Popen] = field(default_factory=dict)

    def start_worker(self, name: str, *options: str) -> None:
        """Start a worker with one thread and no nanny, so that a killed one stays away."""
        place = self.folder / name
        place.mkdir()
        command = ["distributed.cli.dask_worker", self.address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
        command += ["--dashboard-address", "127.0.0.1:0", "--host", "127.0.0.1", "--name", name]
        command += ["--local-directory", str(place), "--memory-limit", "0", *options]
        self.workers[name] = start(self.folder / f"{name}.log", command, cwd=place)

    def runs(self, name: str) -> list[psutil.Process]:
        """The training processes that a worker has."""
        return psutil.Process(self.workers[name].pid).children(recursive=True)


def start(log: Path, command: list[str], cwd: Path) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with open(log, "w") as output:
        return subprocess.Popen(
            [sys.executable, "-m", *command], env=environment, cwd=cwd, stdout=output, stderr=subprocess.STDOUT
        )


@contextmanager
def cluster(folder: Path, workers: int, *options: str) -> Iterator[Cluster]:
    """A scheduler with so many workers; `options`: further ones of each worker."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "scheduler.json"
    command = ["distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
    command += ["--dashboard-address", "127.0.0.1:0", "--scheduler-file", str(file)]
    scheduler = start(folder / "scheduler.log", command, folder)
    running = Cluster("", folder)
    try:
        until = time.monotonic() + SECONDS
        while not running.address:
            assert scheduler.poll() is None and time.monotonic() < until, (folder / "scheduler.log").read_text()
            time.sleep(0.1)
            if file.exists() and '"address": "' in (text := file.read_text()):
                running.address = text.partition('"address": "')[2].partition('"')[0]
        for number in range(workers):
            running.start_worker(f"w{number}", *options)
        yield running
    finally:
        for process in (*running.workers.values(), scheduler):
            process.kill()
            process.wait()
