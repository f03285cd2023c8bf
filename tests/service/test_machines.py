"""Several machines that share nothing but a network and an object store: a run of tokens, and what may befall it.

    python -m pytest -m service -s tests/service/test_machines.py

Machines are namespaces of this one (`tests.namespaces`). Whatever happens, the token shards are those of the undisturbed
run.
"""

import signal
import time
from collections.abc import Iterator

import pytest

from tests import namespaces
from tests.machine_runs import Outcome, Service, environment, finish, said, service
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
    process = here.gristmill(run, "a", "tokens", f"{here.machine('a').home}/recipe.yaml")
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


def test_machines_see_each_other_by_the_network_alone(here, undisturbed):
    a, w1 = here.machine("a"), here.machine("w1")
    for one, other in ((a, w1), (w1, a)):
        assert set(here.machines.ask(one, "ls", "/tmp").split()) == {one.name, "shared"}
        with pytest.raises(RuntimeError):
            here.machines.ask(one, "ls", other.home)
        with pytest.raises(RuntimeError, match="Read-only"):
            here.machines.ask(one, "touch", __file__)


def test_a_worker_machine_disappears(here, undisturbed):
    """Its link is down for good, and all of its processes end: nobody is told."""
    began = time.monotonic()
    process = begun(here, "gone")
    w2 = here.machine("w2")
    here.machines.link(w2, "down")
    here.machines.power_off(w2)
    checked(here, "gone", "a worker's machine disappears", began, process, undisturbed)


def test_a_link_is_cut_for_a_minute(here, undisturbed):
    began = time.monotonic()
    process = begun(here, "cut")
    w2 = here.machine("w2")
    here.machines.link(w2, "down")
    time.sleep(60)
    here.machines.link(w2, "up")
    checked(here, "cut", "a worker's link is cut for 60 s", began, process, undisturbed)


def test_the_store_refuses_is_silent_and_is_slow(here, undisturbed):
    """503 for 15 s, then no answer for 20 s, then 0.3 s a request for half a minute."""
    began = time.monotonic()
    process = begun(here, "store")
    here.trouble(status=503)
    time.sleep(15)
    here.trouble()
    store = here.started["s3"]
    store.send(signal.SIGSTOP)
    time.sleep(20)
    store.send(signal.SIGCONT)
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
        until("time", lambda end=time.monotonic() + 30: process.popen.poll() is not None or time.monotonic() > end)
    assert lost > 2
    checked(here, "spot", f"spot workers, {lost} were ended", began, process, undisturbed)
