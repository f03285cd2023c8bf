"""A stage of very many tiny shards on Dask by address: what flow, scheduler and markers cost a shard, and their memory.

GRISTMILL_TEST_SHARDS: how many, of several sizes, separated by commas. Flow, scheduler, two workers and the store share
the cores of one machine.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
import s3fs
import yaml

from gristmill.storage import checked_json, layout
from gristmill.tasks.engine.make import COST
from tests import services as servers

SIZES = [int(size) for size in os.environ.get("GRISTMILL_TEST_SHARDS", "1000,4000").split(",")]
COMMAND = "import sys; from gristmill.flows.cli import main; sys.argv = ['gristmill', 'corpus', sys.argv[1]]; main()"
SECONDS = 0.5  # between two looks at the processes


def plant(folder: Path, shards: int) -> Path:
    """So many files of one document each; the path of their recipe."""
    crawl = folder / "crawl"
    crawl.mkdir()
    for number in range(shards):
        text = f"Shard {number} has one document, of this one sentence, which nobody else has written down."
        (crawl / f"{number:05d}.jsonl").write_text(json.dumps({"text": text}))
    recipe = {
        "name": "many",
        "sources": [{"name": "web", "jsonl": [f"{crawl}/*.jsonl"], "shard_bytes": 1}],
        "steps": [{"step": "extract", "engine": "plain"}],
    }
    (folder / "many.yaml").write_text(yaml.safe_dump(recipe))
    return folder / "many.yaml"


@dataclass
class Used:
    """Of a process while it was looked at: CPU in seconds, resident memory in bytes, once in SECONDS."""

    before: float
    cpu: float
    memory: list[int]

    def look(self, process: psutil.Process) -> None:
        """Raises psutil.Error for a process that has ended."""
        times, memory = process.cpu_times(), process.memory_info().rss
        if memory:  # of one that nobody has waited for yet it is 0
            self.cpu = times.user + times.system - self.before
            self.memory.append(memory)


@dataclass
class Run:
    """Seconds of a run, and what its processes used, by name: those of the services, `flow`, `server` of Prefect."""

    seconds: float
    used: dict[str, Used]

    def cpu(self, name: str) -> float:
        return sum(used.cpu for each, used in self.used.items() if each.startswith(name))


def spawned(nanny: psutil.Process) -> psutil.Process | None:
    return next((each for each in nanny.children() if "spawn_main" in " ".join(each.cmdline())), None)


def run(services: servers.Services, recipe: Path, home: str) -> Run:
    environment = services.environment | {"GRISTMILL_HOME": home, "GRISTMILL_LOCAL": str(recipe.parent / "local")}
    watched = {name: psutil.Process(process.pid) for name, process in services.processes.items()}
    # a worker is a child of its nanny
    for name in [name for name in watched if "worker" in name]:
        watched[name] = services.until(f"worker of {name}", partial(spawned, watched[name]))
    used = {name: Used(sum(process.cpu_times()[:2]), 0.0, []) for name, process in watched.items()}
    used = defaultdict(lambda: Used(0.0, 0.0, []), used)
    with open(recipe.parent / "flow.log", "a") as log:
        began = time.monotonic()
        flow = subprocess.Popen([sys.executable, "-c", COMMAND, str(recipe)], env=environment, stdout=log, stderr=log)
        watched["flow"] = psutil.Process(flow.pid)
        while flow.poll() is None:
            for name, process in watched.items():
                with contextlib.suppress(psutil.Error):  # it ended just now
                    used[name].look(process)
            with contextlib.suppress(psutil.Error):
                for child in watched["flow"].children():
                    if "gristmill.flows.run.server" in child.cmdline():
                        watched["server"] = child
            time.sleep(SECONDS)
        seconds = time.monotonic() - began
    assert flow.returncode == 0, (recipe.parent / "flow.log").read_text()[-4000:]
    return Run(seconds, used)


@dataclass
class Measured:
    """`jobs`: the CPU time that the work of the shards itself took, without their markers."""

    shards: int
    made: Run
    again: Run
    jobs: float

    @property
    def cpu(self) -> float:
        return sum(used.cpu for used in self.made.used.values())

    def lines(self) -> list[str]:
        names = ("flow", "server", "dask-scheduler", "dask-worker", "s3")
        cpu = ", ".join(f"{name} {1e3 * self.made.cpu(name) / self.shards:.1f}" for name in names)
        beside = (self.cpu - self.jobs) / self.shards
        said = [
            f"{self.shards} shards: {self.made.seconds / self.shards:.4f} s each, again in {self.again.seconds:.1f} s",
            f"  CPU a shard, ms: {cpu}; {1e3 * beside:.1f} of all beside the work of the jobs",
        ]
        for name in ("flow", "dask-scheduler", "server"):
            at = self.made.used[name].memory
            series = ", ".join(f"{at[min(len(at) * part // 8, len(at) - 1)] / 1e6:.0f}" for part in range(9))
            said.append(f"  {name}, MB over time: {series}; at most {max(at) / 1e6:.0f}")
        return said


def further(small: Measured, large: Measured) -> str:
    """What a further shard costs: the difference of two sizes, without what a run costs once."""
    more = large.shards - small.shards
    seconds = (large.made.seconds - small.made.seconds) / more
    again = 1e3 * (large.again.seconds - small.again.seconds) / more
    cpu = (large.cpu - small.cpu - large.jobs + small.jobs) / more
    memory = [
        f"{name} {(max(large.made.used[name].memory) - max(small.made.used[name].memory)) / 1e3 / more:.1f}"
        for name in ("flow", "dask-scheduler", "server")
    ]
    costs = f"{seconds:.4f} s, {1e3 * cpu:.1f} ms of CPU beside its job, {again:.2f} ms of reuse"
    return f"a further shard: {costs}; kB of memory: {', '.join(memory)}"


@pytest.mark.bench
@pytest.mark.timeout(12 * 3600)
@pytest.mark.parametrize("store", ["folder", "s3"])
def test_many_tiny_shards(tmp_path, capsys, store):
    measured = []
    for shards in SIZES:
        folder = tmp_path / str(shards)
        with servers.begun(folder / "services") as services, pytest.MonkeyPatch.context() as patch:
            home = str(folder / "home")
            if store == "s3":
                servers.start_s3(services)
                for name in services.environment.keys() - os.environ.keys():
                    patch.setenv(name, services.environment[name])
                # the server of the size before, which this process would ask again, is gone
                s3fs.S3FileSystem.clear_instance_cache()
                home = "s3://gristmill/many"
            servers.start_dask(services, 2)
            measured.append(measure(services, plant(folder, shards), home, shards))
        with capsys.disabled():
            print(f"\n{store}: " + "\n".join(measured[-1].lines()), flush=True)
    with capsys.disabled():
        for small, large in pairwise(measured):
            print(f"{store}, {small.shards} to {large.shards}: {further(small, large)}")


def measure(services: servers.Services, recipe: Path, home: str, shards: int) -> Measured:
    made, again = run(services, recipe, home), run(services, recipe, home)
    said = (recipe.parent / "flow.log").read_text().splitlines()
    [label] = [line.split("stages/")[1].split(",")[0] for line in said if ": made in" in line]
    stage = f"{home}/stages/{label}"
    assert sum(f"reused {stage}" in line for line in said) == 1
    manifest = layout.manifest(stage)
    assert manifest is not None and manifest["counts"]["rows_out"] == shards
    phases = checked_json.read(f"{stage}/{COST}")["phases"].values()
    return Measured(shards, made, again, sum(phase["cpu_seconds"] for phase in phases))
