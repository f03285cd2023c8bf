"""A process that forks runs: its door, the messages of a run, and runs that end in all ways."""

import multiprocessing
import os
import signal
import socket
import stat
import sys
from pathlib import Path

import psutil
import pytest

from gristmill.training.run import preloaded
from gristmill.training.run.forked import Forked, fork

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="runs are forked on Linux alone")

MODULES = ()  # nothing is imported: what a run does is planted


def serve(door: socket.socket) -> None:
    """A server whose runs end at once, or wait for a signal, as their name says."""

    def run(name: str) -> int:
        if name == "wait":
            signal.pause()
        return int(name)

    preloaded.MODULES = MODULES
    preloaded.launch.main = run
    preloaded.serve(door)


@pytest.fixture
def address(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind(f"{tmp_path}/runs")
        door.listen()
        server = multiprocessing.get_context("fork").Process(target=serve, args=(door,))
        server.start()
    yield f"{tmp_path}/runs"
    server.kill()
    server.join()


def asked(address: str, name: str) -> Forked:
    with open(os.devnull, "wb") as output:
        made = fork(address, name, {}, output.fileno())
    assert made is not None
    return made


@pytest.mark.extended
def test_a_run_says_its_process_ahead_of_its_code_however_soon_it_ends(address):
    for code in range(40):
        run = asked(address, str(code))
        assert run.pid > 99 and run.wait(20) == code


def test_a_run_that_a_signal_ends_has_no_code_and_may_be_signalled_again(address):
    run = asked(address, "wait")
    assert run.poll() is None
    run.kill()
    assert run.wait(20) == -signal.SIGKILL
    run.terminate()


def test_the_door_is_its_owners_alone_and_has_a_short_address_wherever_temporary_files_are(tmp_path, monkeypatch):
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with preloaded.preloaded({}) as address:
        folder = Path(address).parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700 and folder.stat().st_uid == os.getuid()
    assert not folder.exists()
    assert fork(address, "0", {}, 1) is None, "where it is gone there is no process"


@pytest.mark.extended
def test_what_forks_has_one_thread(tmp_path):
    known = {child.pid for child in psutil.Process().children()}
    with preloaded.preloaded({"OMP_NUM_THREADS": "1"}) as address:
        assert asked(address, str(tmp_path / "nothing.json")).wait(120) == 1, "all is imported by then"
        [server] = [child for child in psutil.Process().children() if child.pid not in known]
        assert server.num_threads() == 1
