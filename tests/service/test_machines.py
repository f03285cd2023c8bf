"""Several machines that share nothing but a network and an object store: a run of tokens, and what may befall it.

    python -m pytest -m service -s tests/service/test_machines.py

Machines are namespaces of this one (`tests.namespaces`). Whatever happens, the token shards are those of the run to
which nothing happens.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from tests import namespaces
from tests.machine_runs import Outcome, Service, environment, finish, said, service, train
from tests.namespaces import until

pytestmark = [pytest.mark.service, pytest.mark.timeout(1800)]

STAGE = "documents"
_table: list[Outcome] = []


@pytest.fixture(scope="module")
def here(tmp_path_factory, sharded) -> Iterator[Service]:
    if lacking := namespaces.missing():
        pytest.skip(f"this machine lacks {lacking}")
    folder = tmp_path_factory.mktemp("machines")
    crawl = folder / "crawl"
    crawl.symlink_to(sharded["sources"][0]["warc"][0].rpartition("/")[0])
    extract, *others = sharded["steps"]
    recipe = sharded | {"steps": [extract, {"step": "tests.slow_step:Slow"}, *others]}
    with namespaces.machines(folder / "logs", environment()) as machines:
        yield service(machines, recipe, crawl, folder / "certificate")
    print("\n" + "\n".join(outcome.line() for outcome in _table), flush=True)


def workers(here: Service) -> None:
    """Both, whatever a test before has left of them."""
    for name in ("w1", "w2"):
        if name not in here.machines.running or here.workers[name].popen.poll() is not None:
            here.worker(name)


def begun(here: Service, run: str) -> namespaces.Process:
    """A run of tokens, in the middle of a stage."""
    workers(here)
    process = here.gristmill(run, "a", "run", "--tokens-only", f"{here.machine('a').home}/recipe.yaml")
    until("jobs", lambda: here.done(run, STAGE) > 3, process)
    return process


@pytest.fixture(scope="module")
def undisturbed(here) -> dict[str, str]:
    """The digests of the token shards."""
    began = time.monotonic()
    process = begun(here, "undisturbed")
    assert process.popen.wait(1500) == 0, process.said()
    found = here.token_shards("undisturbed")
    assert len(found) > 2
    _table.append(Outcome("none", 0, time.monotonic() - began, said(process.said()), True))
    return found


def checked(here: Service, run: str, trouble: str, began: float, process: namespaces.Process, expected: dict) -> None:
    outcome = finish(here, run, trouble, began, process, expected)
    _table.append(outcome)
    print("\n" + outcome.line(), *outcome.said, sep="\n", flush=True)
    assert outcome.rc == 0, process.said()[-4000:]
    assert outcome.equal


def test_machines_share_a_network_and_nothing_else(tmp_path):
    if lacking := namespaces.missing():
        pytest.skip(f"this machine lacks {lacking}")
    with namespaces.machines(tmp_path / "logs", dict(os.environ)) as machines:
        one, other = machines.boot("one", 1), machines.boot("other", 2)
        for here, there in ((one, other), (other, one)):
            assert machines.ask(here, "hostname").strip() == here.name
            assert machines.ask(here, "ls", "/tmp").split() == [here.name]
            with pytest.raises(RuntimeError, match="No such file"):
                machines.ask(here, "ls", there.home)
            with pytest.raises(RuntimeError, match="Read-only"):
                machines.ask(here, "touch", "/usr/written")
        served = machines.start(one, "web", sys.executable, "-m", "http.server", "--bind", one.address, "8000")

        def answers() -> bool:
            program = f"import urllib.request; urllib.request.urlopen('http://{one.address}:8000', timeout=3)"
            try:
                machines.ask(other, sys.executable, "-c", program)
            except RuntimeError:
                return False
            return True

        until("answer", answers, served, 60)
        machines.link(other, "down")
        assert not answers()
        machines.link(other, "up")
        until("answer over the link", answers, served, 60)
        served.pause()
        assert not answers()
        served.go_on()
        until("answer of a process that continues", answers, served, 60)
        machines.power_off(one)
        assert served.popen.wait(20) != 0
        assert not answers()
        folder, holders = machines.folder, [other.holder.pid, machines.switch.holder.pid]
    assert not folder.exists()
    assert not any(psutil.pid_exists(pid) for pid in holders)


def test_a_worker_machine_disappears(here, undisturbed):
    """Its link is down for good, and all of its processes end: nobody is told."""
    began = time.monotonic()
    process = begun(here, "gone")
    w2 = here.machine("w2")
    here.machines.link(w2, "down")
    here.machines.power_off(w2)
    checked(here, "gone", "a worker's machine disappears", began, process, undisturbed)


def test_a_link_is_cut_for_a_minute(here, undisturbed):
    """A worker without its scheduler ends by itself after 30 s; a service manager starts it again, and it waits."""
    run, began = "cut", time.monotonic()
    process = begun(here, run)
    w2 = here.machine("w2")
    here.machines.link(w2, "down")
    end = time.monotonic() + 60
    while time.monotonic() < end:
        workers(here)
        time.sleep(1)
    here.machines.link(w2, "up")
    while process.popen.poll() is None and time.monotonic() < end + 1200:
        workers(here)
        time.sleep(1)
    checked(here, run, "a worker's link is cut for 60 s", began, process, undisturbed)


def test_the_store_refuses_is_silent_and_is_slow(here, undisturbed):
    """503 for 15 s, then no answer for 20 s, then 0.3 s a request for half a minute."""
    began = time.monotonic()
    process = begun(here, "store")
    here.trouble(status=503)
    time.sleep(15)
    here.trouble()
    store = here.started["s3"]
    store.pause()
    time.sleep(20)
    store.go_on()
    here.trouble(delay=0.3)
    time.sleep(30)
    here.trouble()
    checked(here, "store", "the store: 503, silent, slow", began, process, undisturbed)


def test_spot_workers_come_and_go(here, undisturbed):
    """Every 30 s one of the two ends, by SIGTERM and by SIGKILL in turn, and another one comes."""
    began = time.monotonic()
    process = begun(here, "spot")
    lost = 0
    while process.popen.poll() is None and time.monotonic() - began < 1200:
        name = ("w1", "w2")[lost % 2]
        here.workers[name].kill((signal.SIGTERM, signal.SIGKILL)[lost // 2 % 2])
        here.worker(name)
        lost += 1
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.popen.wait(30)
    assert lost > 2
    checked(here, "spot", f"spot workers, {lost} were ended", began, process, undisturbed)


@pytest.fixture(scope="module")
def trained(here, undisturbed) -> str:
    """The digest of the weights that two machines train."""
    began = time.monotonic()
    here.copy("undisturbed", "trained")
    first, second = train(here, "trained")
    assert (first.popen.wait(1500), second.popen.wait(60)) == (0, 0), first.said() + second.said()
    assert here.result("trained")["steps"] == here.recipe["training"]["steps"]
    lines = said(first.said() + second.said())
    _table.append(Outcome("training: none", 0, time.monotonic() - began, lines, True))
    return here.weights("trained")


def test_two_machines_train_like_two_processes_of_one(here, undisturbed, trained):
    run = "alone"
    here.copy("undisturbed", run)
    recipe = f"{here.machine('a').home}/recipe.yaml"
    process = here.gristmill(run, "a", "run", recipe, executor="serial", training_processes="2")
    assert process.popen.wait(1500) == 0, process.said()
    difference = here.difference(run, "trained")
    print(f"\nlargest difference of the weights: {difference}", flush=True)
    assert difference <= 1e-6


def in_training(here: Service, run: str, process: namespaces.Process) -> None:
    """Some steps behind a checkpoint."""
    folder = here.machine("a").disk / "a" / f"local-{run}"

    def steps() -> int:
        return sum(path.read_bytes().count(b"\n") for path in folder.glob("**/metrics.jsonl"))

    until("steps", lambda: steps() > 110, process)


def test_a_link_is_cut_for_a_minute_in_training(here, undisturbed, trained):
    began, run = time.monotonic(), "training-cut"
    here.copy("undisturbed", run)
    first, second = train(here, run)
    in_training(here, run, first)
    here.machines.link(here.machine("w1"), "down")
    time.sleep(60)
    here.machines.link(here.machine("w1"), "up")
    codes = first.popen.wait(1500), second.popen.wait(60)
    lines = said(first.said() + second.said())
    equal = codes == (0, 0) and here.weights(run) == trained
    _table.append(Outcome("training: a link is cut for 60 s", max(codes), time.monotonic() - began, lines, equal))
    assert codes == (0, 0), first.said()[-4000:] + second.said()[-4000:]
    assert equal


def test_a_machine_disappears_in_training(here, undisturbed, trained):
    """The run ends; the same commands go on from a checkpoint, to the same weights. The machine comes back with an
    empty disk."""
    began, run = time.monotonic(), "training-gone"
    here.copy("undisturbed", run)
    first, _ = train(here, run)
    in_training(here, run, first)
    here.machines.power_off(here.machine("w1"))
    assert first.popen.wait(1500) != 0
    print("\n", *first.said().splitlines()[-8:], sep="\n", flush=True)
    ended = time.monotonic()
    _table.append(Outcome("training: a machine disappears", first.popen.returncode, ended - began, [], True))
    first, second = train(here, run)
    codes = first.popen.wait(1500), second.popen.wait(60)
    equal = codes == (0, 0) and here.weights(run) == trained
    _table.append(Outcome("training: the same commands again", max(codes), time.monotonic() - ended, [], equal))
    assert codes == (0, 0), first.said()[-4000:] + second.said()[-4000:]
    assert "resuming from" in first.said()
    assert equal


def test_join_says_where_the_run_is_to_begin(here, undisturbed):
    recipe = f"{here.machine('w1').home}/recipe.yaml"
    joined = here.gristmill("undisturbed", "w1", "train", "join", recipe, "--wait", "3", **here.training("w1"))
    assert joined.popen.wait(120) == 1
    assert f"start the run on node 0 first, whose home must also be {here.home('undisturbed')}" in joined.said()
