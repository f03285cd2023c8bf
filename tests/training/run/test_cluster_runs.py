"""Proxy runs that workers of a cluster make: the bytes of local ones, whatever happens to the workers."""

import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from gristmill.flows.machine.context import RunContext
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.stages.proxy import train_proxies
from gristmill.tasks.engine import clusters
from gristmill.tasks.engine.executors import deferred
from gristmill.tasks.engine.lease import lease
from gristmill.tasks.engine.stage_jobs import StageJob, made_by_workers
from tests import dask_workers
from tests.corpora import build_in
from tests.training.run.test_proxy_runs import context, ranks, run, same, trainings, written


@contextmanager
def by_workers(home: Path, address: str, sent: list | None = None):
    """A context whose runs are made by the workers at an address; `sent`: takes up how many, and the largest job."""
    settings = MachineSettings(home=str(home), executor="dask", dask_address=address)
    with deferred("dask", address=address, home=str(home)) as executor:
        executor.map(len, ())  # starts it in this thread, which also ends it

        def at_once(specs, most, jobs):
            first = [spec(0) for spec in specs]
            made = {number: stage for number, stage, _ in made_by_workers(str(home), executor, jobs, first)}
            if sent is not None:
                largest = max(len(pickle.dumps(StageJob(first[0].key, each, True))) for each in jobs.arguments)
                sent.append((len(first), largest))
            return [made[number] for number in range(len(first))]

        yield RunContext(settings, build_in(str(home)), at_once=at_once)


def trains(cluster: dask_workers.Cluster, worker: str, folder: Path) -> bool:
    own = {each.pid for each in cluster.runs(worker)}
    return any(each.pid in own for each in ranks(folder))


@pytest.mark.slow
def test_runs_of_workers_have_the_bytes_of_local_ones_though_two_of_three_die(corpus, tmp_path):
    """Workers are killed while they train, and their runs are taken over."""
    given = [run(corpus, pair, rate) for pair in range(3) for rate in (0.003, 0.01)]
    expected = train_proxies(context(tmp_path / "local", runs=1), given)
    home, sent = tmp_path / "home", []
    with dask_workers.cluster(tmp_path / "cluster", 3) as cluster, by_workers(home, cluster.address, sent) as ours:
        with ThreadPoolExecutor(1) as thread:
            results = thread.submit(train_proxies, ours, given)
            for victim in ("w0", "w1"):
                until = time.monotonic() + 240
                while not trains(cluster, victim, tmp_path):
                    assert time.monotonic() < until and not results.done()
                    time.sleep(0.02)
                cluster.workers[victim].kill()
            found = results.result()
        assert all(map(same, found, expected)) and not any(each.reused for each in found)
        assert written(home) == written(tmp_path / "local")
        (again,) = train_proxies(ours, given[:1])
        assert again.reused
    assert all(size < 2_000 for _, size in sent)
    assert ranks(tmp_path) == []


@pytest.mark.slow
def test_a_worker_makes_other_runs_while_another_process_has_one(corpus, tmp_path):
    """The run whose lease is held comes last, and is made when the lease is free."""
    given = [run(corpus, pair) for pair in range(3)]
    with (
        dask_workers.cluster(tmp_path / "cluster", 1) as cluster,
        by_workers(tmp_path / "home", cluster.address) as ours,
    ):
        train_proxies(context(tmp_path / "local", runs=1), given)
        first = next(iter(trainings(tmp_path / "local")))
        with ThreadPoolExecutor(1) as thread:
            with lease(str(tmp_path / "home" / "stages" / first), print):
                results = thread.submit(train_proxies, ours, given)
                until = time.monotonic() + 240
                while len(list(tmp_path.glob("home/stages/*/manifest.json"))) < 2:
                    assert time.monotonic() < until and not results.done()
                    time.sleep(0.05)
                assert not (tmp_path / "home" / "stages" / first / "manifest.json").exists()
            results.result()
    assert written(tmp_path / "home") == written(tmp_path / "local")


@pytest.mark.slow
def test_a_flow_that_ends_takes_its_runs_from_the_workers(corpus, tmp_path):
    given = [run(corpus, pair) for pair in range(6)]
    with dask_workers.cluster(tmp_path / "cluster", 2) as cluster:
        with by_workers(tmp_path / "home", cluster.address) as ours:
            wrong = run(tmp_path / "nowhere" / "mixture.json", 9)
            with pytest.raises(RuntimeError, match=r"the proxy run .* ended: rank 0: MissingFileError"):
                train_proxies(ours, [*given, wrong])
        until = time.monotonic() + 60
        while ranks(tmp_path):
            assert time.monotonic() < until
            time.sleep(0.05)
        assert len(list(tmp_path.glob("home/stages/*/manifest.json"))) < len(given)
        assert all(process.poll() is None for process in cluster.workers.values())


class Scheduler:
    """What a client is told of its workers: none at first."""

    def __init__(self, *gpus: int) -> None:
        self.answers = [{}, {str(i): {"resources": {"GPU": n} if n else {}} for i, n in enumerate(gpus)}]

    def scheduler_info(self, n_workers: int) -> dict:
        return {"workers": self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]}


@pytest.mark.parametrize(
    ("gpus", "processes", "asked"),
    [((0, 0), 1, {}), ((0, 1), 1, {"GPU": 1}), ((4, 2), 4, {"GPU": 4}), ((0, 0), 4, {})],
)
def test_runs_ask_for_gpus_where_a_worker_has_them(gpus, processes, asked):
    assert clusters.resources(Scheduler(*gpus), processes) == asked


def test_more_gpus_than_a_worker_has_are_refused():
    with pytest.raises(ValueError, match="needs 4 GPUs on one machine, but no worker has more than 2: start workers"):
        clusters.resources(Scheduler(2, 2, 0), 4)
