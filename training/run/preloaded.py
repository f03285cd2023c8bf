"""A process that has loaded training and forks one for each run, so that a run does without the seconds of a start.

    with preloaded({"OMP_NUM_THREADS": "1"}) as address:
        launch(run_json, 1, log, preloaded=address)

The process only imports: it computes nothing, so no thread of a library for sums is there and no GPU is touched, and
what it forks is as a process that has just imported the same. It dies with the thread that began the block, and what
it has forked dies with it. A run asks for its process by a socket, and gives it its environment and the file of its
output; its exit code comes back by the same socket, which a run that a signal ends leaves empty. Linux alone.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from gristmill.training.run import launch
from gristmill.training.run.deathsig import PARENT, die_with_parent

MOST = 1 << 20  # bytes of a request
WAITING = 256  # runs that may ask at once
# What a run imports, also what libraries import when they are first used.
MODULES = ("gristmill.training.run.loop",)
_KILLED = -signal.SIGKILL


class Forked:
    """A run that was forked, as subprocess.Popen has a process. `channel`: by which its exit code comes."""

    def __init__(self, pid: int, channel: socket.socket) -> None:
        self.pid, self._channel = pid, channel
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._channel], [], [], 0)[0]:
            said = self._channel.recv(16)
            self._channel.close()
            self.returncode = int(said) if said else _KILLED
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        until = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                raise subprocess.TimeoutExpired(f"the run in process {self.pid}", timeout or 0)
            select.select([self._channel], [], [], left)
        return code

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


@contextmanager
def preloaded(environment: Mapping[str, str]) -> Iterator[str]:
    """The address of such a process, for as long as the block lasts; "" where there are none. `environment`: what the
    libraries of all runs read when they are loaded."""
    if sys.platform != "linux":
        yield ""
        return
    own = {name: value for name, value in launch.environment_of(1, "").items() if name not in launch.OF_RANKS}
    with tempfile.TemporaryDirectory(prefix="gristmill-") as folder, socket.socket(socket.AF_UNIX) as door:
        address = f"{folder}/runs"
        door.bind(address)
        door.listen(WAITING)  # here, so that a run may ask at once
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "gristmill.training.run.preloaded", str(os.getpid())],
            stdin=door,
            stdout=subprocess.DEVNULL,
            env={**own, **environment},
            start_new_session=True,
        )
        try:
            yield address
        finally:
            process.kill()
            process.wait()


def fork(address: str, run_json: str, environment: Mapping[str, str], output: int) -> Forked | None:
    """A process for a run, whose output goes to the file descriptor `output`, from the one at an address; None where
    that is gone."""
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        channel.connect(address)
        request = json.dumps({"run": run_json, "environment": dict(environment)}).encode()
        socket.send_fds(channel, [request], [output])
        if pid := channel.recv(32):
            return Forked(int(pid), channel)
    except OSError:
        pass
    channel.close()
    return None


def serve(door: socket.socket) -> None:
    """Fork for each that asks."""
    for name in MODULES:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries what has ended
    own = os.getpid()
    while True:
        channel, _ = door.accept()
        request, descriptors, _, _ = socket.recv_fds(channel, MOST, 1)
        if not request:
            channel.close()
            continue
        if (pid := os.fork()) == 0:
            door.close()
            _run(json.loads(request), own, descriptors[0], channel)
        channel.send(str(pid).encode())
        os.close(descriptors[0])
        channel.close()


def _run(request: dict, parent: int, output: int, channel: socket.socket) -> None:
    """The forked process: one rank, and never back."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, standard in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(descriptor, standard)
    os.close(nothing)
    os.close(output)
    os.environ.update(request["environment"])
    os.environ[PARENT] = str(parent)
    code = 1
    try:
        code = launch.main(request["run"])
    except BaseException:
        traceback.print_exc()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    channel.send(str(code).encode())
    os._exit(code)  # as in gristmill.training.run.launch


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    serve(socket.socket(fileno=os.dup(0)))
